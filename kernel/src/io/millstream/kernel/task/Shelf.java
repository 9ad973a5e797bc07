package io.millstream.kernel.task;

import io.millstream.kernel.core.Clock;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Due;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.LastingDue;
import io.millstream.kernel.core.Lookup;
import io.millstream.kernel.core.Matches;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.Pairs;
import io.millstream.kernel.core.Records;
import io.millstream.kernel.core.References;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.Table;
import io.millstream.kernel.core.TableView;
import io.millstream.kernel.core.Waiting;
import io.millstream.kernel.core.Window;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BiPredicate;
import java.util.function.Supplier;

/** The state of one item in a task: its entries, its clock, and what is due. Its core stays as long as the task. */
final class Shelf {
    private static final byte[] FIRST = {};

    final OperatorPlan.Item item;
    final Content content;
    /** Null for an item that keeps no numbers. */
    final Clock clock;

    private final State state;
    /** The number of its store; negative if it has no entries. */
    private final int store;
    /** Null for an item without windows or rows of its own. */
    private final Slices slices;

    private final List<byte[]> expired = new ArrayList<>();
    private final Due due;
    private final Due closing;

    /**
     * @param operator the operator's number
     * @param number the item's number
     * @param store that of its store; negative for none
     * @param local that of the store for what is due, which is not logged; negative for none
     * @param values for the entries of a table; null for none
     */
    Shelf(
            State state,
            OperatorPlan.Item item,
            int operator,
            int number,
            int store,
            int local,
            Folds folds,
            Content.Values values) {
        this.item = item;
        this.state = state;
        this.store = store;
        this.content = new Content(
                item.types(), item.rules(), item.of() < 0 ? number : item.of(), folds, values, item.place());
        boolean hasSlices = item.hasState() && !List.of("pairs", "references").contains(item.core());
        boolean forgetsNull = item.core().equals("latest");
        Alone alone = item.settings().containsKey("outer")
                ? new Alone(state, item.link("outer"), item.setting("outer_left") != 0)
                : null;
        Layout layout = hasSlices ? Layout.of(item, state.store(store).isOfValues()) : null;
        slices = hasSlices ? new Slices(state, store, layout, content, alone, forgetsNull) : null;
        boolean isTimed = item.hasState() && item.isWindowed();
        clock = isTimed ? new Clock() : null;
        State pages = local < 0 ? null : state;
        due = isTimed && item.isDue()
                ? new LastingDue(new DuePages(pages, local, operator, 2 * number), item.span(), false)
                : null;
        closing = isTimed && item.isOnClose()
                ? new LastingDue(new DuePages(pages, local, operator, 2 * number + 1), item.span(), true)
                : null;
    }

    private io.millstream.kernel.core.Task task(Table table, Output output) {
        return new io.millstream.kernel.core.Task(
                item.parts(), table, output, clock, due, closing, item.remembers());
    }

    private Table table(Output output, boolean atOnce, int capacity) {
        return new Table(slices, output, atOnce, capacity, slices == null ? () -> Long.MAX_VALUE : state.share());
    }

    Core core(Output output, int capacity) {
        Output changes = item.core().equals("suppress") ? Suppress.log(output) : output;
        return item.core(task(table(changes, item.atOnce(), capacity), output));
    }

    /** The references to the rows of a table. */
    References references(Supplier<TableView> rows, Matches matches) {
        return new References(
                task(table(null, true, Table.CAPACITY), null),
                new ReferenceRanges(state, store),
                rows,
                matches);
    }

    /** The join of two sides. */
    Pairs pairs(Records left, Records right, Matches matches) {
        return new Pairs(clock, closing, item.pairs(), left, right, matches).begun();
    }

    /** The records that wait for their rows. */
    Waiting waiting(Lookup lookup) {
        return new Waiting(task(table(null, true, Table.CAPACITY), null), item.setting("grace"), lookup);
    }

    // --- what was read back --------------------------------------------------------------------------------

    /** Whether anything follows from its entries. */
    boolean isDerived() {
        return clock != null && slices != null;
    }

    /** The window of an entry. */
    Window window(byte[] name, byte[] value) {
        return slices.window(name, value);
    }

    byte[] key(byte[] name) {
        return slices.key(name);
    }

    /** Logs a change of a store whose versions are kept. */
    void log(byte[] key, Window window) {
        slices.log(key, window);
    }

    /** All its entries. */
    Cursor entries() {
        return state.range(store, null, null, false);
    }

    /** Writes what was derived. */
    void settle() {
        if (due != null) {
            due.flush();
        }
        if (closing != null) {
            closing.flush();
        }
    }

    /** Passes on all entries, and notes those that are not needed. */
    void forEach(BiPredicate<byte[], byte[]> isNeeded) {
        state.range(store, FIRST, null, (name, value) -> {
            if (!isNeeded.test(name, value)) {
                expired.add(name);
            }
        });
    }

    /** Deletes the entries that are not needed. */
    void dropExpired() {
        expired.forEach(slices::drop);
        expired.clear();
    }
}
