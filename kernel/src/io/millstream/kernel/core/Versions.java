package io.millstream.kernel.core;

/**
 * The values of keys, now and as far back as the history goes. Sources: RocksDBVersionedStore, KTableSource.
 *
 * <p>A version is valid from its start until before its end. A version with only nulls is a deletion. The last version
 * of a key is in a slice of its own; the others are in the slices of the times at which they end.
 */
public final class Versions extends Windowed implements TableView {
    /** The end of a version that is still valid. */
    public static final long NEVER = Long.MAX_VALUE;

    /** The number of the slice with the last version. */
    public static final long LAST = Long.MIN_VALUE;
    /** The number of a key's slices for the whole history; they are read one by one to find a time. */
    private static final int SLICES = 16;

    private final long history;

    public Versions(Task task, long history) {
        super(task, span(history), history);
        this.history = history;
    }

    /** The span of a slice. */
    public static long span(long history) {
        return history / SLICES;
    }

    @Override
    protected long moment(Window window) {
        return window.end;
    }

    @Override
    @SuppressWarnings("super")
    protected Slice place(byte[] key, Window window) {
        throw new UnsupportedOperationException("a changelog does not say what there was before");
    }

    @Override
    public boolean derive(byte[] key, Window window) {
        if (window.end != NEVER) {
            return super.derive(key, window);
        }
        clock.streamTime = Math.max(clock.streamTime, window.start);
        if (!Keyed.isThere(window)) {
            due.add(window.start + history + 1, key, LAST);
        }
        return true;
    }

    @Override
    protected void awaitClosing(byte[] key, Window window) {
        throw new UnsupportedOperationException("nothing is emitted as closed");
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        if (at < horizon()) {
            return;
        }
        clock.streamTime = Math.max(clock.streamTime, at);
        Window last = last(key);
        if (last != null) {
            changing(last);
        }
        Window version;
        if (last == null || at >= last.start) {
            version = new Window(at, NEVER, at, record.clone());
            if (last != null) {
                table.forget(last);
                keep(key, last, at);
            }
            table.add(table.slice(key, LAST), version);
            if (!Keyed.isThere(version)) {
                due.add(at + history + 1, key, LAST);
            }
        } else {
            version = between(key, at, record, last);
        }
        version.before = last == null ? null : last.before;
        table.changed(version);
    }

    /** Adds a version that is not the last one: in the middle of another, or before the first. */
    private Window between(byte[] key, long at, Object[] record, Window last) {
        Window around = after(key, at, last);
        long end = last.start;
        if (around != null && around.start > at) {
            end = around.start;
        } else if (around != null) {
            end = around.end;
            table.forget(around);
            keep(key, around, at);
        }
        Window version = new Window(at, end, at, record.clone());
        version.isPast = true;
        add(slice(key, end), version);
        return version;
    }

    /** Keeps a version that was valid up to a time, if it ever was. */
    private void keep(byte[] key, Window version, long end) {
        if (version.start < end) {
            Slice slice = slice(key, end);
            add(slice, new Window(version.start, end, version.start, version.parts));
            table.mark(slice);
        }
    }

    /** The first of the versions before the last one that ends after this time; null for none. */
    private Window after(byte[] key, long at, Window last) {
        for (long number = number(at + 1); number <= number(last.start); number++) {
            for (Window version : table.slice(key, number).windows) {
                if (version.end > at) {
                    return version;
                }
            }
        }
        return null;
    }

    private Window last(byte[] key) {
        Slice slice = table.slice(key, LAST);
        return slice.windows.isEmpty() ? null : slice.windows.get(0);
    }

    /** The time before which versions are forgotten, and new ones ignored. */
    private long horizon() {
        return clock.streamTime - history;
    }

    @Override
    public Window look(byte[] key) {
        table.makeRoom();
        return last(key);
    }

    @Override
    public Window lookAsOf(byte[] key, long at) {
        Window last = look(key);
        if (last == null || at >= last.start) {
            return last;
        }
        Window version = at < horizon() ? null : after(key, at, last);
        return version != null && version.start <= at ? version : null;
    }

    /** A deletion that is the last version is forgotten, too, if it still is the last one. */
    @Override
    protected void drop(Due.Entry entry) {
        if (entry.number() != LAST) {
            super.drop(entry);
            return;
        }
        Window last = last(entry.key());
        if (last != null && !Keyed.isThere(last) && last.start < horizon()) {
            table.forget(last);
        }
    }
}
