package io.millstream.kernel.core;

/** Windows of one size that begin every {@code advance}, aligned to the epoch. Source: KStreamWindowAggregate. */
public final class FixedWindows extends Windowed {
    private final long size;
    private final long advance;
    private final long grace;

    public FixedWindows(Task task, long size, long advance, long grace) {
        // The windows of a record are in two slices at most. The last one of a slice begins an advance before the next.
        super(task, size / advance * advance, size - advance + grace);
        this.size = size;
        this.advance = advance;
        this.grace = grace;
    }

    @Override
    protected long moment(Window window) {
        return window.start;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        clock.streamTime = Math.max(clock.streamTime, at);
        long closes = clock.streamTime - grace;
        Slice slice = null;
        for (long start = Math.max(0, at - size + advance) / advance * advance; start <= at; start += advance) {
            if (start + size <= closes) {
                told.late(key, at, start, start + size, clock.streamTime);
                continue;
            }
            if (slice == null || slice.number != number(start)) {
                slice = slice(key, start);
            }
            update(slice, start, at, record);
        }
    }

    private void update(Slice slice, long start, long at, Object[] record) {
        Window window = slice.find(start);
        if (window == null) {
            window = new Window(start, start + size, at, parts.first(record));
            add(slice, window);
            if (closing != null) {
                closing.add(window.end, slice.key, start);
            }
        } else {
            changing(window);
            window.at = Math.max(window.at, at);
            parts.add(window.parts, record);
        }
        table.changed(window);
    }

    @Override
    public void finish() {
        if (closing != null) {
            tellClosed(clock.streamTime - grace);
        }
        super.finish();
    }
}
