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
    /** Whether it notes what a value was before it changes. */
    protected final boolean remembers;

    protected Core(Task task) {
        this.parts = task.parts();
        this.table = task.table();
        this.told = task.told();
        this.clock = task.clock();
        this.remembers = task.remembers();
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

    /**
     * Takes in what was kept before, somewhere else. Nobody is told. Not for what tells when windows close.
     *
     * @param key not null; kept as it is
     */
    public final void restore(byte[] key, Window window) {
        table.makeRoom();
        Slice slice = place(key, window);
        table.add(slice, window);
        table.mark(slice);
    }

    /** Where a window is kept that is not there yet; moves the clock to it. */
    protected abstract Slice place(byte[] key, Window window);

    /** Tells what has changed so far. To be followed by {@link #finish}. */
    public final void tell() {
        table.tell();
    }

    /** After the records of a micro-batch: tells and writes what is left of it. */
    public void finish() {
        table.flush();
    }

    /** To be called before a value changes, or goes. */
    protected final void changing(Window window) {
        if (remembers && !window.changed) {
            window.before = parts.copy(window.parts);
        }
    }

    /** Takes in a record; moves the clock. */
    protected abstract void process(byte[] key, long at, Object[] record);
}
