package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.expressions.Unevaluable;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The timestamp extractor of a source, as Spark's expressions of a record: a task orders the records of its partitions
 * by the times that it gives them. Sources: TimestampExtractor, RecordQueue.updateHead.
 */
public final class Times implements Serializable {
    private static final long serialVersionUID = 1;
    /** A function's time. */
    private static final int OF_FUNCTION = 0;
    /** The partition's, if Kafka's is negative: UsePartitionTimeOnInvalidTimestamp. */
    private static final int OF_PARTITION = 1;
    /** The time of day: WallclockTimestampExtractor. */
    private static final int OF_DAY = 2;

    /** Columns, and the columns that they are computed from. */
    private record Step(Seq<Expression> columns, Seq<Attribute> from) implements Serializable {}

    /** In the order in which they are computed. */
    private final ArrayList<Step> steps;

    private Times(ArrayList<Step> steps) {
        this.steps = steps;
    }

    /**
     * Those that a row for each record of a task has.
     *
     * @param rows `how` int, one of these numbers, NULL for records of other sources; and `time` bigint, a function's
     * @return null if only a whole plan of Spark can compute them, as with functions of Python
     */
    @SuppressWarnings("resource") // the session stays open
    public static Times of(Dataset<Row> rows) {
        var given = (org.apache.spark.sql.classic.Dataset<Row>) rows;
        // Some expressions are only for the optimizer, which writes them anew.
        LogicalPlan plan = given.sparkSession()
                .sessionState()
                .optimizer()
                .execute(given.queryExecution().analyzed());
        ArrayList<Step> steps = new ArrayList<>();
        List<LogicalPlan> below = children(plan);
        while (!below.isEmpty()) {
            if (plan instanceof Project project) {
                List<Expression> columns = new ArrayList<>();
                CollectionConverters.asJava(project.projectList()).forEach(each -> columns.add((Expression) each));
                if (columns.stream().anyMatch(Times::isOfPlans)) {
                    return null;
                }
                steps.add(0, new Step(OperatorNode.seq(columns), project.child().output()));
            } else if (!(plan instanceof Filter)) { // these are for the records, each of which has a time
                return null;
            }
            plan = below.get(0);
            below = children(plan);
        }
        return new Times(steps);
    }

    private static List<LogicalPlan> children(LogicalPlan plan) {
        return CollectionConverters.asJava(plan.children());
    }

    private static boolean isOfPlans(Expression expression) {
        return expression instanceof Unevaluable && !(expression instanceof Attribute)
                || CollectionConverters.asJava(expression.children()).stream().anyMatch(Times::isOfPlans);
    }

    /** The times of a task's records. */
    interface Clock {
        /** @param partitionTime the greatest time of the records before it in its partition */
        long time(ConsumerRecord<byte[], byte[]> record, long partitionTime);
    }

    /** By these extractors, of which each has its own records; all others have Kafka's time. */
    static Clock clock(List<Times> all) {
        if (all.isEmpty()) {
            return (record, partitionTime) -> record.timestamp();
        }
        List<UnaryOperator<InternalRow>> computed = new ArrayList<>();
        RecordRow row = new RecordRow();
        return (record, partitionTime) -> {
            if (computed.isEmpty()) { // on the thread that it is used on
                all.forEach(each -> computed.add(each.computed()));
            }
            row.of(record, UTF8String.fromString(record.topic()), record.timestamp());
            for (UnaryOperator<InternalRow> each : computed) {
                InternalRow found = each.apply(row);
                if (!found.isNullAt(0)) {
                    return time(record, partitionTime, found);
                }
            }
            return record.timestamp();
        };
    }

    private static long time(ConsumerRecord<byte[], byte[]> record, long partitionTime, InternalRow found) {
        return switch (found.getInt(0)) {
            case OF_FUNCTION -> found.getLong(1);
            case OF_PARTITION -> record.timestamp() < 0 && partitionTime >= 0 ? partitionTime : record.timestamp();
            case OF_DAY -> System.currentTimeMillis();
            default -> throw new IllegalArgumentException("no such extractor: " + found.getInt(0));
        };
    }

    private UnaryOperator<InternalRow> computed() {
        List<UnsafeProjection> projections = new ArrayList<>();
        for (Step step : steps) {
            UnsafeProjection projection = UnsafeProjection$.MODULE$.create(step.columns, step.from);
            projection.initialize(0);
            projections.add(projection);
        }
        return row -> {
            InternalRow last = row;
            for (UnsafeProjection each : projections) {
                last = each.apply(last);
            }
            return last;
        };
    }
}
