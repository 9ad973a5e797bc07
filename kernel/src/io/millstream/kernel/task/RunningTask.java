package io.millstream.kernel.task;

import io.millstream.kernel.Constants;
import io.millstream.kernel.sink.Rows;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.InternalRow;

/**
 * What Spark's source, operators and sink see of a task: it gives them records, keeps what they know, and takes what
 * they write. Used by one thread at a time, unless it says otherwise.
 */
abstract class RunningTask implements AutoCloseable {
    /** The value of `control` in a row that is a record. */
    static final int RECORD = 0;
    /** In a row behind which everything is to be committed. */
    static final int COMMIT = 1;
    /** In a row that is a record, or an entry of a store, of earlier: see {@link Replay}. */
    static final int RESTORED = Constants.CONTROL_RESTORED;
    /** In a row before which operators pass on the entries of their tables: see {@link Replay}. */
    static final int DERIVE = 3;
    /** In a row with which operators do what is due by the time of day. */
    static final int TICK = 4;
    /** In a row with which operators compute what they have put off: no more comes soon. */
    static final int FLUSH = 5;

    final TaskPlan plan;
    final int partition;
    final Figures figures;
    /** Its operators, by their numbers: they stay from one batch of Spark to the next. */
    final Map<Integer, Operator> operators = new HashMap<>();

    /** The number of Spark's attempt that has opened it: that of its next owner is greater. */
    long epoch;

    State state;
    /** Whether an operator has put something off, and the source is to pass {@link #FLUSH} before it waits. */
    private volatile boolean isHeld;
    /** When the source is to pass {@link #TICK}, in ms since the epoch: once at the beginning. */
    private volatile long due = Long.MIN_VALUE;
    /** The global tables of its run. */
    Globals globals;

    RunningTask(TaskPlan plan, int partition) {
        this.plan = plan;
        this.partition = partition;
        this.figures = Figures.of(plan.run());
    }

    /** Makes it the owner of its partition, with the state as it was committed. If it fails, nothing stays open. */
    abstract void open();

    /**
     * The next row: a record, or a control; null if there is none within this time.
     *
     * @param isEnding whether nothing more is to be read: what is not committed is to be, and then there is no row
     */
    abstract RecordRow poll(long timeoutMs, boolean isEnding);

    /** A batch of Spark begins to read: what passed since the last commit was not its. */
    abstract void beginBatch();

    /** An operator puts off what it has to compute, until the next control or until it has enough. */
    void hold() {
        isHeld = true;
    }

    /** Whether an operator has put something off since this was last called. */
    boolean takeHeld() {
        boolean was = isHeld;
        isHeld = false;
        return was;
    }

    boolean isHeld() {
        return isHeld;
    }

    /** An operator has something to do at this time of day, in ms. After each tick it says so again. */
    synchronized void wake(long at) {
        due = Math.min(due, at);
    }

    /** When the next tick is due, in ms; the largest number if none is. */
    long due() {
        return due;
    }

    /** Whether the next tick is due. Without one, nobody asks for the time: this is called for each record. */
    boolean isTickDue() {
        return due != Long.MAX_VALUE && due <= now();
    }

    /** The tick is on its way. */
    synchronized void ticked() {
        due = Long.MAX_VALUE;
    }

    /** The time of day, in ms. */
    abstract long now();

    /** There is something to commit although no record was read. */
    abstract void touch();

    /** Release what operators have. */
    void closeOperators() {
        operators.values().forEach(Operator::close);
    }

    /** Send what a row has for an output, or ask about it. */
    abstract void send(InternalRow computed, Rows output);

    /**
     * See to what was sent: what was refused, or is to be asked about.
     *
     * @param isIdle whether no record is there now
     */
    abstract void attend(boolean isIdle);

    /** Everything that was read before the control is with the sink: commit it. */
    abstract void commit();

    /** Everything that follows from what was restored is in the state. */
    void derived() {
        Derived.ofStores(state, plan.local()).update();
    }

    /** What an operator has noted with the last commit; null if it has noted nothing. */
    abstract byte[] clock(int operator);

    /** Commit soon. Any thread may call it. */
    abstract void hurry();

    /** The next offset of each partition that it reads. Any thread may ask. */
    abstract Map<TopicPartition, Long> positions();

    /** Where these partitions end, as far as that is known. Any thread may ask. */
    abstract Map<TopicPartition, Long> ends();

    /** What it is restoring; null if it is not. Any thread may ask. */
    abstract Restore.Progress restoring();

    /** How many records it has read. Any thread may ask. */
    abstract long records();

    /** Begin to close it, without waiting. */
    abstract void startToClose();

    @Override
    public abstract void close();
}
