package io.millstream.kernel.state;

import io.millstream.kernel.core.Sums;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** Combines the records of each key within a Spark task, so that less is shuffled and reaches the operator. */
public final class Combined implements MapPartitionsFunction<Row, Row> {
    private static final long serialVersionUID = 2;

    private static final int TAG = 0;
    private static final int KEY = 1;
    private static final int AT = 2;
    private static final int HEADERS = 3;

    /** How many keys of an aggregation are in memory at a time. */
    private static final int CAPACITY = 50_000;

    private final Plan plan;
    private final int columns;
    private final int capacity;

    Combined(Plan plan, int columns, int capacity) {
        this.plan = plan;
        this.columns = columns;
        this.capacity = capacity;
    }

    /**
     * Fewer rows with the same results, for aggregations for which the order of records does not matter.
     *
     * <p>Which record is a key's last one does matter for the headers. So these are preceded by 8 bytes: of the rows
     * of a key, the last one is that with the greatest. If there are no headers, there is nothing.
     *
     * @param rows the number of the aggregation, int; the key, binary; the timestamp, bigint; the headers, binary; then
     *     the parts
     * @param description as for {@link Operator#of}
     */
    public static Dataset<Row> of(Dataset<Row> rows, String description) {
        Combined combined = new Combined(Plan.of(description, rows.schema()), rows.columns().length, CAPACITY);
        return rows.mapPartitions(combined, Encoders.row(rows.schema()));
    }

    @Override
    public Iterator<Row> call(Iterator<Row> rows) {
        return new Task(rows);
    }

    private final class Task implements Iterator<Row> {
        private final Iterator<Row> rows;
        private final List<PartsOfRows> items =
                plan.items.stream().map(PartsOfRows::new).toList();
        private final Sums[] sums = plan.items.stream()
                .map(item -> new Sums(item.parts(), capacity))
                .toArray(Sums[]::new);
        /** The next sum: its aggregation, and its number there, which is 0 while the sums are computed. */
        private int tag;

        private int number;
        /** How often the sums have been computed. */
        private int round;

        Task(Iterator<Row> rows) {
            this.rows = rows;
        }

        @Override
        public boolean hasNext() {
            if (!isThere()) {
                fill();
            }
            return isThere();
        }

        /** Advances to an aggregation with sums, if there is any. */
        private boolean isThere() {
            while (tag < sums.length && number == sums[tag].size()) {
                tag++;
                number = 0;
            }
            return tag < sums.length;
        }

        private void fill() {
            for (Sums each : sums) {
                each.clear();
            }
            tag = 0;
            round++;
            boolean isFull = false;
            while (!isFull && rows.hasNext()) {
                Row row = rows.next();
                int of = row.getInt(TAG);
                byte[] headers = (byte[]) row.get(HEADERS);
                sums[of].add((byte[]) row.get(KEY), row.getLong(AT), items.get(of).read(row), headers);
                isFull = sums[of].isFull();
            }
        }

        @Override
        public Row next() {
            Object[] row = new Object[columns];
            row[TAG] = tag;
            row[KEY] = sums[tag].key(number);
            row[AT] = sums[tag].at(number);
            if (sums[tag].hasHeaders()) {
                row[HEADERS] = placed(sums[tag].headers(number));
            }
            items.get(tag).write(sums[tag].parts(number), row);
            number++;
            return RowFactory.create(row);
        }

        /** A task has a key once in each round. */
        private byte[] placed(byte[] headers) {
            ByteBuffer placed = ByteBuffer.allocate(2 * Integer.BYTES + (headers == null ? 0 : headers.length))
                    .putInt(TaskContext.getPartitionId())
                    .putInt(round);
            return (headers == null ? placed : placed.put(headers)).array();
        }
    }
}
