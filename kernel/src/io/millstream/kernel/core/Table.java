package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;

/**
 * The slices of an aggregation, with a cache over the state: each is read once and written once per micro-batch.
 *
 * <p>A change is emitted once per micro-batch as well, with its last value, as by a store with a cache; or at once.
 * When the cache is full, everything in it is written and emitted, and it is emptied.
 */
public final class Table {
    /** The default capacity of the cache, in slices. */
    public static final int CAPACITY = 200_000;

    private static final int SEEN = 1 << 12;

    private final SliceState kept;
    private final Output output;
    private final boolean atOnce;
    private final int capacity;
    private final HashMap<SliceName, Slice> cache = new HashMap<>();
    /** In the order in which they first changed. */
    private final ArrayList<Slice> changed = new ArrayList<>();
    /** The requested slice, in one object for all requests; and the last answer. */
    private final SliceName asked = new SliceName();

    private Slice last;
    /** Slices that were only looked up, by hash: most keys are looked up once, and would fill the cache. */
    private Slice[] seen;
    /** Whether it is emitting changes, so that their receivers may look up slices. */
    private boolean isEmitting;
    /** The state has no slices with greater numbers. */
    private long newest = Long.MAX_VALUE;
    /** The headers of the record that changes come from. */
    private byte[] headers;

    /**
     * @param atOnce emit every change, not only the last of a micro-batch
     * @param capacity the number of slices at which the cache is full
     */
    public Table(SliceState kept, Output output, boolean atOnce, int capacity) {
        this.kept = kept;
        this.output = output;
        this.atOnce = atOnce;
        this.capacity = capacity;
    }

    /** What changes from now on comes from a record with these headers. */
    void of(byte[] ofRecord) {
        headers = ofRecord;
    }

    byte[] headers() {
        return headers;
    }

    /** Slices with greater numbers are not in the state, so they need not be looked up there, which is slow. */
    void nothingAfter(long number) {
        newest = number;
    }

    private ArrayList<Window> read(byte[] key, long number) {
        return number > newest ? null : kept.read(key, number);
    }

    /** Called before a record: makes room if the cache is full. Earlier slices and windows are then invalid. */
    void makeRoom() {
        if (cache.size() >= capacity && !isEmitting) {
            flush();
        }
    }

    /** The slice; an empty one if there is none. */
    Slice slice(byte[] key, long number) {
        if (last != null && last.number == number && asked.key == key) {
            return last;
        }
        asked.set(key, number);
        Slice slice = cache.get(asked);
        if (slice == null) {
            slice = new Slice(asked, read(key, number));
            cache.put(slice, slice);
        }
        last = slice;
        return slice;
    }

    /** The slice for reading only. It must not be changed. */
    Slice look(byte[] key, long number) {
        asked.set(key, number);
        last = null;
        Slice slice = cache.isEmpty() ? null : cache.get(asked);
        if (slice != null) {
            return slice;
        }
        if (seen == null) {
            seen = new Slice[SEEN];
        }
        int place = asked.hashCode() & SEEN - 1;
        if (!asked.equals(seen[place])) {
            seen[place] = new Slice(asked, read(key, number));
        }
        return seen[place];
    }

    /** The slice for replacing its windows, so that its stored content is not read. */
    Slice anew(byte[] key, long number) {
        asked.set(key, number);
        last = null;
        Slice slice = cache.get(asked);
        if (slice == null) {
            slice = new Slice(asked, null);
            cache.put(slice, slice);
        }
        return slice;
    }

    /** Adds a new window in its place. Call {@link #changed} afterwards. */
    void add(Slice slice, Window window) {
        int place = slice.from(window.start);
        while (place < slice.windows.size()
                && slice.windows.get(place).start == window.start
                && slice.windows.get(place).end < window.end) {
            place++;
        }
        slice.windows.add(place, window);
        window.slice = slice;
    }

    /** The value of a window has changed. */
    void changed(Window window) {
        mark(window.slice);
        window.headers = headers;
        if (atOnce) {
            boolean isNested = isEmitting;
            isEmitting = true; // receivers may look up slices, and the window's previous value has to stay
            output.update(window.slice.key, window);
            isEmitting = isNested;
        } else {
            window.changed = true;
        }
    }

    /** The window stays, but is emitted as gone and as new. Call {@link #changed} afterwards. */
    void again(Window window) {
        if (atOnce) {
            window.headers = headers;
            output.gone(window.slice.key, window);
        }
    }

    /** Removes a window, and emits that it is gone if it was emitted before. */
    void remove(Window window) {
        Slice slice = window.slice;
        window.headers = headers;
        forget(window);
        if (atOnce) {
            output.gone(slice.key, window);
        } else if (window.kept) {
            if (slice.gone == null) {
                slice.gone = new ArrayList<>(1);
            }
            slice.gone.add(window);
        }
    }

    /** Removes a window without emitting that. */
    void forget(Window window) {
        mark(window.slice);
        window.slice.windows.remove(window);
        window.slice = null;
    }

    /** The slice is not needed any more. For all others, its values stay valid. */
    void drop(byte[] key, long number) {
        last = null;
        asked.set(key, number);
        Slice slice = cache.get(asked);
        if (slice == null) {
            kept.write(key, number, List.of());
        } else {
            emit(slice);
            mark(slice);
            slice.windows.clear();
        }
    }

    /** The slice has to be written, without emitting that. */
    void mark(Slice slice) {
        if (!slice.changed) {
            slice.changed = true;
            changed.add(slice);
        }
    }

    /** Tells what has changed. */
    void emit() {
        isEmitting = true;
        for (Slice slice : changed) {
            emit(slice);
        }
        isEmitting = false;
    }

    /** Tells and writes what has changed, and forgets everything. */
    void flush() {
        emit();
        for (Slice slice : changed) {
            if (!(slice.isNew && slice.windows.isEmpty())) {
                kept.write(slice.key, slice.number, slice.windows);
                newest = Math.max(newest, slice.number);
            }
        }
        changed.clear();
        cache.clear();
        seen = null;
        last = null;
    }

    private void emit(Slice slice) {
        if (slice.gone != null) {
            for (Window window : slice.gone) {
                if (!isThere(slice, window)) {
                    output.gone(slice.key, window);
                }
            }
            slice.gone = null;
        }
        for (Window window : slice.windows) {
            if (window.changed) {
                window.changed = false;
                output.update(slice.key, window);
            }
        }
    }

    private static boolean isThere(Slice slice, Window window) {
        for (Window other : slice.windows) {
            if (other.start == window.start && other.end == window.end) {
                return true;
            }
        }
        return false;
    }
}
