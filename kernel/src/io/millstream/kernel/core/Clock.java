package io.millstream.kernel.core;

/** The numbers that a core has of a bucket. They are kept beyond a micro-batch, beside the slices. */
public final class Clock {
    /** How many numbers of its own a core can have. */
    public static final int OWN = 2;

    /** The largest timestamp of the records so far; -1 when there was none. */
    public long streamTime = -1;
    /** What they mean is the core's affair. */
    public final long[] own = new long[OWN];
}
