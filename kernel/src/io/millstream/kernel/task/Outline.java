package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The columns of a frame, without rows and without its plan. Spark analyzes all of a plan anew with each column that is
 * added to it; an outline is told what a column is just as soon when it is the thousandth.
 */
public final class Outline {
    private Outline() {}

    /**
     * An outline with a further column.
     *
     * @param column what was added: the given column, or {@link OwnRows#of} it
     * @param references the names of the columns that it is computed from, a line each
     */
    public record Added(Dataset<Row> outline, Column column, String references) {}

    /** The columns of a frame. */
    public static Dataset<Row> of(Dataset<Row> frame) {
        return of(frame, analyzed(frame).output());
    }

    /** @param control the name of the column that is 0 in records */
    @SuppressWarnings("resource") // the session stays open
    public static Added add(Dataset<Row> outline, String name, Column column, String control) {
        LogicalPlan selected = analyzed(outline.select(column.alias(name)));
        Column own = OwnRows.of(selected, control);
        if (own != null) {
            selected = analyzed(outline.select(own.alias(name)));
        }
        List<Attribute> columns = new ArrayList<>(CollectionConverters.asJava(analyzed(outline).output()));
        columns.addAll(CollectionConverters.asJava(selected.output()));
        String references = CollectionConverters.asJava(selected.references().toSeq()).stream()
                .map(Attribute::name)
                .collect(Collectors.joining("\n"));
        return new Added(of(outline, OperatorNode.seq(columns)), own == null ? column : own, references);
    }

    /** The type of a column, as Spark's JSON. */
    public static String type(Dataset<Row> outline, String name) {
        return outline.schema().apply(name).dataType().json();
    }

    @SuppressWarnings("resource") // the session stays open
    private static Dataset<Row> of(Dataset<Row> frame, Seq<Attribute> columns) {
        var session = ((org.apache.spark.sql.classic.Dataset<Row>) frame).sparkSession();
        return org.apache.spark.sql.classic.Dataset.ofRows(session, LocalRelation$.MODULE$.apply(columns));
    }

    private static LogicalPlan analyzed(Dataset<Row> frame) {
        return ((org.apache.spark.sql.classic.Dataset<Row>) frame).queryExecution().analyzed();
    }
}
