package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.SparkStrategy;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** How Spark plans the operators of tasks. */
final class OperatorStrategy extends SparkStrategy {
    private static final OperatorStrategy ONE = new OperatorStrategy();

    private OperatorStrategy() {}

    /** Once for each session; the sessions of queries are its copies. */
    static void install(SparkSession session) {
        var methods = ((org.apache.spark.sql.classic.SparkSession) session).experimental();
        synchronized (ONE) {
            List<SparkStrategy> all = new ArrayList<>(CollectionConverters.asJava(methods.extraStrategies()));
            if (!all.contains(ONE)) {
                all.add(ONE);
                methods.extraStrategies_$eq(OperatorNode.seq(all));
            }
        }
    }

    @Override
    public Seq<SparkPlan> apply(LogicalPlan plan) {
        if (plan instanceof OperatorNode node) {
            return OperatorNode.seq(List.of(new OperatorExec(
                    node.spec(), node.own(), node.stored(), planLater(node.child()))));
        }
        return OperatorNode.seq(List.of());
    }
}
