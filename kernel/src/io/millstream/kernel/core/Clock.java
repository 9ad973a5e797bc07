package io.millstream.kernel.core;

/** The numbers that a core keeps for a partition. They outlast a batch, beside the slices. */
public final class Clock {
    /** The maximum number of a core's own numbers. */
    public static final int OWN = 2;

    /** The largest timestamp of the records so far; -1 if there was none. */
    public long streamTime = -1;
    /** Their meaning is up to the core. */
    public final long[] own = new long[OWN];
}
