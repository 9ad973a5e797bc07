package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The columns of a frame, without rows and without its plan. Spark analyzes all of a plan anew with each column that is
 * added to it; an outline is told what a column is just as soon when it is the thousandth.
 */
public final class Outline {
    private Outline() {}

    /** A frame with the same columns, and nothing else. */
    @SuppressWarnings("resource") // the session stays open
    public static Dataset<Row> of(Dataset<Row> frame) {
        var given = (org.apache.spark.sql.classic.Dataset<Row>) frame;
        LogicalPlan plan = LocalRelation$.MODULE$.apply(given.queryExecution().analyzed().output());
        return org.apache.spark.sql.classic.Dataset.ofRows(given.sparkSession(), plan);
    }

    /** The names of the columns that the last column of an outline is computed from. */
    public static List<String> references(Dataset<Row> outline) {
        LogicalPlan plan = ((org.apache.spark.sql.classic.Dataset<Row>) outline).queryExecution().analyzed();
        List<String> names = new ArrayList<>();
        var columns = CollectionConverters.asJava(((Project) plan).projectList());
        Expression last = (Expression) columns.get(columns.size() - 1);
        CollectionConverters.asJava(last.references().toSeq()).forEach(each -> names.add(each.name()));
        return names;
    }
}
