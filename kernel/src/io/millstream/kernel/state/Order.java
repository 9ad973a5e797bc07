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
 * Columns for the operator's input: the buckets and the order in which Kafka Streams would have the records, and parts
 * for which Spark has no function.
 */
public final class Order {
    private Order() {}

    /**
     * A sketch of each single value; null for null.
     *
     * @param value bigint or binary
     * @param logOfSize the logarithm of the sketch's size: 4 to 21
     */
    public static Column sketch(Column value, int logOfSize) {
        UDF1<Object, byte[]> sketch = one -> one == null ? null : Sketches.of(one, logOfSize);
        return functions.udf(sketch, DataTypes.BinaryType).apply(value);
    }

    /**
     * The bucket of a key.
     *
     * @param key serialized
     * @param names the name of each partition's bucket
     */
    public static Column bucket(Column key, List<Integer> names) {
        int[] called = names.stream().mapToInt(Integer::intValue).toArray();
        UDF1<byte[], Integer> bucket = bytes -> bytes == null ? null : called[Partitions.of(bytes, called.length)];
        return functions.udf(bucket, DataTypes.IntegerType).apply(key);
    }

    /**
     * The largest value so far in a bucket, among the rows of a Spark task. Ordered by it, the rows of a task keep
     * their order, and those of several tasks are mixed by their times.
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
