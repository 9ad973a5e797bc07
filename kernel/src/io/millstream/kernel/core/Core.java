package io.millstream.kernel.core;

/**
 * What records do to what is kept: one aggregation, in one bucket of keys, as a task of Kafka Streams has it.
 *
 * <p>Records come in the order of that task. No core knows of Spark, or of a clock.
 */
public abstract class Core {
    /** Of a bucket that has had no record yet. */
    public static final long NO_TIME = -1;

    protected final Parts parts;
    protected final Table table;
    protected final Told told;
    /** The largest timestamp of the records so far. */
    protected long streamTime;

    protected Core(Parts parts, Table table, Told told, long streamTime) {
        this.parts = parts;
        this.table = table;
        this.told = told;
        this.streamTime = streamTime;
    }

    /**
     * Takes in a record.
     *
     * @param key not null
     * @param at its timestamp
     * @param record its parts; not changed, and not kept as they are
     */
    public final void record(byte[] key, long at, Object[] record) {
        streamTime = Math.max(streamTime, at);
        process(key, at, record);
    }

    public final long streamTime() {
        return streamTime;
    }

    /** After the records of a micro-batch: tells and writes what is left of it. */
    public void finish() {
        table.flush();
    }

    protected abstract void process(byte[] key, long at, Object[] record);
}
