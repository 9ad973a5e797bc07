package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.Iterator;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;
import scala.reflect.ClassTag$;
import scala.runtime.AbstractFunction1;

/** A stateful operator of a task, as Spark runs it: rows in, rows out, in one stage. */
@SuppressWarnings("super")
public final class OperatorExec extends SparkPlan {
    private static final long serialVersionUID = 1;
    private static final ClassTag<InternalRow> ROWS = ClassTag$.MODULE$.apply(InternalRow.class);

    private final Operator.Spec spec;
    private final Seq<Attribute> own;
    /** For each item, the bytes of a value of its store, from a row of its own. */
    private final Seq<Expression> stored;

    private final SparkPlan child;

    public OperatorExec(Operator.Spec spec, Seq<Attribute> own, Seq<Expression> stored, SparkPlan child) {
        this.spec = spec;
        this.own = own;
        this.stored = stored;
        this.child = child;
    }

    @Override
    public RDD<InternalRow> doExecute() {
        return child.execute().mapPartitions(new Running(spec, stored, output()), true, ROWS);
    }

    private static final class Running extends AbstractFunction1<Iterator<InternalRow>, Iterator<InternalRow>>
            implements Serializable {
        private static final long serialVersionUID = 1;
        private final Operator.Spec spec;
        private final Seq<Expression> stored;
        private final Seq<Attribute> columns;

        Running(Operator.Spec spec, Seq<Expression> stored, Seq<Attribute> columns) {
            this.spec = spec;
            this.stored = stored;
            this.columns = columns;
        }

        @Override
        public Iterator<InternalRow> apply(Iterator<InternalRow> rows) {
            return new OperatorRows(spec, new StoredValues(stored, columns), rows);
        }
    }

    @Override
    public Seq<Attribute> output() {
        return OperatorNode.output(spec, own, child.output());
    }

    @Override
    public AttributeSet references() {
        return child.outputSet();
    }

    @Override
    public AttributeSet producedAttributes() {
        return OperatorNode.setOf(own);
    }

    @Override
    public Seq<SparkPlan> children() {
        return OperatorNode.seq(List.of(child));
    }

    @Override
    public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
        return new OperatorExec(spec, own, stored, CollectionConverters.asJava(children).get(0));
    }

    @Override
    public int productArity() {
        return 4;
    }

    @Override
    public Object productElement(int place) {
        return switch (place) {
            case 0 -> spec;
            case 1 -> own;
            case 2 -> stored;
            default -> child;
        };
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof OperatorExec;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof OperatorExec exec
                && exec.spec.equals(spec)
                && exec.own.equals(own)
                && exec.stored.equals(stored)
                && exec.child.equals(child);
    }

    @Override
    public int hashCode() {
        return 31 * spec.hashCode() + child.hashCode();
    }
}
