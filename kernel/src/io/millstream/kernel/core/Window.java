package io.millstream.kernel.core;

/**
 * One value of a key: for a span of time or, with both ends 0, for all time.
 *
 * <p>Mutable, and owned by the {@link Slice} that it is in.
 */
public final class Window {
    /** Its start and end, in milliseconds. Whether a record at the end belongs to it is up to the core. */
    public final long start;

    public final long end;
    /** The largest timestamp of its records; for a row of a table, the time since which it is what it is. */
    public long at;
    /** For a row of a table, or a session, that changes: the time of the update; for a held update: when it is due. */
    public long updated;
    /** Partial results, as {@link Parts} merges them. */
    public Object[] parts;
    /** For a held update: its release emits that the window is gone. */
    public boolean gone;
    /** Its value when it was last emitted, if the core remembers that; null for none. */
    public Object[] before;
    /** For a record of a join: whether it has no match yet, but one may come. */
    public boolean waits;
    /** Whether it did when it was last written. */
    public boolean waited;
    /** Whether another program may have written it, so that nothing is known but its value. */
    public boolean isOfOthers;
    /** For a version of a row: whether a later one already existed when it came. */
    public boolean isPast;
    /** Those of the record that changed it last in this batch; a held update keeps them. */
    public byte[] headers;
    /** The slice that it is in; null if it was removed. */
    Slice slice;
    /** Whether its value still has to be emitted. */
    boolean changed;
    /** Whether it is in the state from before this batch; only then is it emitted as gone. */
    boolean kept;
    /** Whether the state has it, or an earlier value of it. */
    boolean stored;
    /** Whether its value still has to be written to the state. */
    boolean dirty;

    public Window(long start, long end, long at, Object[] parts) {
        this.start = start;
        this.end = end;
        this.at = at;
        this.updated = at;
        this.parts = parts;
    }

    /** Whether its value is not in the state yet. */
    public boolean isDirty() {
        return dirty;
    }
}
