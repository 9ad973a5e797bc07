package io.millstream.kernel.state;

import io.millstream.kernel.plan.Encodings;
import io.millstream.kernel.python.Processing;
import io.millstream.kernel.python.Program;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.QueryInfo;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Processors written in Python, as one stateful Spark operator, which has their stores.
 *
 * <p>Spark's grouping key represents a Kafka Streams task, and the rows of a call are those that it gets, in its order.
 */
public final class Processors extends StatefulProcessor<Integer, Row, Row> {
    private static final long serialVersionUID = 1;

    private static final StructType STORE =
            new StructType().add("top", DataTypes.IntegerType).add("count", DataTypes.LongType);
    private static final StructType TASK = new StructType()
            .add("batch", DataTypes.LongType)
            .add("stream_time", DataTypes.LongType)
            .add("stores", DataTypes.createArrayType(STORE));

    private final int storeCount;
    private final int outside;
    private final Program program;
    private transient MapState<byte[], byte[]> entries;
    private transient ValueState<Row> kept;
    private transient QueryInfo query;
    private transient Processing processing;

    private Processors(int storeCount, int outside, Program program) {
        this.storeCount = storeCount;
        this.outside = outside;
        this.program = program;
    }

    /**
     * The records that processors forward, and those of their stores' changelogs.
     *
     * @param rows the bucket, an int, by which they are partitioned and sorted; the program's input that it is for,
     *     int, or -1 for the time of day; `key` and `value` binary; `at` bigint, ms; headers; `topic`, `partition`,
     *     `offset`; `task` int, the partition
     * @param stores the number of stores
     * @param outside the number of steps outside to which processors forward
     * @return `tag` int: the step outside or, after these, the store whose changelog it is; or -2 for a record for
     *     which the first processor has failed, and so on; `key`, `value`, `at`, `headers`, `topic`, `partition`,
     *     `offset` and `task` as above; and `exception` and `message` of a failure
     */
    public static Dataset<Row> of(Dataset<Row> rows, int stores, int outside, Program program) {
        StructType input = rows.schema();
        StructType output = new StructType().add("tag", DataTypes.IntegerType);
        for (int i = 2; i < input.size(); i++) {
            output = output.add(input.fields()[i].name(), input.fields()[i].dataType());
        }
        output = output.add("exception", DataTypes.StringType).add("message", DataTypes.StringType);
        return rows.groupBy(rows.columns()[0])
                .as(Encoders.INT(), Encoders.row(input))
                .transformWithState(
                        new Processors(stores, outside, program),
                        TimeMode.None(),
                        OutputMode.Update(),
                        Encoders.row(output));
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
        entries = getHandle().getMapState("entries", Encodings.binary(), Encodings.binary(), TTLConfig.NONE());
        kept = getHandle().getValueState("task", Encodings.row(TASK), TTLConfig.NONE());
        query = getHandle().getQueryInfo();
        processing = new Processing(
                program,
                query.getQueryId() + "/" + Arrays.hashCode(program.pickled()) + "/" + TaskContext.getPartitionId());
    }

    @Override
    public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
        Run run = new Run(kept.exists() ? kept.get() : null);
        while (rows.hasNext()) {
            run.add(rows.next());
        }
        run.finish();
        return CollectionConverters.asScala(run.results.iterator());
    }

    /** A task, in one micro-batch. */
    private final class Run implements Processing.Stores {
        private final List<Row> results = new ArrayList<>();
        private final Entries[] stores = new Entries[storeCount];
        private final long before;
        private long streamTime = Long.MIN_VALUE;
        private int partition;
        private Processing.Task task;

        Run(Row last) {
            before = last == null ? -1 : last.getLong(0);
            List<Row> heads = List.of();
            if (last != null) {
                streamTime = last.getLong(1);
                heads = last.getList(2);
            }
            for (int i = 0; i < storeCount; i++) {
                Row head = i < heads.size() ? heads.get(i) : RowFactory.create(0, 0L);
                stores[i] = new Entries(entries, i, head.getInt(0), head.getLong(1));
            }
        }

        void add(Row row) {
            if (task == null) {
                partition = row.getInt(9);
                task = processing.task(
                        query.getRunId().toString(), partition, query.getBatchId(), before, streamTime, this);
            }
            List<Processing.Header> headers = new ArrayList<>();
            if (!row.isNullAt(5)) {
                for (Row header : row.<Row>getList(5)) {
                    headers.add(new Processing.Header(header.getString(0), (byte[]) header.get(1)));
                }
            }
            task.add(new Processing.Input(
                    row.getInt(1),
                    (byte[]) row.get(2),
                    (byte[]) row.get(3),
                    row.getLong(4),
                    headers,
                    row.getString(6),
                    row.isNullAt(7) ? -1 : row.getInt(7),
                    row.isNullAt(8) ? -1 : row.getLong(8)));
            if (task.isFull()) {
                process();
            }
        }

        private void process() {
            if (task == null || task.isEmpty()) {
                return;
            }
            Processing.Made made = task.run();
            streamTime = made.streamTime();
            for (Processing.Put change : made.changes()) {
                stores[change.store()].put(change.key(), change.value());
            }
            for (Processing.Output each : made.outputs()) {
                results.add(row(each.to(), each.key(), each.value(), each.at(), each.headers(), each.of(), null));
            }
            for (Processing.Put each : made.logged()) {
                results.add(row(outside + each.store(), each.key(), each.value(), each.at(), List.of(), null, null));
            }
            for (Processing.Failure each : made.failures()) {
                Processing.Input of = each.of();
                int tag = -2 - each.processor();
                if (of == null) {
                    results.add(row(tag, null, null, streamTime, List.of(), null, each));
                } else {
                    results.add(row(tag, of.key(), of.value(), of.at(), of.headers(), of, each));
                }
            }
        }

        private Row row(
                int tag,
                byte[] key,
                byte[] value,
                long at,
                List<Processing.Header> headers,
                Processing.Input of,
                Processing.Failure failure) {
            List<Row> written = new ArrayList<>(headers.size());
            headers.forEach(header -> written.add(RowFactory.create(header.name(), header.value())));
            return RowFactory.create(
                    tag,
                    key,
                    value,
                    at,
                    headers.isEmpty() ? null : CollectionConverters.asScala(written),
                    of == null ? null : of.topic(),
                    of == null || of.topic() == null ? null : of.partition(),
                    of == null || of.topic() == null ? null : of.offset(),
                    partition,
                    failure == null ? null : failure.exception(),
                    failure == null ? null : failure.message());
        }

        void finish() {
            process();
            List<Row> heads = new ArrayList<>();
            for (Entries store : stores) {
                store.flush();
                heads.add(RowFactory.create(store.top(), store.count()));
            }
            kept.update(RowFactory.create(query.getBatchId(), streamTime, CollectionConverters.asScala(heads)));
        }

        @Override
        public byte[] get(int store, byte[] key) {
            return stores[store].get(key);
        }

        @Override
        public List<byte[]> range(int store, byte[] from, byte[] end, boolean isReverse, int limit) {
            return stores[store].range(from, end, isReverse, limit);
        }

        @Override
        public long count(int store) {
            return stores[store].count();
        }
    }
}
