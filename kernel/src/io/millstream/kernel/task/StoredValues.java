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

/** The values of an operator's stores, in bytes, as Spark's expressions compute them from its rows; and back. */
final class StoredValues {
    private final UnsafeProjection[] projections;

    /**
     * @param stored for each item the expression of a value; and then for each, of a struct with its parts, from a row
     *     with the key and, as its headers, the value
     * @param columns the columns of the operator's rows
     */
    StoredValues(Seq<Expression> stored, Seq<Attribute> columns) {
        List<Expression> all = CollectionConverters.asJava(stored);
        projections = new UnsafeProjection[all.size()];
        for (int i = 0; i < projections.length; i++) {
            Expression one = all.get(i);
            if (one.foldable()) {
                continue; // there is nothing to compute
            }
            projections[i] = UnsafeProjection$.MODULE$.create(OperatorNode.seq(List.of(one)), columns);
            projections[i].initialize(0);
        }
    }

    /** The value for an item's row; null if it has none. */
    byte[] of(int item, InternalRow row) {
        UnsafeRow value = computed(item, row);
        return value == null ? null : value.getBinary(0);
    }

    /**
     * The parts that make such a value; null if it does not say them.
     *
     * @param count how many there are
     */
    InternalRow parts(int item, InternalRow row, int count) {
        UnsafeRow parts = computed(projections.length / 2 + item, row);
        return parts == null ? null : parts.getStruct(0, count);
    }

    private UnsafeRow computed(int place, InternalRow row) {
        if (place >= projections.length || projections[place] == null) {
            return null;
        }
        UnsafeRow made = projections[place].apply(row);
        return made.isNullAt(0) ? null : made;
    }
}
