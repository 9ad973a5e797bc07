package io.millstream.kernel.core;

import java.util.ArrayList;

/**
 * Windows of one size: a record ends one, and begins another right after it. Both ends belong to a window. Source:
 * KStreamSlidingWindowAggregate.
 *
 * <p>No window begins before 0: the window of 0 has all records that would end an earlier one.
 */
public final class SlidingWindows extends Windowed {
    private static final long NONE = -1;
    /** The index of the clock's own number with the latest start of a window so far. */
    private static final int LATEST = 0;

    private final long size;
    private final long grace;
    private final long retention;
    /** The windows to which a record belongs, and the one before them; latest first. One list for all records. */
    private final ArrayList<Window> near = new ArrayList<>();

    /**
     * @param size the largest difference between records of a window
     * @param retention how long after its start a window is found, by the latest start of all windows
     */
    public SlidingWindows(Task task, long size, long grace, long retention) {
        // A valid record is at most this late, and needs windows that began up to twice the size before it.
        super(task, span(size), 3 * size + grace + 1);
        this.size = size;
        this.grace = grace;
        this.retention = retention;
        begin(closes() - 1);
    }

    /** The span of a slice. */
    public static long span(long size) {
        return 2 * size;
    }

    @Override
    protected long moment(Window window) {
        clock.own[LATEST] = Math.max(clock.own[LATEST], window.start);
        return window.start;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        boolean isLater = at > clock.streamTime;
        clock.streamTime = Math.max(clock.streamTime, at);
        add(key, at, record);
        if (isLater && closing != null) {
            emitClosed(closes() - 1);
        }
    }

    @Override
    protected void awaitClosing(byte[] key, Window window) {
        if (window.end >= closes()) {
            closing.add(window.end, key, window.start);
        }
    }

    private void add(byte[] key, long at, Object[] record) {
        if (at + 1 + size <= closes()) {
            output.late(key, at, at - size, at, clock.streamTime);
            return;
        }
        // Kafka Streams' store would have forgotten what began before this.
        long from = Math.max(0, Math.max(at - 2 * size, clock.own[LATEST] - retention + 1));
        find(key, at, from);
        Window next = next(key, at, from);
        if (at < size) {
            early(key, at, record, next);
        } else {
            usual(key, at, record, next);
        }
    }

    /** Windows that end before this have closed. */
    private long closes() {
        return clock.streamTime - grace;
    }

    private void find(byte[] key, long at, long from) {
        near.clear();
        for (long number = number(at); number >= number(from); number--) {
            Slice slice = table.slice(key, number);
            for (int place = slice.from(at + 1) - 1; place >= 0; place--) {
                Window window = slice.windows.get(place);
                if (window.start < from) {
                    return;
                }
                near.add(window);
                if (window.end < at) {
                    return;
                }
            }
        }
    }

    /** The window that begins right after the record, as it will be, if it is missing but has records. */
    private Window next(byte[] key, long at, long from) {
        if (near.isEmpty() || near.get(0).at <= at || at + 1 >= from && slice(key, at + 1).find(at + 1) != null) {
            return null;
        }
        Window latest = near.get(0);
        return latest.end <= at ? null : new Window(at + 1, at + 1 + size, latest.at, parts.copy(latest.parts));
    }

    private void usual(byte[] key, long at, Object[] record, Window next) {
        boolean hasOwn = false;
        long previous = NONE; // the time of the previous record
        Object[] before = null;
        for (Window window : near) {
            if (window.end < at) {
                previous = window.at;
                before = window.parts;
            } else if (window.end == at) {
                boolean isFirst = window.at < at;
                previous = window.at;
                hasOwn = true;
                update(window, at, record);
                if (!isFirst) {
                    return; // an earlier record of this time has created all windows
                }
            } else {
                update(window, at, record);
            }
        }
        if (previous != NONE && previous + 1 + size >= at) {
            begin(key, previous + 1, at, record);
        }
        if (!hasOwn) {
            Object[] all = parts.copy(previous >= at - size ? before : record);
            if (previous >= at - size) {
                parts.add(all, record);
            }
            open(key, new Window(at - size, at, at, all), at);
        }
        if (next != null) {
            put(key, next);
        }
    }

    /** Processes a record whose window would begin before 0. */
    private void early(byte[] key, long at, Object[] record, Window next) {
        Window zero = null;
        for (int i = near.size() - 1; i >= 0; i--) {
            if (near.get(i).start == 0) {
                zero = near.get(i);
            } else {
                update(near.get(i), at, record);
            }
        }
        if (next != null) {
            put(key, next);
        }
        if (zero == null) {
            open(key, new Window(0, size, at, parts.first(record)), at);
            return;
        }
        if (zero.at < at) {
            begin(key, zero.at + 1, at, record);
        }
        update(zero, at, record);
    }

    /** Creates the window after a record that was the last one so far, unless it exists. */
    private void begin(byte[] key, long start, long at, Object[] record) {
        if (slice(key, start).find(start) == null) {
            open(key, new Window(start, start + size, at, parts.first(record)), at);
        }
    }

    private void update(Window window, long at, Object[] record) {
        if (window.end < closes()) {
            output.late(window.slice.key, at, window.start, window.end, clock.streamTime);
            return;
        }
        changing(window);
        parts.add(window.parts, record);
        window.at = Math.max(window.at, at);
        table.changed(window);
    }

    private void open(byte[] key, Window window, long at) {
        if (window.end < closes()) {
            output.late(key, at, window.start, window.end, clock.streamTime);
        } else {
            put(key, window);
        }
    }

    private void put(byte[] key, Window window) {
        Slice slice = slice(key, window.start);
        Window there = slice.find(window.start);
        if (there != null) { // created for this very record, as the window after the previous one
            table.changed(there);
            return;
        }
        clock.own[LATEST] = Math.max(clock.own[LATEST], window.start);
        add(slice, window);
        table.changed(window);
        if (closing != null) {
            closing.add(window.end, key, window.start);
        }
    }

    @Override
    public void finish() {
        if (closing != null) {
            emitClosed(closes() - 1);
        }
        super.finish();
    }
}
