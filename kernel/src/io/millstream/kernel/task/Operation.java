package io.millstream.kernel.task;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.millstream.kernel.core.Clock;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.Window;
import io.millstream.kernel.state.Plan;
import java.io.Serializable;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.types.StructType;

/** What a stateful operator does in one task: aggregations and joins of the task's records, as their cores do them. */
final class Operation {
    private static final int PASSED = -1;

    /**
     * What an operator is.
     *
     * @param number its number among those of the subtopology
     * @param plan its items
     * @param entries for each item the places of its columns in a row that comes in
     * @param stores for each item the number of its store
     * @param control the place of `control`
     * @param timestamp that of the time, in ms
     * @param columns how many there are
     * @param passes how many of them go on, which are the first ones
     */
    record Spec(
            int number,
            Plan plan,
            ArrayList<Entry> entries,
            ArrayList<Integer> stores,
            int control,
            int timestamp,
            int columns,
            int passes)
            implements Serializable {

        /**
         * From Python's description.
         *
         * @param description JSON: `number`, `passes`, `at`, the name of the column with the time in ms, and `items`: each as {@link Plan#of} has it, and the names of
         *     columns: `on`, whether a row is for it, and `key`; and the number of its `store`
         */
        static Spec of(String description, StructType rows) {
            try {
                JsonNode node = new ObjectMapper().readTree(description);
                ArrayList<Entry> entries = new ArrayList<>();
                ArrayList<Integer> stores = new ArrayList<>();
                for (JsonNode item : node.get("items")) {
                    entries.add(new Entry(
                            item.has("on") ? rows.fieldIndex(item.get("on").asText()) : -1,
                            rows.fieldIndex(item.get("key").asText())));
                    stores.add(item.get("store").asInt());
                }
                return new Spec(
                        node.get("number").asInt(),
                        Plan.of(node.get("items").toString(), rows),
                        entries,
                        stores,
                        rows.fieldIndex("control"),
                        rows.fieldIndex(node.get("at").asText()),
                        rows.size(),
                        node.get("passes").asInt());
            } catch (JsonProcessingException error) {
                throw new IllegalArgumentException("the description of an operator is not JSON", error);
            }
        }
    }

    /** The places of an item's columns: whether a row is for it (-1: each is), and the key. */
    record Entry(int on, int key) implements Serializable {}

    private final Spec spec;
    private final StoredValues stored;
    private final Core[] cores;
    private final Packing[][] packings;
    private final int[] places;
    private final int width;
    private final ArrayDeque<InternalRow> results = new ArrayDeque<>();
    private final InternalRow nothing;
    private final InternalRow passedOwn;
    private final JoinedRow joined = new JoinedRow();

    private Operation(Spec spec, StoredValues stored, Task task) {
        this.spec = spec;
        this.stored = stored;
        List<Plan.Item> items = spec.plan.items;
        this.cores = new Core[items.size()];
        this.packings = new Packing[items.size()][];
        this.places = new int[items.size()];
        int columns = OperatorNode.OWN.size();
        for (int i = 0; i < cores.length; i++) {
            Plan.Item item = items.get(i);
            places[i] = columns;
            columns += item.prefixes().size() * item.names().size();
            packings[i] = new Packing[item.types().size()];
            for (int part = 0; part < packings[i].length; part++) {
                packings[i][part] = Packing.of(item.types().get(part));
            }
            Slices slices = new Slices(task.state, spec.stores.get(i), packings[i], values(i));
            Results output = new Results(i, item);
            var table = new io.millstream.kernel.core.Table(
                    slices, output, item.atOnce(), spec.plan.capacity(i));
            cores[i] = item.core(new io.millstream.kernel.core.Task(
                    item.parts(), table, output, new Clock(), null, null, item.remembers()));
        }
        width = columns;
        Object[] blank = new Object[spec.columns];
        blank[spec.control] = Task.RECORD;
        nothing = new GenericInternalRow(blank);
        Object[] own = new Object[width];
        own[0] = PASSED;
        passedOwn = new GenericInternalRow(own);
    }

    /** That of the task whose rows the calling thread has. */
    static Operation of(Spec spec, StoredValues stored) {
        Task task = Tasks.current();
        return (Operation) task.operations.computeIfAbsent(spec.number, number -> new Operation(spec, stored, task));
    }

    /** The values of an item's store. */
    private Slices.Values values(int item) {
        return (key, window) -> {
            Object[] own = new Object[width];
            own[0] = item;
            own[1] = io.millstream.kernel.Constants.KIND_UPDATE;
            own[2] = key;
            own[3] = window.start;
            own[4] = window.end;
            own[5] = window.at;
            for (int i = 0; i < window.parts.length; i++) {
                own[places[item] + i] = window.parts[i] == null ? null : packings[item][i].column(window.parts[i]);
            }
            return stored.of(item, new JoinedRow(new GenericInternalRow(own), nothing));
        };
    }

    void process(InternalRow row) {
        if (row.getInt(spec.control) != Task.RECORD) {
            for (Core core : cores) {
                core.finish();
            }
            return;
        }
        long at = row.getLong(spec.timestamp);
        for (int i = 0; i < cores.length; i++) {
            Entry entry = spec.entries.get(i);
            if (entry.on < 0 || !row.isNullAt(entry.on) && row.getBoolean(entry.on)) {
                if (!row.isNullAt(entry.key)) {
                    cores[i].record(row.getBinary(entry.key), at, parts(i, row), null);
                }
            }
        }
    }

    private Object[] parts(int item, InternalRow row) {
        List<Integer> columns = spec.plan.items.get(item).columns();
        Object[] parts = new Object[columns.size()];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = packings[item][i].read(row, columns.get(i));
        }
        return parts;
    }

    /** The next result of what was processed; null if there is none. It is valid until the next call. */
    InternalRow result() {
        InternalRow found = results.poll();
        return found == null ? null : joined.apply(found, nothing);
    }

    /** A row as it goes on. */
    InternalRow passed(InternalRow row) {
        return joined.apply(passedOwn, row);
    }

    /** The changes of one item, as rows. */
    private final class Results implements Output {
        private final int tag;
        private final Plan.Item item;

        Results(int tag, Plan.Item item) {
            this.tag = tag;
            this.item = item;
        }

        private Object[] add(int kind, byte[] key, Window window) {
            Object[] own = new Object[width];
            own[0] = tag;
            own[1] = kind;
            own[2] = key;
            own[3] = window.start;
            own[4] = window.end;
            own[5] = window.at;
            own[7] = window.headers;
            results.add(new GenericInternalRow(own));
            return own;
        }

        private void put(Object[] own, int place, Object[] parts) {
            for (int i = 0; i < parts.length; i++) {
                own[place + i] = parts[i] == null ? null : packings[tag][i].column(parts[i]);
            }
        }

        @Override
        public void update(byte[] key, Window window) {
            Object[] own = add(io.millstream.kernel.Constants.KIND_UPDATE, key, window);
            put(own, places[tag], window.parts);
            if (item.remembers() && window.before != null) {
                put(own, places[tag] + packings[tag].length, window.before);
            }
        }

        @Override
        public void gone(byte[] key, Window window) {
            add(io.millstream.kernel.Constants.KIND_GONE, key, window);
        }

        @Override
        public void closed(byte[] key, Window window) {
            put(add(io.millstream.kernel.Constants.KIND_CLOSED, key, window), places[tag], window.parts);
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            throw new UnsupportedOperationException("not yet");
        }
    }
}
