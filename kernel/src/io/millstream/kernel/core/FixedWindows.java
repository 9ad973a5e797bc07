package io.millstream.kernel.core;

/** Windows of one size that begin every {@code advance}, from an origin. */
public final class FixedWindows extends TimedWindows {
    private final long size;
    private final long advance;
    private final long origin;

    public FixedWindows(Task task, long size, long advance, long grace) {
        this(task, size, advance, grace, 0);
    }

    /** @param origin where the first window begins; earlier records are in none */
    public FixedWindows(Task task, long size, long advance, long grace, long origin) {
        // The windows of a record are in at most two slices. A slice's last one begins one advance before the next.
        super(task, span(size, advance), size - advance + grace, grace);
        this.size = size;
        this.advance = advance;
        this.origin = origin;
    }

    /** The span of a slice. */
    public static long span(long size, long advance) {
        return size / advance * advance;
    }

    @Override
    protected long first(long at) {
        return origin + Math.max(0, at - origin - size + advance) / advance * advance;
    }

    @Override
    protected long after(long begin) {
        return begin + advance;
    }

    @Override
    protected long end(long begin) {
        return begin + size;
    }
}
