package io.millstream.kernel.core;

import java.util.ArrayList;

/**
 * Windows of one key that are kept together, and read and written as a whole. They are ordered by start, then by
 * end.
 */
final class Slice extends SliceName {
    private static final int OWN_SIZE = 150;
    private static final int WINDOW_SIZE = 120;

    final ArrayList<Window> windows;
    /** Windows that are gone and were emitted before; null for none. */
    ArrayList<Window> gone;
    /** Windows that are gone and are in the state; null for none. */
    ArrayList<Window> removed;
    /** Whether it is noted when it has to be checked. */
    boolean isDue;

    boolean changed;
    /** How large it was when that was last noted. */
    long size;

    Slice(SliceName name, ArrayList<Window> kept) {
        set(name.key, name.number);
        isDue = kept != null;
        windows = kept == null ? new ArrayList<>(1) : kept;
        for (Window window : windows) {
            window.kept = true;
            window.stored = true;
            window.slice = this;
        }
    }

    /** Its approximate size in the memory, in bytes. */
    long size() {
        long now = OWN_SIZE + key.length;
        for (Window window : windows) {
            now += size(window);
        }
        return now;
    }

    static long size(Window window) {
        return WINDOW_SIZE + Parts.size(window.parts);
    }

    /** The place of the first window whose start is not before this; the number of windows, if there is none. */
    int from(long start) {
        int low = 0;
        int high = windows.size();
        // Usually, it is the last one, or after it.
        if (high > 0 && windows.get(high - 1).start < start) {
            return high;
        }
        while (low < high) {
            int middle = (low + high) >>> 1;
            if (windows.get(middle).start < start) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        return low;
    }

    /** The window that starts there; null if there is none. */
    Window find(long start) {
        int place = from(start);
        return place < windows.size() && windows.get(place).start == start ? windows.get(place) : null;
    }
}
