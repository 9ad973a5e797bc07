package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import io.millstream.kernel.core.Clock;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.Latest;
import io.millstream.kernel.core.Lookup;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.Pairs;
import io.millstream.kernel.core.Records;
import io.millstream.kernel.core.References;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.TableJoin;
import io.millstream.kernel.core.TableOutput;
import io.millstream.kernel.core.TableView;
import io.millstream.kernel.core.Window;
import io.millstream.kernel.python.Folding;
import io.millstream.kernel.python.Program;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.ByteUtils;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * What a stateful operator does in one task: aggregations and joins of the task's records, as their cores do them.
 *
 * <p>Before the first record: {@link #restoreClock}, if something was committed. Then, for each entry that is read back
 * from a changelog, {@link #restored}, and {@link #settle} before the state is committed. If entries are read back
 * while there is no operation yet: {@link Derived#outdate}, with the same commit of the state.
 */
final class Operation implements Operator {
    /** The columns before the parts. */
    static final StructType OWN = new StructType()
            .add("tag", DataTypes.IntegerType, false)
            .add("kind", DataTypes.IntegerType)
            .add("result_key", DataTypes.BinaryType)
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("at", DataTypes.LongType)
            .add("time", DataTypes.LongType)
            .add("result_headers", DataTypes.BinaryType);

    private static final int PASSED = -1;
    private static final int NONE = -1;

    /**
     * What an operator is.
     *
     * @param number its number among those of the subtopology
     * @param plan its items
     * @param entries for each item the places of its columns in a row that comes in
     * @param stores for each item the number of its store; negative for none
     * @param local the number of the store for what is due, which is not logged; negative for none: it is only in
     *     memory, and derived from all entries when the task is opened
     * @param control the place of `control`
     * @param timestamp that of the time, in ms
     * @param headers that of packed headers; negative for none
     * @param since that of the time of a table's row, if it is not its update's; negative for none
     * @param columns how many there are
     * @param passes how many of them go on, which are the first ones
     * @param isPassing whether records go on; otherwise only controls do
     * @param program computes the parts that are folds; null if there is none
     */
    record Spec(
            int number,
            OperatorPlan plan,
            ArrayList<Entry> entries,
            ArrayList<Integer> stores,
            int local,
            int control,
            int timestamp,
            int headers,
            int since,
            int columns,
            int passes,
            boolean isPassing,
            Program program)
            implements Operator.Spec {
        private static final long serialVersionUID = 1;

        /** Without the program, which has an environment. */
        @Override
        public String toString() {
            return "operator " + number;
        }

        /**
         * From Python's description.
         *
         * @param description JSON: `number`; `passes`; `records`, whether they pass; the names of columns: `at`, the
         *     time in ms; `headers`, packed headers (see {@link Headers}), and `since`, if there are such columns;
         *     `local`, the number of a store that is not logged; and `items`: each as {@link OperatorPlan#of} has it,
         *     and the names of columns: `on`, whether a row is for it, NULL if it is, but is passed over; and `key`;
         *     the number of its `store`, if it keeps entries; whether it is `derived` or `versioned`, or its entries
         *     are `told`; and `skipped`, the name of the figure with what it passes over. An item without `key` gets
         *     no rows.
         */
        static Spec of(JsonNode description, StructType rows, Program program) {
            ArrayList<Entry> entries = new ArrayList<>();
            ArrayList<Integer> stores = new ArrayList<>();
            for (JsonNode item : description.get("items")) {
                entries.add(new Entry(
                        OperatorNode.place(item, "on", rows),
                        OperatorNode.place(item, "key", rows),
                        item.path("derived").asBoolean(),
                        item.path("told").asBoolean(),
                        item.path("versioned").asBoolean(),
                        item.path("skipped").asText(null)));
                stores.add(item.path("store").asInt(NONE));
            }
            return new Spec(
                    description.get("number").asInt(),
                    OperatorPlan.of(description.get("items").toString(), rows),
                    entries,
                    stores,
                    description.path("local").asInt(NONE),
                    rows.fieldIndex("control"),
                    rows.fieldIndex(description.path("at").asText("timestamp")),
                    OperatorNode.place(description, "headers", rows),
                    OperatorNode.place(description, "since", rows),
                    rows.size(),
                    description.path("passes").asInt(rows.size()),
                    description.path("records").asBoolean(true),
                    program);
        }

        @Override
        public StructType own() {
            StructType own = OWN;
            for (OperatorPlan.Item item : plan.items) {
                for (String prefix : item.prefixes()) {
                    for (int i = 0; i < item.names().size(); i++) {
                        own = own.add(prefix + item.names().get(i), item.types().get(i), true);
                    }
                }
            }
            return own;
        }

        @Override
        public Operator of(RunningTask task, StoredValues stored) {
            boolean isReplayed = task.plan.isAnyDerived()
                    && Derived.ofStores(task.state, task.plan.local()).isOutdated();
            Operation made =
                    new Operation(this, task.state, stored, new Folding(program), task.figures, isReplayed);
            byte[] clock = task.clock(number);
            if (clock != null) {
                made.restoreClock(clock);
            }
            return made;
        }
    }

    /**
     * Where an item's rows are, and what it does with those of earlier (see {@link Replay}).
     *
     * @param on the place of the column that says whether a row is for it; negative: each is
     * @param key that of the key; negative: it gets no rows
     * @param isDerived whether it keeps what follows from them
     * @param isTold whether its entries are told, because others follow from them
     * @param isVersioned whether each of its changes is logged
     * @param skipped the name of the figure with the rows that are passed over; null: they are not counted
     */
    record Entry(int on, int key, boolean isDerived, boolean isTold, boolean isVersioned, String skipped)
            implements Serializable {}

    private final Spec spec;
    private final Figures figures;
    private final State state;
    private final OperatorPlan plan;
    private final Shelf[] shelves;
    private final Core[] cores;
    private final Pairs[] pairs;
    private final Lookup[] lookups;
    private final Results[] results;
    private final boolean[] isBare;
    /** For each item, whether a record without a key is one. */
    private final boolean[] takesNullKeys;

    private final Results.Rows rows;
    private final InternalRow nothing;
    private final InternalRow nothingRestored;
    private final InternalRow passedOwn;
    private final JoinedRow joined = new JoinedRow();
    /** What came in last, and has still to go on. */
    private InternalRow passing;

    /** Whether stores that follow from others are filled anew. */
    private final boolean isReplayed;

    private boolean isOpen;
    /** Whether the clocks are those of the last commit. */
    private boolean hasClock;
    /** Whether the row at hand was processed earlier. */
    private boolean isRestored;
    /** The next item whose entries are told, and its entries. */
    private int telling = Integer.MAX_VALUE;

    private Cursor told;

    /**
     * @param stored computes the values of tables' entries; null if nobody reads them
     * @param folds computes the parts that are folds; null if there are none
     */
    Operation(
            Spec spec,
            State state,
            StoredValues stored,
            Folds.Computer folds,
            Figures figures,
            boolean isReplayed) {
        this.spec = spec;
        this.figures = figures;
        this.isReplayed = isReplayed;
        this.state = state;
        this.plan = spec.plan;
        int size = plan.items.size();
        shelves = new Shelf[size];
        cores = new Core[size];
        pairs = new Pairs[size];
        lookups = new Lookup[size];
        results = new Results[size];
        isBare = new boolean[size];
        takesNullKeys = new boolean[size];
        Object[] blank = new Object[spec.columns];
        blank[spec.control] = RunningTask.RECORD;
        nothing = new GenericInternalRow(blank);
        Object[] restored = blank.clone();
        restored[spec.control] = RunningTask.RESTORED;
        nothingRestored = new GenericInternalRow(restored);
        rows = new Results.Rows(plan, shelves);
        Folds all = new Folds(folds);
        JoinedRow own = new JoinedRow();
        for (int i = 0; i < size; i++) {
            OperatorPlan.Item item = plan.items.get(i);
            boolean isHeldBack = item.of() >= 0;
            int number = isHeldBack ? item.of() : i; // that is whose values it has
            Content.Values values = stored == null ? null : new Content.Values() {
                @Override
                public byte[] of(byte[] key, Window window) {
                    return stored.of(number, own.apply(rows.stored(number, key, window), nothing));
                }

                @Override
                public InternalRow parts(byte[] key, Window window, byte[] value, int count) {
                    return stored.parts(number, own.apply(rows.given(number, key, window, value), nothing), count);
                }
            };
            shelves[i] = new Shelf(state, item, spec.number, i, spec.stores.get(i), spec.local, all, values);
            results[i] = new Results(rows, plan, i);
            isBare[i] = item.setting("bare") != 0;
            takesNullKeys[i] = List.of("lookup", "waiting", "records", "references").contains(item.core());
        }
        Object[] passed = new Object[rows.width()];
        passed[0] = PASSED;
        passedOwn = new GenericInternalRow(passed);
    }

    // --- opening ---------------------------------------------------------------------------------------

    @Override
    public byte[] clock() {
        return Packing.bytes(out -> {
            ByteUtils.writeVarlong(clocks(), out);
            for (Shelf shelf : shelves) {
                if (shelf.clock != null) {
                    ByteUtils.writeVarlong(shelf.clock.streamTime, out);
                    for (long own : shelf.clock.own) {
                        ByteUtils.writeVarlong(own, out);
                    }
                }
            }
        });
    }

    private long clocks() {
        return Arrays.stream(shelves).filter(shelf -> shelf.clock != null).count();
    }

    /** What {@link #clock} was at the last commit. It is ignored if it is not of these items. */
    void restoreClock(byte[] bytes) {
        if (isOpen) {
            throw new IllegalStateException("an operator's clock is restored before its first record");
        }
        try (DataInputStream in = Packing.from(bytes)) {
            if (ByteUtils.readVarlong(in) != clocks()) {
                return;
            }
            hasClock = true;
            for (Shelf shelf : shelves) {
                if (shelf.clock != null) {
                    shelf.clock.streamTime = ByteUtils.readVarlong(in);
                    for (int i = 0; i < Clock.OWN; i++) {
                        shelf.clock.own[i] = ByteUtils.readVarlong(in);
                    }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /**
     * Call it for each entry that is read back from a changelog, also of other operators' stores.
     *
     * @param value null for a deletion
     * @return whether it is to be kept; otherwise it has expired
     */
    boolean restored(int store, byte[] name, byte[] value) {
        open();
        int tag = value == null ? NONE : spec.stores.indexOf(store);
        return tag < 0 || derive(tag, name, value);
    }

    /** Writes what follows from the restored entries, and deletes those that have expired. */
    void settle() {
        open();
        settleAll();
    }

    private void settleAll() {
        for (Shelf shelf : shelves) {
            shelf.settle();
        }
    }

    /** Finds out from all entries what is due. */
    private void derive() {
        for (int i = 0; i < shelves.length; i++) {
            if (shelves[i].isDerived()) {
                int tag = i;
                shelves[i].forEach((name, value) -> derive(tag, name, value));
                if (!isReplayed || !isTelling(i)) {
                    shelves[i].dropExpired();
                } // otherwise when they are told: a closed window is a row as well
            }
        }
    }

    private boolean derive(int tag, byte[] name, byte[] value) {
        Shelf shelf = shelves[tag];
        if (!shelf.isDerived()) {
            return true;
        }
        byte[] key = shelf.key(name);
        Window window = shelf.window(name, value);
        boolean isNeeded = core(tag).derive(key, window);
        if (!hasClock && isSuppress(tag)) { // Kafka Streams counts what it restores, and notes nothing
            ((Suppress) core(tag)).count(key, window);
        }
        if (isNeeded && window.waits) {
            for (int join : plan.over(tag)) {
                pairs(join).derive(plan.items.get(join).link("left") == tag, key, window);
            }
        }
        return isNeeded;
    }

    private void open() {
        if (isOpen) {
            return;
        }
        isOpen = true;
        for (int i = 0; i < shelves.length; i++) {
            switch (shelves[i].item.core()) {
                case "lookup" -> lookup(i);
                case "references" -> references(i);
                case "pairs" -> pairs(i);
                case "table_join", "changes" -> {
                    // What its sides tell is all that there is.
                }
                default -> core(i);
            }
        }
        Derived derived = spec.local < 0 ? null : new Derived(state, spec.local, spec.number);
        if (derived == null || derived.isOutdated()) {
            derive();
            settleAll();
        }
        if (derived != null) {
            derived.update();
        }
    }

    private TableView table(int tag) {
        return (TableView) core(tag);
    }

    private Lookup lookup(int tag) {
        if (lookups[tag] == null) {
            OperatorPlan.Item item = plan.items.get(tag);
            int table = item.link("table");
            lookups[tag] = new Lookup(() -> table(table), item.setting("alone") != 0, results[tag]);
        }
        return lookups[tag];
    }

    private Core core(int tag) {
        if (cores[tag] == null && plan.items.get(tag).core().equals("waiting")) {
            cores[tag] = shelves[tag].waiting(lookup(tag));
        } else if (cores[tag] == null) {
            Output all = spec.entries.get(tag).isVersioned && isWhole(tag) ? logged(tag) : results[tag];
            for (int other : plan.over(tag)) {
                all = over(other, tag, all);
            }
            cores[tag] = shelves[tag].core(all, plan.capacity(tag));
        }
        return cores[tag];
    }

    private boolean isWhole(int tag) {
        return plan.items.get(tag).core().equals("whole");
    }

    /** The receiver of changes that are logged, each of them. */
    private Output logged(int tag) {
        return new TableOutput() {
            @Override
            public void update(byte[] key, Window window) {
                if (!isRestored) {
                    shelves[tag].log(key, window);
                }
                results[tag].update(key, window);
            }
        };
    }

    /** The receiver of an item's changes, in addition to others. */
    private Output over(int tag, int below, Output others) {
        OperatorPlan.Item item = plan.items.get(tag);
        return switch (item.core()) {
            case "suppress" -> ((Suppress) core(tag)).of(others);
            case "table_join" -> {
                int left = item.link("left");
                int right = item.link("right");
                Runnable past = () -> skipped(tag);
                TableJoin join = new TableJoin(() -> table(left), () -> table(right), results[tag], past);
                Output side = join.of(others, below == left);
                yield item.isOfOne() ? join.of(side, false) : side;
            }
            case "references" -> {
                Output changing = references(tag).of(others);
                yield new TableOutput() {
                    @Override
                    public void update(byte[] key, Window window) {
                        (isRestored ? others : changing).update(key, window); // they were told when it came first
                    }
                };
            }
            default -> others;
        };
    }

    private References references(int tag) {
        if (cores[tag] == null) {
            int table = plan.items.get(tag).link("table");
            cores[tag] = shelves[tag].references(() -> table(table), results[tag]);
        }
        return (References) cores[tag];
    }

    private Pairs pairs(int tag) {
        if (pairs[tag] == null) {
            OperatorPlan.Item item = plan.items.get(tag);
            Records left = (Records) core(item.link("left"));
            Records right = (Records) core(item.link("right"));
            pairs[tag] = shelves[tag].pairs(left, right, results[tag]);
        }
        return pairs[tag];
    }

    // --- records ---------------------------------------------------------------------------------------

    @Override
    public void process(InternalRow row) {
        open();
        passing = row;
        int control = row.getInt(spec.control);
        isRestored = control == RunningTask.RESTORED || control == RunningTask.DERIVE;
        if (control == RunningTask.COMMIT) {
            finish();
        } else if (control == RunningTask.DERIVE) {
            telling = 0;
        }
        if (control != RunningTask.RECORD && control != RunningTask.RESTORED) {
            return;
        }
        long at = row.getLong(spec.timestamp);
        state.timestamp = at;
        rows.atHand = spec.headers < 0 || row.isNullAt(spec.headers) ? null : row.getBinary(spec.headers);
        for (int i = 0; i < shelves.length; i++) {
            Entry entry = spec.entries.get(i);
            boolean isFor = entry.key >= 0
                    && (!isRestored || entry.isDerived || entry.isTold && isSuppress(i))
                    && (entry.on < 0 || !row.isNullAt(entry.on) && row.getBoolean(entry.on))
                    && (takesNullKeys[i] || !row.isNullAt(entry.key));
            if (isFor) {
                byte[] key = row.isNullAt(entry.key) ? null : row.getBinary(entry.key);
                long since = spec.since < 0 || row.isNullAt(spec.since) ? at : row.getLong(spec.since);
                Object[] parts = parts(i, key, row);
                if (entry.isVersioned && !isRestored && !isWhole(i)) {
                    shelves[i].log(key, new Window(at, at, at, parts)); // also what is too old to be kept
                }
                record(i, key, at, since, parts);
            } else if (entry.on >= 0 && row.isNullAt(entry.on)) {
                skipped(i);
            }
        }
        if (isRestored && state.changedBytes() > Memory.changes()) {
            state.spill();
        }
    }

    private void skipped(int tag) {
        String what = spec.entries.get(tag).skipped;
        if (what != null && !isRestored) {
            figures.dropped(what, null);
        }
    }

    private Object[] parts(int tag, byte[] key, InternalRow row) {
        List<Integer> columns = plan.items.get(tag).columns();
        Content content = shelves[tag].content;
        Object[] parts = new Object[columns.size()];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = content.given(i, key, content.packing(i).read(row, columns.get(i)));
        }
        return parts;
    }

    private void record(int tag, byte[] key, long at, long since, Object[] parts) {
        byte[] headers = rows.atHand;
        results[tag].last = headers;
        if (isRestored && isSuppress(tag)) {
            ((Suppress) cores[tag]).restored(key, at, parts);
            return;
        }
        switch (plan.items.get(tag).core()) {
            case "lookup" -> lookup(tag).record(key, at, parts);
            case "references" -> {
                if (key == null) { // there is no such row, and never will be
                    results[tag].match(null, at, parts, null);
                } else {
                    cores[tag].record(key, at, parts);
                }
            }
            case "records" -> {
                for (int join : plan.over(tag)) {
                    pairs(join).record(plan.items.get(join).link("left") == tag, key, at, parts);
                }
            }
            case "latest" -> ((Latest) cores[tag]).record(key, at, since, parts, isBare[tag] ? null : headers);
            default -> cores[tag].record(key, at, parts, isBare[tag] ? null : headers);
        }
    }

    private void finish() {
        // All changes of joined tables are emitted before any table empties its cache.
        for (int tag = 0; tag < cores.length; tag++) {
            if (cores[tag] != null && plan.isJoined(tag)) {
                cores[tag].emit();
            }
        }
        // Items that depend on others come after them.
        for (int tag = 0; tag < cores.length; tag++) {
            if (cores[tag] != null) {
                cores[tag].finish();
            } else if (pairs[tag] != null) {
                pairs[tag].finish();
            }
        }
    }

    @Override
    public InternalRow next() {
        InternalRow found = result();
        if (found == null && passing != null) {
            found = passed(passing);
            passing = null;
        }
        return found;
    }

    /** The next result of what was processed; null if there is none. It is valid until the next call. */
    InternalRow result() {
        InternalRow found = rows.next();
        while (found == null && telling < shelves.length && tell()) {
            found = rows.next();
        }
        return found == null ? null : joined.apply(found, isRestored ? nothingRestored : nothing);
    }

    private boolean isSuppress(int tag) {
        return plan.items.get(tag).core().equals("suppress");
    }

    private boolean isTelling(int tag) {
        return !isSuppress(tag)
                && (spec.entries.get(tag).isTold || !suppressing(tag).isEmpty());
    }

    /** Those that hold back its changes, and are told its entries. */
    private List<Suppress> suppressing(int tag) {
        return plan.over(tag).stream()
                .filter(other -> isSuppress(other) && spec.entries.get(other).isTold)
                .map(other -> (Suppress) core(other))
                .toList();
    }

    /** Passes on the next entry of its tables; whether there is one. */
    @SuppressWarnings("resource") // it closes at its end, or with the state
    private boolean tell() {
        for (; telling < shelves.length; telling++) {
            if (!isTelling(telling)) {
                continue;
            }
            boolean isTold = spec.entries.get(telling).isTold;
            List<Suppress> suppressing = suppressing(telling);
            Shelf shelf = shelves[telling];
            told = told == null ? shelf.entries() : told;
            if (told.next()) {
                byte[] key = shelf.key(told.key());
                Window window = shelf.window(told.key(), told.value());
                if (isTold) {
                    results[telling].update(key, window);
                }
                suppressing.forEach(each -> each.restored(key, window));
                return true;
            }
            told = null;
            shelf.dropExpired();
        }
        return false;
    }

    /** A row as it goes on; null if nothing needs it. */
    InternalRow passed(InternalRow row) {
        boolean isNeeded = spec.isPassing || row.getInt(spec.control) != RunningTask.RECORD;
        return isNeeded ? joined.apply(passedOwn, row) : null;
    }
}
