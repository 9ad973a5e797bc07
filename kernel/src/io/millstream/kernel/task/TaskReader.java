package io.millstream.kernel.task;

import java.util.concurrent.TimeUnit;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/** The rows of one task, in one batch of Spark. */
final class TaskReader implements SupportsRealTimeRead<InternalRow> {
    /** The maximum time until the end of a batch is noticed. */
    private static final long SLICE_MS = 20;

    private final Tasks tasks;
    private final Task task;
    private final int number;
    private RecordRow row;
    private boolean isDone;

    TaskReader(TaskPlan plan, int partition, int number) {
        this.tasks = Tasks.of(plan.run());
        this.number = number;
        this.task = tasks.take(plan, partition);
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (true) {
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            boolean isEnding = tasks.isEnding() || left <= 0;
            row = task.poll(Math.max(0, Math.min(left, SLICE_MS)), isEnding);
            if (row != null || isEnding) {
                isDone = row == null;
                return RecordStatus.newStatusWithoutArrivalTime(row != null);
            }
        }
    }

    /** In batches: what is there, and what comes soon. */
    @Override
    public boolean next() {
        throw new UnsupportedOperationException("not yet");
    }

    @Override
    public InternalRow get() {
        return row;
    }

    @Override
    public PartitionOffset getOffset() {
        return TaskTable.ended(number);
    }

    @Override
    public void close() {
        tasks.leave(task, isDone);
    }
}
