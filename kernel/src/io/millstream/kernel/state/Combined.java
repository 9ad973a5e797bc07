package io.millstream.kernel.state;

import io.millstream.kernel.core.Parts;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/** Records of one key made one, in each Spark task for itself: less is shuffled, and less reaches the operator. */
public final class Combined implements MapPartitionsFunction<Row, Row> {
    private static final long serialVersionUID = 1;

    /** How many keys are in memory at a time. */
    private static final int CAPACITY = 50_000;

    private final Plan plan;
    private final int columns;

    private Combined(Plan plan, int columns) {
        this.plan = plan;
        this.columns = columns;
    }

    /**
     * The rows of aggregations for which the order of records does not matter, fewer of them.
     *
     * @param rows the number of the aggregation, int; the key, binary; the timestamp, bigint; then the parts
     * @param description as {@link Operator#of} has it
     */
    public static Dataset<Row> of(Dataset<Row> rows, String description) {
        Combined combined = new Combined(Plan.of(description, rows.schema()), rows.columns().length);
        return rows.mapPartitions(combined, Encoders.row(rows.schema()));
    }

    @Override
    public Iterator<Row> call(Iterator<Row> rows) {
        List<Parts> rules = plan.items.stream().map(Plan.Item::parts).toList();
        return new Iterator<>() {
            private Iterator<Row> made = List.<Row>of().iterator();

            @Override
            public boolean hasNext() {
                if (!made.hasNext()) {
                    made = combine(rows, rules);
                }
                return made.hasNext();
            }

            @Override
            public Row next() {
                return made.next();
            }
        };
    }

    private Iterator<Row> combine(Iterator<Row> rows, List<Parts> rules) {
        Map<Name, Sum> sums = new HashMap<>();
        while (sums.size() < CAPACITY && rows.hasNext()) {
            Row row = rows.next();
            int tag = row.getInt(0);
            long at = row.getLong(2);
            Sum sum = sums.computeIfAbsent(
                    new Name(tag, ByteBuffer.wrap((byte[]) row.get(1))),
                    name -> new Sum(at, new Object[plan.items.get(tag).names().size()]));
            sum.at = Math.max(sum.at, at);
            rules.get(tag).add(sum.parts, plan.items.get(tag).parts(row));
        }
        return sums.entrySet().stream()
                .map(each -> row(each.getKey(), each.getValue()))
                .iterator();
    }

    private Row row(Name name, Sum sum) {
        Plan.Item item = plan.items.get(name.tag);
        Object[] row = new Object[columns];
        row[0] = name.tag;
        row[1] = name.key.array();
        row[2] = sum.at;
        for (int i = 0; i < sum.parts.length; i++) {
            row[item.columns().get(i)] = Values.write(sum.parts[i], item.types().get(i));
        }
        return RowFactory.create(row);
    }

    private record Name(int tag, ByteBuffer key) {}

    private static final class Sum {
        private long at;
        private final Object[] parts;

        Sum(long at, Object[] parts) {
            this.at = at;
            this.parts = parts;
        }
    }
}
