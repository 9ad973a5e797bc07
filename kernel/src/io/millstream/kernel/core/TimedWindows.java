package io.millstream.kernel.core;

/** Windows whose starts and ends follow from a record's time alone. Source: KStreamWindowAggregate. */
abstract class TimedWindows extends Windowed {
    private final long grace;

    /**
     * @param span the span of time that a slice covers
     * @param needed how long after its span a slice is needed, in stream time
     */
    TimedWindows(Task task, long span, long needed, long grace) {
        super(task, span, needed);
        this.grace = grace;
        begin(closes());
    }

    /** The start of the first window that contains this time; if there is none, a time after it. */
    protected abstract long first(long at);

    /** The start of the window that follows the one that begins there; if there is none, a time after all records. */
    protected abstract long after(long begin);

    /** The end of the window that begins there. */
    protected abstract long end(long begin);

    @Override
    protected long moment(Window window) {
        return window.start;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        boolean isLater = at > clock.streamTime;
        clock.streamTime = Math.max(clock.streamTime, at);
        long closes = closes();
        Slice slice = null;
        for (long start = first(at); start <= at; start = after(start)) {
            long end = end(start);
            if (end <= closes) {
                output.late(key, at, start, end, clock.streamTime);
                continue;
            }
            if (slice == null || slice.number != number(start)) {
                slice = slice(key, start);
            }
            update(slice, start, end, at, record);
        }
        if (isLater && closing != null) {
            emitClosed(closes);
        }
    }

    /** Windows that end at this time or before have closed. */
    private long closes() {
        return clock.streamTime - grace;
    }

    @Override
    protected void awaitClosing(byte[] key, Window window) {
        if (window.end > closes()) {
            closing.add(window.end, key, window.start);
        }
    }

    private void update(Slice slice, long start, long end, long at, Object[] record) {
        Window window = slice.find(start);
        if (window == null) {
            window = new Window(start, end, at, parts.first(record));
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
            emitClosed(closes());
        }
        super.finish();
    }
}
