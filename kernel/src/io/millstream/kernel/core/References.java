package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.function.Supplier;

/**
 * The references to the keys of a table, each under a name: emitted with the table's row when they come, and whenever
 * the row changes. Sources: SubscriptionReceiveProcessorSupplier, SubscriptionJoinProcessorSupplier,
 * ForeignTableJoinProcessorSupplier.
 *
 * <p>There may be many references to one key, so they are on pages, by their names: at first one page, and twice as
 * many whenever one is full.
 */
public final class References extends Core {
    /** The parts with the name, and with whether it is kept; a reference replaces another one of the same name. */
    private static final int NAME = 1;

    private static final int STAYS = 2;
    /** The slice with the number of pages, if there is more than one. */
    private static final long HEAD = -1;

    private static final int FULL = 64;

    private final Supplier<TableView> rows;
    private final Matches matches;

    public References(Task task, Supplier<TableView> rows, Matches matches) {
        super(task);
        this.rows = rows;
        this.matches = matches;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        byte[] name = (byte[]) record[NAME];
        Slice page = table.slice(key, page(name, pages(key)));
        int place = place(page, name);
        if (place >= 0) {
            page.windows.remove(place);
            table.mark(page);
        }
        if ((boolean) record[STAYS]) {
            page.windows.add(new Window(0, 0, at, record.clone()));
            table.mark(page);
            if (page.windows.size() > Math.max(FULL, pages(key) / FULL)) { // this ends even if all hashes are equal
                spread(key);
            }
        }
        Window row = rows.get().look(key);
        boolean isThere = Keyed.isThere(row);
        matches.match(key, isThere ? Math.max(at, row.at) : at, record, isThere ? row.parts : null);
    }

    private static int place(Slice page, byte[] name) {
        for (int place = 0; place < page.windows.size(); place++) {
            if (Arrays.equals(name(page.windows.get(place)), name)) {
                return place;
            }
        }
        return -1;
    }

    private static byte[] name(Window reference) {
        return (byte[]) reference.parts[NAME];
    }

    private static long page(byte[] name, long pages) {
        // FNV-1a: consecutive keys have different hashes.
        long hash = 0xCBF29CE484222325L;
        for (byte each : name) {
            hash = (hash ^ each & 0xFF) * 0x100000001B3L;
        }
        return (hash ^ hash >>> 32) & (pages - 1);
    }

    private long pages(byte[] key) {
        Slice head = table.slice(key, HEAD);
        return head.windows.isEmpty() ? 1 : head.windows.get(0).start;
    }

    /** Doubles the number of pages: half of each goes to a new one. */
    private void spread(byte[] key) {
        long pages = pages(key);
        for (long number = 0; number < pages; number++) {
            Slice page = table.slice(key, number);
            Slice other = table.slice(key, number + pages);
            long old = number;
            page.windows.stream()
                    .filter(each -> page(name(each), 2 * pages) != old)
                    .forEach(other.windows::add);
            page.windows.removeIf(each -> page(name(each), 2 * pages) != old);
            table.mark(page);
            table.mark(other);
        }
        Slice head = table.slice(key, HEAD);
        head.windows.clear();
        head.windows.add(new Window(2 * pages, 0, 0, new Object[parts.size()]));
        table.mark(head);
    }

    /** The receiver of the table's changes, in addition to `first`. */
    public Output of(Output first) {
        return new TableOutput() {
            @Override
            public void update(byte[] key, Window row) {
                first.update(key, row);
                for (Window reference : all(key)) {
                    matches.change(key, row.updated, row.at, false, reference, row);
                }
            }
        };
    }

    /** The references to a key, by name, which is the order in which Kafka Streams finds them. */
    private List<Window> all(byte[] key) {
        table.makeRoom();
        List<Window> found = new ArrayList<>();
        for (long number = 0, pages = pages(key); number < pages; number++) {
            found.addAll(table.slice(key, number).windows);
        }
        found.sort(Comparator.comparing(References::name, Arrays::compareUnsigned));
        return found;
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        throw new IllegalStateException("what refers to a row is in no changelog");
    }
}
