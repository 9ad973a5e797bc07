package io.millstream.kernel.state;

import io.millstream.kernel.Partitions;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** Columns that bring records into the buckets, and the order, in which Kafka Streams would have them. */
public final class Order {
    private Order() {}

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
     * The largest of the values so far, in the rows of a Spark task: what has its order is in the task's order, and
     * several tasks' rows are mixed as their times go.
     */
    public static Column largestSoFar(Column value) {
        return functions.udf(new LargestSoFar(), DataTypes.LongType).asNondeterministic().apply(value);
    }

    private static final class LargestSoFar implements UDF1<Long, Long> {
        private static final long serialVersionUID = 1;
        private transient boolean any;
        private transient long largest;

        @Override
        public Long call(Long value) {
            if (!any || value > largest) {
                any = true;
                largest = value;
            }
            return largest;
        }
    }
}
