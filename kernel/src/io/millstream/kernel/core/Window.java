package io.millstream.kernel.core;

/**
 * One value that is kept of a key: of a span of time, or, with both ends 0, of all time.
 *
 * <p>Mutable, and owned by the {@link Slice} that it is in.
 */
public final class Window {
    /** Where it begins and ends, in milliseconds. Whether a record at the end belongs to it is up to the core. */
    public final long start;

    public final long end;
    /** The largest timestamp of its records. */
    public long at;
    /** Partial results, as {@link Parts} merges them. */
    public Object[] parts;
    /** Of one that is held back: that there is no such window any more is what goes on. */
    public boolean gone;
    /** What it had when it was told the last time, where a core is asked to know that; null for nothing. */
    public Object[] before;
    /** Of a record of a join: whether it has no other yet, and one may come. */
    public boolean waits;
    /** Of a version of a row: whether there was a later one already when it came. */
    public boolean isPast;
    /** Where it is; null when it is nowhere any more. */
    Slice slice;
    /** Whether its value has to be told yet. */
    boolean changed;
    /** Whether what is kept beyond this micro-batch has it; only then does anybody hear that it is gone. */
    boolean kept;

    public Window(long start, long end, long at, Object[] parts) {
        this.start = start;
        this.end = end;
        this.at = at;
        this.parts = parts;
    }
}
