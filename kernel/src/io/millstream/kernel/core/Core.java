package io.millstream.kernel.core;

/**
 * How records change the state: one aggregation, in one partition, as in a Kafka Streams task.
 *
 * <p>Records come in the order of that task. No core knows Spark, or the time of day.
 */
public abstract class Core {
    protected final Parts parts;
    protected final Table table;
    protected final Output output;
    protected final Clock clock;
    /** Whether it remembers the previous value of what changes. */
    protected final boolean remembers;

    protected Core(Task task) {
        this.parts = task.parts();
        this.table = task.table();
        this.output = task.output();
        this.clock = task.clock();
        this.remembers = task.remembers();
    }

    /**
     * Processes a record.
     *
     * @param key not null; kept without a copy
     * @param at its timestamp
     * @param record its parts; they are neither changed nor kept without a copy
     * @param headers the headers of the changes it causes; null for none
     */
    public final void record(byte[] key, long at, Object[] record, byte[] headers) {
        table.makeRoom();
        table.of(headers);
        process(key, at, record);
    }

    /** Processes a record without headers. */
    public final void record(byte[] key, long at, Object[] record) {
        record(key, at, record, null);
    }

    /**
     * Adds a window of an earlier state, without emitting it. Not for cores that emit windows when they close.
     *
     * @param key not null; kept without a copy
     */
    public final void restore(byte[] key, Window window) {
        table.makeRoom();
        Slice slice = place(key, window);
        table.add(slice, window);
        table.mark(slice);
    }

    /**
     * Notes what follows from a window that was read back into the state: when it is to be dropped or released.
     *
     * @param key not null; kept without a copy
     * @return whether it is needed; otherwise it can be deleted
     */
    public abstract boolean derive(byte[] key, Window window);

    /** The slice for a window that does not exist yet; advances the clock to it. */
    protected abstract Slice place(byte[] key, Window window);

    /** Emits what has changed so far. Call {@link #finish} afterwards. */
    public final void emit() {
        table.emit();
    }

    /** Called after the records of a batch, or at a commit: emits and writes the rest. */
    public void finish() {
        table.flush();
    }

    /** Call it before a value changes or is removed. */
    protected final void changing(Window window) {
        if (remembers && !window.changed) {
            window.before = parts.copy(window.parts);
        }
    }

    /** Processes a record; advances the clock. */
    protected abstract void process(byte[] key, long at, Object[] record);
}
