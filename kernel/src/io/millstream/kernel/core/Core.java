package io.millstream.kernel.core;

/**
 * What records do to what is kept: one aggregation, in one bucket of keys, as a task of Kafka Streams has it.
 *
 * <p>Records come in the order of that task. No core knows of Spark, or of a clock on a wall.
 */
public abstract class Core {
    protected final Parts parts;
    protected final Table table;
    protected final Told told;
    protected final Clock clock;

    protected Core(Task task) {
        this.parts = task.parts();
        this.table = task.table();
        this.told = task.told();
        this.clock = task.clock();
    }

    /**
     * Takes in a record.
     *
     * @param key not null; kept as it is
     * @param at its timestamp
     * @param record its parts; not changed, and not kept as they are
     */
    public final void record(byte[] key, long at, Object[] record) {
        table.makeRoom();
        process(key, at, record);
    }

    /** After the records of a micro-batch: tells and writes what is left of it. */
    public void finish() {
        table.flush();
    }

    /** Takes in a record; moves the clock. */
    protected abstract void process(byte[] key, long at, Object[] record);
}
