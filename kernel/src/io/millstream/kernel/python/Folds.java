package io.millstream.kernel.python;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Folds in Python: what a group has, and its records, go to a worker, and what it has then comes back.
 *
 * Groups are spread over buckets, and the records of a bucket come group by group, each in its order. So a bucket
 * goes to Python in few requests, one of which is in memory at a time, and the results of a bucket. What a group has
 * is kept here, in Spark's state; Python keeps nothing.
 */
public final class Folds {
    private static final StructType RESULT = new StructType()
            .add("group", DataTypes.BinaryType)
            .add("aggregate", DataTypes.BinaryType)
            .add("timestamp", DataTypes.LongType);

    private Folds() {
    }

    /**
     * One row for each group that has records: what it has now, NULL for nothing, and its largest timestamp.
     *
     * @param rows bucket int, place bigint, group binary, value binary, timestamp bigint; sorted within partitions by
     *     bucket, place and the order of records. A place is a hash of the group: to compare it takes Spark a
     *     tenth of what bytes take.
     */
    public static Dataset<Row> fold(Dataset<Row> rows, Program program) {
        return rows.groupBy("bucket")
                .as(Encoders.INT(), Encoders.row(rows.schema()))
                .transformWithState(
                        new Processor(program), TimeMode.None(), OutputMode.Update(), Encoders.row(RESULT));
    }

    private static final class Processor extends StatefulProcessor<Integer, Row, Row> {
        private static final long serialVersionUID = 1;
        private static final int MOST_RECORDS = 1_000;
        private static final int MOST_BYTES = 1 << 20;

        private final Program program;
        private transient MapState<byte[], byte[]> store;
        private transient Worker worker;

        Processor(Program program) {
            this.program = program;
        }

        @Override
        public void init(OutputMode outputMode, TimeMode timeMode) {
            store = getHandle().getMapState("aggregates", Encoders.BINARY(), Encoders.BINARY(), TTLConfig.NONE());
        }

        @Override
        public scala.collection.Iterator<Row> handleInputRows(
                Integer bucket, scala.collection.Iterator<Row> rows, TimerValues timers) {
            // Not lazily: Spark knows whose state is asked for during this call only.
            List<Row> results = new ArrayList<>();
            Chunk chunk = new Chunk();
            while (rows.hasNext()) {
                Row row = rows.next();
                long place = row.getLong(1);
                byte[] group = row.getAs(2);
                if (!chunk.isLast(group)) {
                    if (chunk.hasLast(place)) {
                        finish(chunk, results); // the one that was the last may come again
                    }
                    chunk.open(place, group, store.getValue(group));
                }
                chunk.add(row.getAs(3), row.getLong(4));
                if (chunk.isFull()) {
                    fold(chunk);
                    chunk.finish(chunk.groups.size() - 1, store, results);
                }
            }
            finish(chunk, results);
            return CollectionConverters.asScala(results.iterator());
        }

        private void finish(Chunk chunk, List<Row> results) {
            if (!chunk.values.isEmpty()) {
                fold(chunk);
            }
            chunk.finish(chunk.groups.size(), store, results);
        }

        private void fold(Chunk chunk) {
            try {
                if (worker == null) {
                    worker = Worker.take(program);
                }
                chunk.take(worker.call(chunk.request()));
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** Groups with their records, as many as go to Python at once. */
        private static final class Chunk {
            private final List<byte[]> groups = new ArrayList<>();
            private final List<byte[]> aggregates = new ArrayList<>();
            private final List<Boolean> known = new ArrayList<>();
            private final List<long[]> times = new ArrayList<>();
            private final List<int[]> counts = new ArrayList<>();
            private final List<byte[]> values = new ArrayList<>();
            private int bytes;
            private long lastPlace;

            boolean isLast(byte[] group) {
                return !groups.isEmpty() && Arrays.equals(group, groups.get(groups.size() - 1));
            }

            /** Whether the group that came last has that place. Where their order is lost, so is that of records. */
            boolean hasLast(long place) {
                if (!groups.isEmpty() && place < lastPlace) {
                    throw new IllegalStateException("records do not come in the order of their places");
                }
                return !groups.isEmpty() && place == lastPlace;
            }

            void open(long place, byte[] group, byte[] kept) {
                lastPlace = place;
                groups.add(group);
                counts.add(new int[1]);
                known.add(kept != null);
                times.add(new long[] {kept == null ? 0 : ByteBuffer.wrap(kept).getLong()});
                aggregates.add(kept == null ? null : Arrays.copyOfRange(kept, 8, kept.length));
                bytes += group.length + (kept == null ? 0 : kept.length);
            }

            void add(byte[] value, long timestamp) {
                values.add(value);
                bytes += value == null ? 0 : value.length;
                int last = groups.size() - 1;
                counts.get(last)[0]++;
                times.get(last)[0] = Math.max(times.get(last)[0], timestamp);
            }

            boolean isFull() {
                return values.size() >= MOST_RECORDS || bytes >= MOST_BYTES;
            }

            Message request() {
                int[] each = new int[counts.size()];
                for (int i = 0; i < each.length; i++) {
                    each[i] = counts.get(i)[0];
                }
                return new Message(Message.REQUEST)
                        .add(groups.toArray(new byte[0][]))
                        .add(aggregates.toArray(new byte[0][]))
                        .add(each)
                        .add(values.toArray(new byte[0][]));
            }

            void take(Message answer) throws IOException {
                byte[][] now = answer.bytes(0, groups.size());
                for (int i = 0; i < now.length; i++) {
                    aggregates.set(i, now[i]);
                    counts.get(i)[0] = 0;
                }
                values.clear();
                bytes = 0;
            }

            /** Keep and tell what these groups have. The last one may have more records to come. */
            void finish(int count, MapState<byte[], byte[]> store, List<Row> results) {
                for (int i = 0; i < count; i++) {
                    byte[] aggregate = aggregates.get(i);
                    long timestamp = times.get(i)[0];
                    if (aggregate != null) {
                        byte[] kept = new byte[8 + aggregate.length];
                        ByteBuffer.wrap(kept).putLong(timestamp).put(aggregate);
                        store.updateValue(groups.get(i), kept);
                    } else if (known.get(i)) {
                        store.removeKey(groups.get(i));
                    }
                    results.add(RowFactory.create(groups.get(i), aggregate, timestamp));
                }
                for (List<?> list : List.of(groups, aggregates, known, times, counts)) {
                    list.subList(0, count).clear();
                }
            }
        }
    }
}
