package io.millstream.kernel.task;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.millstream.kernel.python.Program;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Alias;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.AttributeSet$;
import org.apache.spark.sql.catalyst.expressions.NamedExpression$;
import org.apache.spark.sql.catalyst.optimizer.CollapseProject$;
import org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.plans.logical.SupportsNonDeterministicExpression;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
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
public final class OperatorNode extends LogicalPlan implements SupportsNonDeterministicExpression {
    private final Operator.Spec spec;
    private final Seq<Attribute> own;
    /** For each item, the bytes of a value of its store, from a row of its own. */
    private final Seq<Expression> stored;

    private final LogicalPlan child;

    public OperatorNode(Operator.Spec spec, Seq<Attribute> own, Seq<Expression> stored, LogicalPlan child) {
        this.spec = spec;
        this.own = own;
        this.stored = stored;
        this.child = child;
    }

    /**
     * The rows of an operator.
     *
     * @param rows `control` int first; and the columns that the description names
     * @param description as for {@link Operation.Spec#of} or, if it has `inputs`, {@link Processors.Spec#of}
     * @param program computes the parts that are folds, or runs processors; null if there is none
     */
    @SuppressWarnings("resource") // the session stays open
    public static Dataset<Row> of(Dataset<Row> rows, String description, Program program) {
        org.apache.spark.sql.classic.Dataset<Row> given = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        OperatorStrategy.install(given.sparkSession());
        Operator.Spec spec = spec(description, rows.schema(), program);
        List<Attribute> own = new ArrayList<>();
        for (StructField field : spec.own().fields()) {
            own.add(attribute(field.name(), field.dataType(), field.nullable()));
        }
        LogicalPlan plan = given.queryExecution().analyzed();
        OperatorNode node = new OperatorNode(spec, seq(own), seq(List.of()), plan);
        return org.apache.spark.sql.classic.Dataset.ofRows(given.sparkSession(), node);
    }

    private static Operator.Spec spec(String description, StructType rows, Program program) {
        try {
            JsonNode node = new ObjectMapper().readTree(description);
            return node.has("inputs")
                    ? Processors.Spec.of(node, rows, program)
                    : Operation.Spec.of(node, rows, program);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the description of an operator is not JSON", error);
        }
    }

    /** The place of the column that a description names; negative if it names none. */
    static int place(JsonNode node, String name, StructType rows) {
        return node.has(name) ? rows.fieldIndex(node.get(name).asText()) : -1;
    }

    /**
     * The same rows, by operators that know how the values of their stores are written.
     *
     * @param values for each operator its rows, with a column of bytes for each of its items
     */
    @SuppressWarnings("resource") // the session stays open
    public static Dataset<Row> stored(Dataset<Row> rows, List<Dataset<Row>> values) {
        Map<Integer, Seq<Expression>> expressions = new HashMap<>();
        for (Dataset<Row> each : values) {
            LogicalPlan plan = analyzed(each);
            plan = ReplaceExpressions$.MODULE$.apply(CollapseProject$.MODULE$.apply(plan, true));
            if (!(plan instanceof Project project && project.child() instanceof OperatorNode node)) {
                throw new IllegalStateException("the values of stores are not computed from an operator: " + plan);
            }
            List<Expression> found = new ArrayList<>();
            CollectionConverters.asJava(project.projectList())
                    .forEach(named -> found.add(named instanceof Alias alias ? alias.child() : (Expression) named));
            expressions.put(node.spec.number(), seq(found));
        }
        var session = ((org.apache.spark.sql.classic.Dataset<Row>) rows).sparkSession();
        return org.apache.spark.sql.classic.Dataset.ofRows(session, given(analyzed(rows), expressions));
    }

    private static LogicalPlan analyzed(Dataset<Row> rows) {
        return ((org.apache.spark.sql.classic.Dataset<Row>) rows).queryExecution().analyzed();
    }

    private static LogicalPlan given(LogicalPlan plan, Map<Integer, Seq<Expression>> expressions) {
        List<LogicalPlan> children = new ArrayList<>();
        CollectionConverters.asJava(plan.children()).forEach(child -> children.add(given(child, expressions)));
        if (plan instanceof OperatorNode node) {
            Seq<Expression> stored = expressions.getOrDefault(node.spec.number(), node.stored);
            return new OperatorNode(node.spec, node.own, stored, children.get(0));
        }
        return children.isEmpty() ? plan : plan.withNewChildren(seq(children));
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

    Operator.Spec spec() {
        return spec;
    }

    Seq<Expression> stored() {
        return stored;
    }

    Seq<Attribute> own() {
        return own;
    }

    LogicalPlan child() {
        return child;
    }

    @Override
    public Seq<Attribute> output() {
        return output(spec, own, child.output());
    }

    /** The columns of the results, and those of the rows that pass. */
    static Seq<Attribute> output(Operator.Spec spec, Seq<Attribute> own, Seq<Attribute> in) {
        List<Attribute> all = new ArrayList<>(CollectionConverters.asJava(own));
        all.addAll(CollectionConverters.asJava(in).subList(0, spec.passes()));
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
        return new OperatorNode(spec, own, stored, CollectionConverters.asJava(children).get(0));
    }

    /** Those of stores, which may raise. */
    @Override
    public boolean allowNonDeterministicExpression() {
        return true;
    }

    @Override
    public boolean isStreaming() {
        return child.isStreaming();
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
        return other instanceof OperatorNode;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof OperatorNode node
                && node.spec.equals(spec)
                && node.own.equals(own)
                && node.stored.equals(stored)
                && node.child.equals(child);
    }

    @Override
    public int hashCode() {
        return 31 * spec.hashCode() + child.hashCode();
    }
}
