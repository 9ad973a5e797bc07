package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/**
 * The windows of one key that are kept together: read and written as a whole. In order of their starts, then
 * ends.
 */
public final class Slice {
    final byte[] key;
    final long number;
    final ArrayList<Window> windows = new ArrayList<>(1);
    /** Windows that are gone, and of which somebody was told. */
    final ArrayList<Window> gone = new ArrayList<>(0);
    /** Whether there was none of it before. */
    final boolean isNew;

    boolean changed;

    Slice(byte[] key, long number, List<Window> kept) {
        this.key = key;
        this.number = number;
        this.isNew = kept == null;
        if (kept != null) {
            for (Window window : kept) {
                window.kept = true;
                windows.add(window);
            }
        }
    }

    public byte[] key() {
        return key;
    }

    public int size() {
        return windows.size();
    }

    public Window get(int index) {
        return windows.get(index);
    }

    /** The place of the first window whose start is not before this; the number of windows, if there is none. */
    public int from(long start) {
        int low = 0;
        int high = windows.size();
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
    public Window find(long start) {
        int place = from(start);
        return place < windows.size() && windows.get(place).start == start ? windows.get(place) : null;
    }
}
