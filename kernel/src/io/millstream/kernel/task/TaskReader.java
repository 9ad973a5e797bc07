package io.millstream.kernel.task;

import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.util.TaskCompletionListener;

/** The rows of one task, in one batch of Spark. */
final class TaskReader implements SupportsRealTimeRead<InternalRow> {
    /** In place of a partition: the reader waits for one that comes while the batch runs. */
    static final int SPARE = -1;
    /** The maximum time until the end of a batch is noticed. */
    private static final long SLICE_MS = 20;

    /** In batches: how long a task waits for a record, so that Spark plans an idle query seldom. */
    private static final long LONGEST_WAIT = TimeUnit.SECONDS.toNanos(10);
    /** In batches: how long records are read that come one after another. */
    private static final long LONGEST_BATCH = TimeUnit.MILLISECONDS.toNanos(500);

    private static final long SOON_MS = 5;
    private static final long MARGIN_MS = 1_000;

    private final Tasks tasks;
    private final TaskPlan plan;
    /** Null if it is another client's by now, or none has come yet. */
    private RunningTask task;

    private final int number;
    private int partition;
    private RecordRow row;
    private final int batch;
    private boolean isDone;
    private boolean hasBegun;
    private boolean isCommitting;
    private long began = System.nanoTime();

    /** @param lot of which it is */
    TaskReader(TaskPlan plan, int partition, int number, int batch, long epoch, Lot lot) {
        this.batch = batch;
        this.plan = plan;
        this.tasks = Tasks.of(plan.run());
        this.number = number;
        this.partition = partition;
        tasks.know(lot);
        if (partition != SPARE) {
            take(epoch);
        }
    }

    private void take(long epoch) {
        task = tasks.take(plan, partition, epoch);
        if (task == null) {
            return;
        }
        // Not when the reader is closed: what it has read may still be on its way to the sink.
        TaskContext.get()
                .addTaskCompletionListener((TaskCompletionListener) context ->
                        tasks.leave(task, isDone && !context.isFailed() && !context.isInterrupted()));
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        if (partition == SPARE) {
            partition = tasks.claim(batch, timeoutMs - MARGIN_MS);
            if (partition != SPARE) {
                take(0);
            }
        }
        if (task == null) {
            return RecordStatus.newStatusWithoutArrivalTime(false);
        }
        while (true) {
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            boolean isEnding = isEnding() || left <= MARGIN_MS; // Spark looks at the clock itself, too
            row = task.poll(Math.max(0, Math.min(left, SLICE_MS)), isEnding);
            task.attend(row == null);
            if (row != null || isEnding) {
                isDone = row == null;
                return RecordStatus.newStatusWithoutArrivalTime(row != null);
            }
        }
    }

    /**
     * In batches, for plans with functions that get many rows at once: waits for the first record of any task of the
     * run, reads what comes soon, and has it committed.
     */
    @Override
    public boolean next() {
        if (isDone || task == null) {
            return false;
        }
        while (!hasBegun && !isEnding() && !tasks.hasNews(batch) && System.nanoTime() - began < LONGEST_WAIT) {
            row = task.poll(SLICE_MS, false);
            if (row != null) {
                begin();
                return isRow();
            }
        }
        if (!hasBegun) {
            begin();
        }
        if (isCommitting) { // it may be on its way to the sink
            isDone = true;
            return false;
        }
        boolean isOver = isEnding() || System.nanoTime() - began > LONGEST_BATCH;
        row = task.poll(isOver ? 0 : SOON_MS, isOver);
        if (row == null && !isOver) { // nothing more comes soon
            row = task.poll(0, true);
        }
        return isRow();
    }

    private boolean isEnding() {
        return tasks.isEnding(partition, batch);
    }

    private boolean isRow() {
        isCommitting |= row != null && row.control() == RunningTask.COMMIT;
        isDone = row == null;
        return row != null;
    }

    private void begin() {
        hasBegun = true;
        began = System.nanoTime();
        task.beginBatch();
        tasks.news(batch);
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
        // the task goes on until Spark's is complete
    }
}
