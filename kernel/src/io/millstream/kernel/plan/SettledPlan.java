package io.millstream.kernel.plan;

import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.optimizer.BooleanSimplification$;
import org.apache.spark.sql.catalyst.optimizer.CollapseProject$;
import org.apache.spark.sql.catalyst.optimizer.ColumnPruning$;
import org.apache.spark.sql.catalyst.optimizer.CombineConcats$;
import org.apache.spark.sql.catalyst.optimizer.ConstantFolding$;
import org.apache.spark.sql.catalyst.optimizer.FoldablePropagation$;
import org.apache.spark.sql.catalyst.optimizer.NullPropagation$;
import org.apache.spark.sql.catalyst.optimizer.ObjectSerializerPruning$;
import org.apache.spark.sql.catalyst.optimizer.OptimizeIn$;
import org.apache.spark.sql.catalyst.optimizer.PushDownPredicates$;
import org.apache.spark.sql.catalyst.optimizer.PushFoldableIntoBranches$;
import org.apache.spark.sql.catalyst.optimizer.RemoveNoopOperators$;
import org.apache.spark.sql.catalyst.optimizer.RemoveRedundantAliases$;
import org.apache.spark.sql.catalyst.optimizer.SimplifyCasts$;
import org.apache.spark.sql.catalyst.optimizer.SimplifyConditionals$;
import org.apache.spark.sql.catalyst.optimizer.SpecialDatetimeValues$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreePattern$;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Optimizes the plan of a streaming query once, before the query starts.
 *
 * <p>Spark optimizes it anew in each micro-batch, from the plan that the program wrote: a projection for each
 * operator. Most of that work gives the same result each time.
 */
public final class SettledPlan {
    /**
     * Spark's own rules that only move and compute expressions, so that each source of the plan stays in it. One that
     * prunes a source whose rows a filter drops would take it from the query, and with it its place in the checkpoint.
     */
    private static final List<Rule<LogicalPlan>> RULES = List.of(
            PushDownPredicates$.MODULE$,
            ColumnPruning$.MODULE$,
            CollapseProject$.MODULE$,
            FoldablePropagation$.MODULE$,
            OptimizeIn$.MODULE$,
            ConstantFolding$.MODULE$,
            NullPropagation$.MODULE$,
            SimplifyConditionals$.MODULE$,
            BooleanSimplification$.MODULE$,
            PushFoldableIntoBranches$.MODULE$,
            SimplifyCasts$.MODULE$,
            CombineConcats$.MODULE$,
            ObjectSerializerPruning$.MODULE$,
            RemoveRedundantAliases$.MODULE$,
            RemoveNoopOperators$.MODULE$);

    private static final Logger LOG = LoggerFactory.getLogger(SettledPlan.class);

    private static final int MOST_ROUNDS = 20;

    private SettledPlan() {}

    /**
     * The same rows, by a plan that Spark has little to do with in each micro-batch.
     *
     * <p>A plan that asks for the time of day stays as it is, also by a word such as "now" that is cast: each
     * micro-batch has a time of its own.
     */
    public static Dataset<Row> of(Dataset<Row> rows) {
        try {
            return settled(rows);
        } catch (LinkageError | Exception error) {
            // A Spark with other rules; one whose analyzer refuses what came of them; or a constant that cannot be
            // computed. The query is right without, and has more to do in each micro-batch.
            LOG.info("a query starts with the plan that its program wrote", error);
            return rows;
        }
    }

    @SuppressWarnings("resource") // the session stays open
    private static Dataset<Row> settled(Dataset<Row> rows) {
        org.apache.spark.sql.classic.Dataset<Row> given = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        LogicalPlan plan = given.queryExecution().analyzed();
        if (plan.containsPattern(TreePattern$.MODULE$.CURRENT_LIKE())
                || !SpecialDatetimeValues$.MODULE$.apply(plan).fastEquals(plan)) {
            return rows;
        }
        LogicalPlan settled = settled(given.sparkSession(), plan);
        return settled == plan
                ? rows
                : org.apache.spark.sql.classic.Dataset.ofRows(given.sparkSession(), settled);
    }

    @SuppressWarnings("resource") // the session stays open
    private static LogicalPlan settled(SparkSession session, LogicalPlan plan) {
        scala.Option<SparkSession> active = SparkSession.getActiveSession();
        SparkSession.setActiveSession(session); // rules go by its settings
        try {
            LogicalPlan settled = plan;
            for (int round = 0; round < MOST_ROUNDS; round++) {
                LogicalPlan before = settled;
                for (Rule<LogicalPlan> rule : RULES) {
                    settled = rule.apply(settled);
                }
                if (settled.fastEquals(before)) {
                    break;
                }
            }
            return settled;
        } finally {
            if (active.isEmpty()) {
                SparkSession.clearActiveSession();
            } else {
                SparkSession.setActiveSession(active.get());
            }
        }
    }
}
