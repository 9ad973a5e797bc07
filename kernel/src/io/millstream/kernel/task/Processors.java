package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import io.millstream.kernel.Constants;
import io.millstream.kernel.python.Processing;
import io.millstream.kernel.python.Program;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Processors written in Python, in one task, which has their stores in its state.
 *
 * <p>Records wait for each other, and go to Python together: up to the next control, which the source passes before it
 * has to wait for a record, or until there are enough. So nothing that is here waits for what is not.
 */
final class Processors implements Operator {
    private static final StructType HEADERS =
            (StructType) ((ArrayType) RecordRow.SCHEMA.apply("headers").dataType())
                    .elementType();
    private static final int PASSED = -1;
    /** That of the first processor's failures; the others' follow below it. */
    private static final int FAILED = -2;
    /** The number of the first global table. */
    private static final int GLOBAL = -1;

    /**
     * What the processors of a graph are, as an operator.
     *
     * @param inputs for each input the places of its columns
     * @param stores for each store of the graph its number among those of the task; or, of the global tables of the
     *     run, {@link #GLOBAL} for the first one, the next smaller number for the second, and so on
     * @param context the places of the columns that each record has
     * @param isPassing whether records go on; otherwise only controls do
     * @param isTelling whether it has stores with the rows of tables, from which others follow
     */
    record Spec(
            int number,
            ArrayList<Input> inputs,
            ArrayList<Integer> stores,
            Context context,
            int columns,
            int passes,
            boolean isPassing,
            boolean isTelling,
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
         *     time in ms, `headers`, `topic`, `partition` and `offset`; `inputs`: each with the names of columns: `on`,
         *     whether a row is for it, `key` and `value`, and whether it gets those of earlier, `restored`; `tells`,
         *     whether its stores have rows of tables; and `stores`, their numbers, as in the spec
         */
        static Spec of(JsonNode description, StructType rows, Program program) {
            ArrayList<Input> inputs = new ArrayList<>();
            for (JsonNode each : description.get("inputs")) {
                inputs.add(new Input(
                        OperatorNode.place(each, "on", rows),
                        OperatorNode.place(each, "key", rows),
                        OperatorNode.place(each, "value", rows),
                        each.get("restored").asBoolean()));
            }
            ArrayList<Integer> stores = new ArrayList<>();
            description.get("stores").forEach(store -> stores.add(store.asInt()));
            return new Spec(
                    description.get("number").asInt(),
                    inputs,
                    stores,
                    Context.of(description, rows),
                    rows.size(),
                    description.get("passes").asInt(),
                    description.path("records").asBoolean(true),
                    description.get("tells").asBoolean(),
                    program);
        }

        @Override
        public StructType own() {
            return new StructType()
                    .add("tag", DataTypes.IntegerType, false)
                    .add("result_key", DataTypes.BinaryType)
                    .add("result_value", DataTypes.BinaryType)
                    .add("at", DataTypes.LongType)
                    .add("result_headers", DataTypes.createArrayType(HEADERS))
                    .add("result_topic", DataTypes.StringType)
                    .add("result_partition", DataTypes.IntegerType)
                    .add("result_offset", DataTypes.LongType)
                    .add("exception", DataTypes.StringType)
                    .add("message", DataTypes.StringType);
        }

        @Override
        public Operator of(RunningTask task, StoredValues stored) {
            return new Processors(this, task);
        }
    }

    /**
     * The places of an input's columns: whether a row is for it, key, and value.
     *
     * @param isRestored whether it gets rows of earlier, too (see {@link Replay})
     */
    record Input(int on, int key, int value, boolean isRestored) implements Serializable {}

    /** The places of the columns that each record has. */
    record Context(int control, int at, int headers, int topic, int partition, int offset)
            implements Serializable {
        private static Context of(JsonNode description, StructType rows) {
            return new Context(
                    rows.fieldIndex("control"),
                    OperatorNode.place(description, "at", rows),
                    OperatorNode.place(description, "headers", rows),
                    OperatorNode.place(description, "topic", rows),
                    OperatorNode.place(description, "partition", rows),
                    OperatorNode.place(description, "offset", rows));
        }
    }

    /** A row that goes on when its records have been processed, which end before this place of the chunk. */
    private record Waiting(InternalRow row, int end) {}

    private final Spec spec;
    private final RunningTask task;
    private final String owner;
    private final Processing.Task processing;
    private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
    private final ArrayDeque<InternalRow> results = new ArrayDeque<>();
    private final InternalRow nothing;
    private final InternalRow nothingRestored;
    private final InternalRow passedOwn;
    private final JoinedRow joined = new JoinedRow();
    /** What goes on behind the results, and belongs to the rows that come in. */
    private InternalRow control;
    /** Whether what is computed was processed earlier. */
    private boolean isRestoring;
    /** Whether there may be more rows of tables to tell. */
    private boolean isTelling;

    private long streamTime;

    private Processors(Spec spec, RunningTask task) {
        this.spec = spec;
        this.task = task;
        // A new owner begins with new processors, also if an earlier one's are still there.
        owner = task.plan.run() + "/" + UUID.randomUUID();
        byte[] clock = task.clock(spec.number);
        streamTime = clock == null || clock.length != Long.BYTES
                ? Long.MIN_VALUE
                : ByteBuffer.wrap(clock).getLong();
        processing = new Processing(spec.program, owner + "/" + spec.number)
                .task(owner, task.partition, 0, 0, streamTime, new Stores());
        Object[] blank = new Object[spec.columns];
        blank[spec.context.control] = RunningTask.RECORD;
        nothing = new GenericInternalRow(blank);
        Object[] restored = blank.clone();
        restored[spec.context.control] = RunningTask.RESTORED;
        nothingRestored = new GenericInternalRow(restored);
        Object[] passed = new Object[spec.own().size()];
        passed[0] = PASSED;
        passedOwn = new GenericInternalRow(passed);
    }

    @Override
    public byte[] clock() {
        return ByteBuffer.allocate(Long.BYTES).putLong(streamTime).array();
    }

    @Override
    public void close() {
        Processing.end(owner);
    }

    // --- rows that come in -----------------------------------------------------------------------------

    @Override
    public void process(InternalRow row) {
        switch (row.getInt(spec.context.control)) {
            case RunningTask.RECORD -> {
                isRestoring = false;
                record(row);
            }
            case RunningTask.RESTORED -> {
                isRestoring = true;
                record(row);
            }
            case RunningTask.DERIVE -> {
                isRestoring = true;
                finish(row);
                isTelling = spec.isTelling;
            }
            case RunningTask.TICK -> {
                task.touch();
                processing.add(new Processing.Input(
                        Constants.TICK, null, null, task.now(), List.of(), null, -1, -1));
                finish(row);
            }
            default -> finish(row);
        }
    }

    private void record(InternalRow row) {
        boolean wasEmpty = processing.isEmpty();
        for (int i = 0; i < spec.inputs.size(); i++) {
            Input input = spec.inputs.get(i);
            if (row.getBoolean(input.on) && (input.isRestored || !isRestoring)) {
                processing.add(record(i, row));
            }
        }
        boolean isPassing = spec.isPassing || isRestoring;
        if (processing.isEmpty()) {
            if (isPassing) {
                control = row;
            }
            return;
        }
        if (isPassing) {
            waiting.add(new Waiting(row.copy(), processing.size()));
        }
        if (processing.isFull()) {
            run();
        } else if (wasEmpty) {
            task.hold();
        }
    }

    private Processing.Input record(int number, InternalRow row) {
        Input input = spec.inputs.get(number);
        Context in = spec.context;
        return new Processing.Input(
                isRestoring ? Constants.RESTORED - number : number,
                row.isNullAt(input.key) ? null : row.getBinary(input.key),
                row.isNullAt(input.value) ? null : row.getBinary(input.value),
                row.getLong(in.at),
                row.isNullAt(in.headers) ? List.of() : headers(row.getArray(in.headers)),
                row.isNullAt(in.topic) ? null : row.getUTF8String(in.topic).toString(),
                row.isNullAt(in.partition) ? -1 : row.getInt(in.partition),
                row.isNullAt(in.offset) ? -1 : row.getLong(in.offset));
    }

    private static List<Processing.Header> headers(ArrayData all) {
        List<Processing.Header> headers = new ArrayList<>(all.numElements());
        for (int i = 0; i < all.numElements(); i++) {
            InternalRow each = all.getStruct(i, HEADERS.size());
            byte[] value = each.isNullAt(1) ? null : each.getBinary(1);
            headers.add(new Processing.Header(each.getUTF8String(0).toString(), value));
        }
        return headers;
    }

    private void finish(InternalRow row) {
        if (!processing.isEmpty()) {
            run();
        }
        control = row;
    }

    // --- the processors --------------------------------------------------------------------------------

    private void run() {
        Processing.Made made = processing.run();
        streamTime = made.streamTime();
        for (Processing.Put each : made.changes()) {
            int store = spec.stores.get(each.store());
            task.state.put(store, each.key(), entry(store, each.value()));
        }
        for (Processing.Put each : made.logged()) {
            byte[] value = each.value() == null ? null : new Entry(each.at(), null, each.value()).bytes();
            task.state.log(spec.stores.get(each.store()), each.key(), value, each.at());
        }
        if (made.due() != Long.MAX_VALUE) {
            task.wake(made.due());
        }
        if (made.commits()) {
            task.hurry();
        }
        put(made);
    }

    /** In order: of each row that came in its results, and then the row. */
    private void put(Processing.Made made) {
        int next = 0;
        List<Processing.Output> outputs = made.outputs();
        for (Waiting each = waiting.poll(); each != null; each = waiting.poll()) {
            for (; next < outputs.size() && outputs.get(next).place() < each.end; next++) {
                results.add(row(outputs.get(next)));
            }
            results.add(each.row);
        }
        outputs.subList(next, outputs.size()).forEach(each -> results.add(row(each)));
        if (!isRestoring) { // those of earlier were told when they came first
            made.failures().forEach(each -> results.add(row(each)));
        }
    }

    private byte[] entry(int store, byte[] stamped) {
        return stamped == null || !isPlain(store) ? stamped : Entry.ofStamped(stamped).bytes();
    }

    private boolean isPlain(int store) {
        return LaidOut.isPlain(task.plan.stores().get(store).layout());
    }

    /** What processors read. */
    private final class Stores implements Processing.Stores {
        @Override
        public byte[] get(int store, byte[] key) {
            int number = spec.stores.get(store);
            return number <= GLOBAL ? global(number).get(key) : stamped(number, task.state.get(number, key));
        }

        @Override
        public List<byte[]> range(int store, byte[] from, byte[] end, boolean isReverse, int limit) {
            int number = spec.stores.get(store);
            if (number <= GLOBAL) {
                return global(number).range(from, end, isReverse, limit);
            }
            try (Cursor entries = task.state.range(number, from, end, isReverse)) {
                return entries.page(limit, value -> stamped(number, value));
            }
        }

        @Override
        public long count(int store) {
            int number = spec.stores.get(store);
            return number <= GLOBAL ? global(number).count() : task.state.count(number);
        }

        private GlobalTable global(int number) {
            return task.globals.table(GLOBAL - number);
        }

        private byte[] stamped(int number, byte[] found) {
            if (found == null || !isPlain(number)) {
                return found;
            }
            Entry entry = Entry.of(found);
            return entry.result() == null ? null : entry.stamped();
        }
    }

    // --- rows that go on -------------------------------------------------------------------------------

    @Override
    public InternalRow next() {
        InternalRow found = results.poll();
        if (found == null && isTelling) {
            processing.add(new Processing.Input(Constants.TELL, null, null, 0, List.of(), null, -1, -1));
            run();
            found = results.poll();
            isTelling = found != null;
        }
        if (found != null) {
            return found instanceof Result
                    ? joined.apply(found, isRestoring ? nothingRestored : nothing)
                    : joined.apply(passedOwn, found);
        }
        if (control == null) {
            return null;
        }
        joined.apply(passedOwn, control);
        control = null;
        return joined;
    }

    /** The columns of a result; other rows are those that came in. */
    private static final class Result extends GenericInternalRow {
        private static final long serialVersionUID = 1;

        Result(Object[] values) {
            super(values);
        }
    }

    private InternalRow row(Processing.Output each) {
        return row(each.to(), each.key(), each.value(), each.at(), each.headers(), each.of(), null);
    }

    private InternalRow row(Processing.Failure each) {
        int tag = FAILED - each.processor();
        Processing.Input of = each.of();
        return of == null
                ? row(tag, null, null, streamTime, List.of(), null, each)
                : row(tag, of.key(), of.value(), of.at(), of.headers(), of, each);
    }

    private static InternalRow row(
            int tag,
            byte[] key,
            byte[] value,
            long at,
            List<Processing.Header> headers,
            Processing.Input of,
            Processing.Failure failure) {
        Object[] all = new Object[10];
        all[0] = tag;
        all[1] = key;
        all[2] = value;
        all[3] = at;
        all[4] = headers.isEmpty() ? null : new GenericArrayData(headers.stream()
                .map(each -> new GenericInternalRow(
                        new Object[] {UTF8String.fromString(each.name()), each.value()}))
                .toArray());
        if (of != null && of.topic() != null) {
            all[5] = UTF8String.fromString(of.topic());
            all[6] = of.partition();
            all[7] = of.offset();
        }
        all[8] = failure == null ? null : UTF8String.fromString(failure.exception());
        all[9] = failure == null ? null : UTF8String.fromString(failure.message());
        return new Result(all);
    }
}
