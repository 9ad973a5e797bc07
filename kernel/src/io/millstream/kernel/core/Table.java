package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;

/**
 * The slices of an aggregation, with a cache over what is kept: each is read once and written once a micro-batch.
 *
 * <p>What changes is told once a micro-batch as well, with its last value, as a store with a cache tells it; or at
 * once. When the cache is full, everything in it is written and told, and it begins anew.
 */
public final class Table {
    /** How many slices a cache has unless somebody says something else. */
    public static final int CAPACITY = 200_000;

    private static final int SEEN = 1 << 12;

    private final Kept kept;
    private final Told told;
    private final boolean atOnce;
    private final int capacity;
    private final HashMap<SliceName, Slice> cache = new HashMap<>();
    /** In the order in which they first changed. */
    private final ArrayList<Slice> changed = new ArrayList<>();
    /** What is asked for; one object for all questions. And the answer to the last one. */
    private final SliceName asked = new SliceName();

    private Slice last;
    /** What was only looked at, of some keys each: most keys are looked up once, and would fill the cache. */
    private Slice[] seen;
    /** Whether it is telling, and who is told may look here. */
    private boolean isTelling;

    /**
     * @param atOnce tell each change as it comes, not the last one of a micro-batch
     * @param capacity of how many slices the cache is full
     */
    public Table(Kept kept, Told told, boolean atOnce, int capacity) {
        this.kept = kept;
        this.told = told;
        this.atOnce = atOnce;
        this.capacity = capacity;
    }

    /** Before a record: makes room if the cache is full. Slices and windows from before are not good any more. */
    void makeRoom() {
        if (cache.size() >= capacity && !isTelling) {
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
            slice = new Slice(asked, kept.read(key, number));
            cache.put(slice, slice);
        }
        last = slice;
        return slice;
    }

    /** The slice, to be looked at. Not to be changed. */
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
            seen[place] = new Slice(asked, kept.read(key, number));
        }
        return seen[place];
    }

    /** The slice, whose windows will be replaced: what is kept of it is not read. */
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

    /** A new window, in its place. To be followed by {@link #changed}. */
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

    /** The window has another value. */
    void changed(Window window) {
        mark(window.slice);
        if (atOnce) {
            boolean isNested = isTelling;
            isTelling = true; // who is told may look here, and what the window was before has to stay
            told.update(window.slice.key, window);
            isTelling = isNested;
        } else {
            window.changed = true;
        }
    }

    /** The window stays, but is told to be gone and to be there again. To be followed by {@link #changed}. */
    void again(Window window) {
        if (atOnce) {
            told.gone(window.slice.key, window);
        }
    }

    /** There is no such window any more, and whoever was told of it is told so. */
    void remove(Window window) {
        Slice slice = window.slice;
        forget(window);
        if (atOnce) {
            told.gone(slice.key, window);
        } else if (window.kept) {
            if (slice.gone == null) {
                slice.gone = new ArrayList<>(1);
            }
            slice.gone.add(window);
        }
    }

    /** There is no such window any more, and nobody is told. */
    void forget(Window window) {
        mark(window.slice);
        window.slice.windows.remove(window);
        window.slice = null;
    }

    /** The slice is not needed any more. Its values stay for everybody else what they are. */
    void drop(byte[] key, long number) {
        last = null;
        asked.set(key, number);
        Slice slice = cache.get(asked);
        if (slice == null) {
            kept.write(key, number, List.of());
        } else {
            tell(slice);
            mark(slice);
            slice.windows.clear();
        }
    }

    /** The slice has to be written; nobody is told. */
    void mark(Slice slice) {
        if (!slice.changed) {
            slice.changed = true;
            changed.add(slice);
        }
    }

    /** Tells what has changed. */
    void tell() {
        isTelling = true;
        for (Slice slice : changed) {
            tell(slice);
        }
        isTelling = false;
    }

    /** Tells and writes what has changed, and forgets everything. */
    void flush() {
        tell();
        for (Slice slice : changed) {
            if (!(slice.isNew && slice.windows.isEmpty())) {
                kept.write(slice.key, slice.number, slice.windows);
            }
        }
        changed.clear();
        cache.clear();
        seen = null;
        last = null;
    }

    private void tell(Slice slice) {
        if (slice.gone != null) {
            for (Window window : slice.gone) {
                if (!isThere(slice, window)) {
                    told.gone(slice.key, window);
                }
            }
            slice.gone = null;
        }
        for (Window window : slice.windows) {
            if (window.changed) {
                window.changed = false;
                told.update(slice.key, window);
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
