package io.millstream.kernel.state;

import io.millstream.kernel.Partitions;
import io.millstream.kernel.core.Sketches;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.api.java.UDF2;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/**
 * Columns of what comes into the operator: the buckets, and the order, in which Kafka Streams would have records, and
 * parts that Spark has no function for.
 */
public final class Order {
    private Order() {}

    /**
     * A sketch of each value alone; null of null.
     *
     * @param value bigint or binary
     * @param logOfSize of the sketch: 4 to 21
     */
    public static Column sketch(Column value, int logOfSize) {
        UDF1<Object, byte[]> sketch = one -> one == null ? null : Sketches.of(one, logOfSize);
        return functions.udf(sketch, DataTypes.BinaryType).apply(value);
    }

    /**
     * The bucket of a key.
     *
     * @param key serialized
     * @param names what each partition's bucket is called
     */
    public static Column bucket(Column key, List<Integer> names) {
        int[] called = names.stream().mapToInt(Integer::intValue).toArray();
        UDF1<byte[], Integer> bucket = bytes -> bytes == null ? null : called[Partitions.of(bytes, called.length)];
        return functions.udf(bucket, DataTypes.IntegerType).apply(key);
    }

    /**
     * The largest of the values so far, of those of one bucket in the rows of a Spark task: what has its order is in
     * the task's order, and several tasks' rows are mixed as their times go.
     */
    public static Column largestSoFar(Column bucket, Column value) {
        return functions.udf(new LargestSoFar(), DataTypes.LongType)
                .asNondeterministic()
                .apply(bucket, value);
    }

    private static final class LargestSoFar implements UDF2<Integer, Long, Long> {
        private static final long serialVersionUID = 2;
        private transient HashMap<Integer, Long> largest;

        @Override
        public Long call(Integer bucket, Long value) {
            if (largest == null) {
                largest = new HashMap<>();
            }
            return largest.merge(bucket, value, Math::max);
        }
    }
}
