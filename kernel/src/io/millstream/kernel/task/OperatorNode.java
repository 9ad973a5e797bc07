package io.millstream.kernel.task;

import io.millstream.kernel.state.Plan;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A stateful operator of a task, in a logical plan of Spark.
 *
 * <p>Its rows are its results, with columns of its own, and the rows that come in, with `tag` -1. So whatever else a
 * record goes to finds it behind the operator as well.
 */
@SuppressWarnings("super")
public final class OperatorNode extends LogicalPlan {
    /** The columns before the parts. */
    static final StructType OWN = new StructType()
            .add("tag", DataTypes.IntegerType, false)
            .add("kind", DataTypes.IntegerType)
            .add("result_key", DataTypes.BinaryType)
            .add("start", DataTypes.LongType)
            .add("end", DataTypes.LongType)
            .add("at", DataTypes.LongType)
            .add("time", DataTypes.LongType)
            .add("result_headers", DataTypes.BinaryType);

    private final Operation.Spec spec;
    private final Seq<Attribute> own;
    private final LogicalPlan child;

    public OperatorNode(Operation.Spec spec, Seq<Attribute> own, LogicalPlan child) {
        this.spec = spec;
        this.own = own;
        this.child = child;
    }

    /**
     * The rows of an operator.
     *
     * @param rows `control` int first; and the columns that the description names
     * @param description as for {@link Operation.Spec#of}
     */
    @SuppressWarnings("resource") // the session stays open
    public static Dataset<Row> of(Dataset<Row> rows, String description) {
        org.apache.spark.sql.classic.Dataset<Row> given = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        OperatorStrategy.install(given.sparkSession());
        Operation.Spec spec = Operation.Spec.of(description, rows.schema());
        List<Attribute> own = new ArrayList<>();
        for (var field : OWN.fields()) {
            own.add(attribute(field.name(), field.dataType(), field.nullable()));
        }
        for (Plan.Item item : spec.plan().items) {
            for (String prefix : item.prefixes()) {
                for (int i = 0; i < item.names().size(); i++) {
                    own.add(attribute(prefix + item.names().get(i), item.types().get(i), true));
                }
            }
        }
        LogicalPlan plan = given.queryExecution().analyzed();
        OperatorNode node = new OperatorNode(spec, seq(own), plan);
        return org.apache.spark.sql.classic.Dataset.ofRows(given.sparkSession(), node);
    }

    private static Attribute attribute(String name, DataType type, boolean isNullable) {
        return new AttributeReference(
                name, type, isNullable, Metadata.empty(), NamedExpression$.MODULE$.newExprId(), seq(List.of()));
    }

    static <T> Seq<T> seq(List<T> all) {
        return scala.collection.immutable.List$.MODULE$.from(CollectionConverters.asScala(all));
    }

    @SuppressWarnings({"unchecked", "rawtypes"}) // a sequence of attributes is one of expressions
    static AttributeSet setOf(Seq<Attribute> attributes) {
        return AttributeSet$.MODULE$.apply((scala.collection.Iterable) attributes);
    }

    Operation.Spec spec() {
        return spec;
    }

    Seq<Attribute> own() {
        return own;
    }

    LogicalPlan child() {
        return child;
    }

    @Override
    public Seq<Attribute> output() {
        List<Attribute> all = new ArrayList<>(CollectionConverters.asJava(own));
        CollectionConverters.asJava(child.output()).forEach(each -> all.add(each));
        return seq(all);
    }

    /** All columns that come in are needed: the others have been left out before. */
    @Override
    public AttributeSet references() {
        return child.outputSet();
    }

    @Override
    public AttributeSet producedAttributes() {
        return OperatorNode.setOf(own);
    }

    @Override
    public Seq<LogicalPlan> children() {
        return seq(List.of(child));
    }

    @Override
    public LogicalPlan withNewChildrenInternal(IndexedSeq<LogicalPlan> children) {
        return new OperatorNode(spec, own, CollectionConverters.asJava(children).get(0));
    }

    @Override
    public boolean isStreaming() {
        return child.isStreaming();
    }

    @Override
    public int productArity() {
        return 3;
    }

    @Override
    public Object productElement(int place) {
        return switch (place) {
            case 0 -> spec;
            case 1 -> own;
            default -> child;
        };
    }

    @Override
    public boolean canEqual(Object other) {
        return other instanceof OperatorNode;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof OperatorNode node
                && node.spec.equals(spec)
                && node.own.equals(own)
                && node.child.equals(child);
    }

    @Override
    public int hashCode() {
        return 31 * spec.hashCode() + child.hashCode();
    }
}
