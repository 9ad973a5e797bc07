package io.millstream.kernel.task;

import io.millstream.kernel.core.Sketches;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;

/** A part of an aggregate for which Spark has no function. */
public final class Sketch {
    private Sketch() {}

    /**
     * A sketch of each single value; null for null.
     *
     * @param value bigint or binary
     * @param logOfSize the logarithm of the sketch's size: 4 to 21
     */
    public static Column of(Column value, int logOfSize) {
        UDF1<Object, byte[]> sketch = one -> one == null ? null : Sketches.of(one, logOfSize);
        return functions.udf(sketch, DataTypes.BinaryType).apply(value);
    }
}
