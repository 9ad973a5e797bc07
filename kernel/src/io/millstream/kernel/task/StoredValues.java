package io.millstream.kernel.task;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The values of an operator's stores, in bytes, as Spark's expressions compute them from its rows. */
final class StoredValues {
    private final UnsafeProjection[] projections;

    /**
     * @param stored for each item the expression
     * @param columns the columns of the operator's rows
     */
    StoredValues(Seq<Expression> stored, Seq<Attribute> columns) {
        List<Expression> all = CollectionConverters.asJava(stored);
        projections = new UnsafeProjection[all.size()];
        for (int i = 0; i < projections.length; i++) {
            Expression one = all.get(i);
            projections[i] = UnsafeProjection$.MODULE$.create(OperatorNode.seq(List.of(one)), columns);
            projections[i].initialize(0);
        }
    }

    /** The value for an item's row; null if it has none. */
    byte[] of(int item, InternalRow row) {
        if (item >= projections.length) {
            return null;
        }
        UnsafeRow value = projections[item].apply(row);
        return value.isNullAt(0) ? null : value.getBinary(0);
    }
}
