package io.millstream.kernel.task;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;

/**
 * What Spark's source, operators and sink see of a task: it gives them records, keeps what they know, and takes what
 * they write. Used by one thread at a time, unless it says otherwise.
 */
abstract class RunningTask implements AutoCloseable {
    /** The value of `control` in a row that is a record. */
    static final int RECORD = 0;
    /** In a row behind which everything is to be committed. */
    static final int COMMIT = 1;

    final TaskPlan plan;
    final int partition;
    /** Its operators, by their numbers: they stay from one batch of Spark to the next. */
    final Map<Integer, Operation> operations = new HashMap<>();

    State state;
    /** The global tables of its run. */
    Globals globals;

    RunningTask(TaskPlan plan, int partition) {
        this.plan = plan;
        this.partition = partition;
    }

    /** Makes it the owner of its partition, with the state as it was committed. If it fails, nothing stays open. */
    abstract void open();

    /**
     * The next row: a record, or a control; null if there is none within this time.
     *
     * @param isEnding whether nothing more is to be read: what is not committed is to be, and then there is no row
     */
    abstract RecordRow poll(long timeoutMs, boolean isEnding);

    /** Send a record of an output topic. */
    abstract void send(ProducerRecord<byte[], byte[]> record);

    /** Everything that was read before the control is with the sink: commit it. */
    abstract void commit();

    /** What an operator has noted with the last commit; null if it has noted nothing. */
    abstract byte[] clock(int operator);

    /** Commit soon. Any thread may call it. */
    abstract void hurry();

    /** The next offset of each partition that it reads. Any thread may ask. */
    abstract Map<TopicPartition, Long> positions();

    /** What it is restoring; null if it is not. Any thread may ask. */
    abstract Restore.Progress restoring();

    /** How many records it has read. Any thread may ask. */
    abstract long records();

    /** Begin to close it, without waiting. */
    abstract void startToClose();

    @Override
    public abstract void close();
}
