package io.millstream.kernel.core;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;

/**
 * The slices of an aggregation, with a cache over what is kept: each is read once and written once a micro-batch.
 *
 * <p>What changes is told once a micro-batch as well, with its last value, as a store with a cache tells it; or at
 * once. When the cache is full, everything in it is written and told, and it begins anew.
 */
public final class Table {
    private static final int CAPACITY = 200_000;

    private final Kept kept;
    private final Told told;
    private final boolean atOnce;
    private final HashMap<SliceKey, Slice> cache = new HashMap<>();
    /** In the order in which they first changed. */
    private final ArrayList<Slice> changed = new ArrayList<>();

    /**
     * @param atOnce tell each change as it comes, not the last one of a micro-batch
     */
    public Table(Kept kept, Told told, boolean atOnce) {
        this.kept = kept;
        this.told = told;
        this.atOnce = atOnce;
    }

    /** The slice; an empty one if there is none. Good until the next call: the cache may be emptied then. */
    public Slice slice(byte[] key, long number) {
        SliceKey name = new SliceKey(ByteBuffer.wrap(key), number);
        Slice slice = cache.get(name);
        if (slice == null) {
            if (cache.size() >= CAPACITY) {
                flush();
            }
            slice = new Slice(key, number, kept.read(key, number));
            cache.put(name, slice);
        }
        return slice;
    }

    /** A new window, in its place. To be followed by {@link #changed}. */
    public void add(Slice slice, Window window) {
        int place = slice.from(window.start);
        while (place < slice.windows.size()
                && slice.windows.get(place).start == window.start
                && slice.windows.get(place).end < window.end) {
            place++;
        }
        slice.windows.add(place, window);
    }

    /** The window has another value. */
    public void changed(Slice slice, Window window) {
        mark(slice);
        if (atOnce) {
            told.update(slice.key, window);
        } else {
            window.changed = true;
        }
    }

    /** There is no such window any more, and whoever was told of it is told so. */
    public void remove(Slice slice, Window window) {
        forget(slice, window);
        if (atOnce) {
            told.gone(slice.key, window);
        } else if (window.kept) {
            slice.gone.add(window);
        }
    }

    /** The window is not needed any more. Its value stays for everybody else what it is. */
    public void drop(Slice slice, Window window) {
        if (window.changed) {
            window.changed = false;
            told.update(slice.key, window);
        }
        forget(slice, window);
    }

    private void forget(Slice slice, Window window) {
        mark(slice);
        slice.windows.remove(window);
    }

    private void mark(Slice slice) {
        if (!slice.changed) {
            slice.changed = true;
            changed.add(slice);
        }
    }

    /** Tells and writes what has changed, and forgets everything. */
    public void flush() {
        for (Slice slice : changed) {
            tell(slice);
            if (!(slice.isNew && slice.windows.isEmpty())) {
                kept.write(slice.key, slice.number, slice.windows);
            }
        }
        changed.clear();
        cache.clear();
    }

    private void tell(Slice slice) {
        for (Window window : slice.gone) {
            Window again = null;
            for (Window other : slice.windows) {
                if (other.start == window.start && other.end == window.end) {
                    again = other;
                }
            }
            if (again == null) {
                told.gone(slice.key, window);
            }
        }
        slice.gone.clear();
        for (Window window : slice.windows) {
            if (window.changed) {
                window.changed = false;
                told.update(slice.key, window);
            }
        }
    }

    private record SliceKey(ByteBuffer key, long number) {}
}
