package io.millstream.kernel.core;

/**
 * A core whose values are those of windows: which slices they are in, and when these are dropped.
 *
 * <p>A slice has the windows whose moments, as the core defines them, are in one span of time.
 */
abstract class Windowed extends Core {
    protected final Due closing;
    protected final Due due;
    private final long span;
    private final long needed;

    /**
     * @param span the span of time that a slice covers
     * @param needed how long after its span a slice is needed, in stream time
     */
    Windowed(Task task, long span, long needed) {
        super(task);
        this.due = task.due();
        this.closing = task.closing();
        this.span = Math.max(1, span);
        this.needed = needed;
        table.nothingAfter(number(clock.streamTime), clock.streamTime >= 0);
    }

    /** Passes over what was already emitted before the state was opened. */
    protected final void begin(long closed) {
        if (closing != null) {
            closing.take(closed);
        }
    }

    protected final long number(long place) {
        return Math.floorDiv(place, span);
    }

    protected final Slice slice(byte[] key, long place) {
        return table.slice(key, number(place));
    }

    /** Adds a new window to its slice. A change has to follow. */
    protected final void add(Slice slice, Window window) {
        note(slice);
        table.add(slice, window);
    }

    private void note(Slice slice) {
        if (!slice.isDue) {
            slice.isDue = true;
            due.add((slice.number + 1) * span + needed, slice.key, slice.number);
        }
    }

    /** The time that determines a window's slice; never after stream time. */
    protected abstract long moment(Window window);

    @Override
    protected Slice place(byte[] key, Window window) {
        long moment = moment(window);
        clock.streamTime = Math.max(clock.streamTime, Math.max(moment, window.at));
        Slice slice = slice(key, moment);
        note(slice);
        return slice;
    }

    /** Emits closed windows of one size, which do not change any more. */
    protected final void emitClosed(long time) {
        for (Due.Entry entry : closing.take(time)) {
            table.makeRoom();
            Window window = slice(entry.key(), entry.number()).find(entry.number());
            if (window != null) { // otherwise what has expired may not be there
                output.closed(entry.key(), window);
            }
        }
    }

    @Override
    public boolean derive(byte[] key, Window window) {
        long moment = moment(window);
        clock.streamTime = Math.max(clock.streamTime, Math.max(moment, window.at));
        long number = number(moment);
        table.mayHave(number);
        long time = (number + 1) * span + needed;
        if (time <= clock.streamTime) {
            return false;
        }
        due.add(time, key, number);
        if (closing != null) {
            awaitClosing(key, window);
        }
        return true;
    }

    /** Notes when a window closes, unless it has closed. Only for cores that emit closed windows. */
    protected abstract void awaitClosing(byte[] key, Window window);

    /** Forgets a slice that is not needed any more. */
    protected void drop(Due.Entry entry) {
        table.drop(entry.key(), entry.number());
    }

    @Override
    public void finish() {
        for (Due.Entry entry : due.take(clock.streamTime)) {
            table.makeRoom();
            drop(entry);
        }
        super.finish();
        due.flush();
        if (closing != null) {
            closing.flush();
        }
    }
}
