package io.millstream.kernel.plan;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Encoders of state variables, for all tasks of a JVM.
 *
 * <p>Each task has variables of its own, and Spark has its analyzer resolve the encoder of each: a quarter of the
 * processor's time that a small task took.
 */
public final class Encodings {
    private static final Encoder<byte[]> BINARY = boundOnce(Encoders.BINARY());
    private static final Map<StructType, Encoder<Row>> ROWS = new ConcurrentHashMap<>();
    /** So many are kept: an application has few, and the driver of many tests has many. */
    private static final int MOST = 500;

    private Encodings() {}

    /** Of bytes. */
    public static Encoder<byte[]> binary() {
        return BINARY;
    }

    /** Of rows with this schema. */
    public static Encoder<Row> row(StructType schema) {
        if (ROWS.size() > MOST) {
            ROWS.clear();
        }
        return ROWS.computeIfAbsent(schema, type -> boundOnce(Encoders.row(type)));
    }

    private static <T> Encoder<T> boundOnce(Encoder<T> encoder) {
        try {
            return new BoundOnce<>(encoder);
        } catch (@SuppressWarnings("unused") LinkageError | ClassCastException absent) {
            // A Spark whose encoders are made otherwise.
            return encoder;
        }
    }

    /** An encoder that is bound once to rows of its own schema. */
    private static final class BoundOnce<T> extends ExpressionEncoder<T> {
        private static final long serialVersionUID = 1L;

        private transient volatile ExpressionEncoder<T> bound;

        BoundOnce(Encoder<T> encoder) {
            this(ExpressionEncoder.apply((AgnosticEncoder<T>) encoder));
        }

        private BoundOnce(ExpressionEncoder<T> of) {
            super(of.encoder(), of.objSerializer(), of.objDeserializer());
        }

        @Override
        public ExpressionEncoder<T> resolveAndBind(Seq<Attribute> attributes, Analyzer analyzer) {
            if (!isOwn(attributes)) {
                return super.resolveAndBind(attributes, analyzer);
            }
            // What comes of it has places instead of names, so that it fits all rows of this schema.
            if (bound == null) {
                bound = super.resolveAndBind(attributes, analyzer);
            }
            return bound;
        }

        private boolean isOwn(Seq<Attribute> attributes) {
            Iterator<Attribute> given = attributes.iterator();
            for (StructField field : schema().fields()) {
                if (!given.hasNext() || !given.next().dataType().equals(field.dataType())) {
                    return false;
                }
            }
            return !given.hasNext();
        }
    }
}
