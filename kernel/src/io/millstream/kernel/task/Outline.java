package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.List;
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

    /** The columns of a frame. */
    public static Dataset<Row> of(Dataset<Row> frame) {
        return of(frame, analyzed(frame).output());
    }

    /** The columns of an outline, and those that were selected from it. */
    public static Dataset<Row> together(Dataset<Row> outline, Dataset<Row> selected) {
        List<Attribute> columns = new ArrayList<>(CollectionConverters.asJava(analyzed(outline).output()));
        columns.addAll(CollectionConverters.asJava(analyzed(selected).output()));
        return of(outline, OperatorNode.seq(columns));
    }

    @SuppressWarnings("resource") // the session stays open
    private static Dataset<Row> of(Dataset<Row> frame, Seq<Attribute> columns) {
        var session = ((org.apache.spark.sql.classic.Dataset<Row>) frame).sparkSession();
        return org.apache.spark.sql.classic.Dataset.ofRows(session, LocalRelation$.MODULE$.apply(columns));
    }

    /** The names of the columns of an outline that those selected from it are computed from. */
    public static List<String> references(Dataset<Row> selected) {
        List<String> names = new ArrayList<>();
        CollectionConverters.asJava(analyzed(selected).references().toSeq()).forEach(each -> names.add(each.name()));
        return names;
    }

    private static LogicalPlan analyzed(Dataset<Row> frame) {
        return ((org.apache.spark.sql.classic.Dataset<Row>) frame).queryExecution().analyzed();
    }
}
