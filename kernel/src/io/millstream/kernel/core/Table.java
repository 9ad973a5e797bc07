package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.function.LongSupplier;

/**
 * The slices of an aggregation, with a cache over the state: each is written once per commit.
 *
 * <p>A change is emitted once per commit as well, with its last value, as by a store with a cache; or at once.
 * When the cache is full, of slices or of bytes, everything in it is written and emitted. The slices that were used
 * last stay in it.
 */
public final class Table {
    /** The default capacity of the cache, in slices. */
    public static final int CAPACITY = 200_000;

    private static final int SEEN = 1 << 12;
    /** So few slices are not too many, however large they are: a large one would be written at each record. */
    private static final int LEAST = 16;

    private final SliceState kept;
    private final Output output;
    private final boolean atOnce;
    private final int capacity;
    private final LongSupplier budget;
    /** The approximate size of the slices in the cache, and of those that were only looked up. */
    private long size;

    private long seenSize;

    private HashMap<SliceName, Slice> cache = new HashMap<>();
    /** Slices that were not used lately, and are in the state as they are here. */
    private HashMap<SliceName, Slice> older = new HashMap<>();
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
     * @param atOnce emit every change, not only the last before a commit
     * @param capacity the number of slices in the cache
     * @param budget the number of bytes that they may have
     */
    public Table(SliceState kept, Output output, boolean atOnce, int capacity, LongSupplier budget) {
        this.kept = kept;
        this.output = output;
        this.atOnce = atOnce;
        this.capacity = Math.max(1, capacity / 2);
        this.budget = budget;
    }

    /** What changes from now on comes from a record with these headers. */
    void of(byte[] ofRecord) {
        headers = ofRecord;
    }

    byte[] headers() {
        return headers;
    }

    /**
     * Slices with greater numbers are not in the state, so they need not be looked up there, which is slow.
     *
     * @param isKnown whether that is so; otherwise only if the state is empty
     */
    void nothingAfter(long number, boolean isKnown) {
        newest = isKnown || kept.isEmpty() ? number : Long.MAX_VALUE;
    }

    /** There is such a slice in the state. */
    void mayHave(long number) {
        newest = Math.max(newest, number);
    }

    private ArrayList<Window> read(byte[] key, long number) {
        return number > newest ? null : kept.read(key, number);
    }

    /** Called before a record: makes room if the cache is full. Earlier slices and windows are then invalid. */
    void makeRoom() {
        boolean isFull = cache.size() >= capacity || size > budget.getAsLong() / 2 && cache.size() >= LEAST;
        if (isFull && !isEmitting) {
            flush();
            older = cache;
            cache = new HashMap<>();
            last = null;
            size = 0;
        }
    }

    /** Notes how large a slice is now. */
    private void weigh(Slice slice) {
        long now = slice.size();
        size += now - slice.size;
        slice.size = now;
    }

    /** The requested slice, if it is in the cache. */
    private Slice cached() {
        Slice slice = cache.get(asked);
        if (slice == null && !older.isEmpty()) {
            slice = older.remove(asked);
            if (slice != null) {
                cache.put(slice, slice);
                size += slice.size;
            }
        }
        return slice;
    }

    private Slice cache(Slice slice) {
        cache.put(slice, slice);
        weigh(slice);
        unsee();
        return slice;
    }

    /** The requested slice changes, or may change: it is not one that is only looked up. */
    private void unsee() {
        if (seen != null) {
            int place = asked.hashCode() & SEEN - 1;
            if (asked.equals(seen[place])) {
                seenSize -= seen[place].size;
                seen[place] = null;
            }
        }
    }

    /** The slice; an empty one if there is none. */
    Slice slice(byte[] key, long number) {
        if (last != null && last.number == number && asked.key == key) {
            return last;
        }
        asked.set(key, number);
        Slice slice = cached();
        if (slice == null) {
            slice = cache(new Slice(asked, read(key, number)));
        }
        last = slice;
        return slice;
    }

    /** The slice for reading only. It must not be changed. */
    Slice look(byte[] key, long number) {
        asked.set(key, number);
        last = null;
        Slice slice = cached();
        if (slice != null) {
            return slice;
        }
        if (seen == null || seenSize > budget.getAsLong() / 2) {
            seen = new Slice[SEEN];
            seenSize = 0;
        }
        int place = asked.hashCode() & SEEN - 1;
        Slice before = seen[place];
        if (!asked.equals(before)) {
            slice = new Slice(asked, read(key, number));
            slice.size = slice.size();
            seenSize += slice.size - (before == null ? 0 : before.size);
            seen[place] = slice;
        }
        return seen[place];
    }

    /** The slice for replacing its windows, so that its stored content is not read. */
    Slice anew(byte[] key, long number) {
        asked.set(key, number);
        last = null;
        Slice slice = cached();
        return slice == null ? cache(new Slice(asked, null)) : slice;
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
        window.dirty = true;
        long added = Slice.size(window);
        slice.size += added;
        size += added;
    }

    /** The value of a window has changed. */
    void changed(Window window) {
        touch(window);
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
            window.before = null;
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
        Slice slice = window.slice;
        mark(slice);
        slice.windows.remove(window);
        if (window.stored) {
            if (slice.removed == null) {
                slice.removed = new ArrayList<>(1);
            }
            slice.removed.add(window);
        }
        window.slice = null;
    }

    /** The slice is not needed any more. For all others, its values stay valid. */
    void drop(byte[] key, long number) {
        last = null;
        asked.set(key, number);
        Slice slice = cached();
        unsee();
        if (slice == null) {
            kept.drop(key, number, null);
            return;
        }
        emit(slice);
        if (slice.changed) {
            write(slice); // what it was is logged
        }
        if (!slice.windows.isEmpty()) {
            kept.drop(key, number, slice.windows);
        }
        slice.isDue = false;
        slice.windows.clear();
        weigh(slice);
    }

    /** The window has to be written, without emitting that. */
    void touch(Window window) {
        mark(window.slice);
        window.dirty = true;
    }

    /** The slice has to be written, without emitting that. */
    void mark(Slice slice) {
        if (!slice.changed) {
            slice.changed = true;
            changed.add(slice);
            weigh(slice);
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

    /** Tells and writes what has changed. */
    void flush() {
        emit();
        changed.forEach(this::write);
        changed.clear();
    }

    private void write(Slice slice) {
        kept.write(slice.key, slice.number, slice.windows, slice.removed == null ? List.of() : slice.removed);
        slice.removed = null;
        slice.changed = false;
        weigh(slice);
        for (Window window : slice.windows) {
            window.dirty = false;
            window.stored = true;
            window.kept = true;
        }
        newest = Math.max(newest, slice.number);
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
