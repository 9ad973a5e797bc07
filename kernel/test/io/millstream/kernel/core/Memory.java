package io.millstream.kernel.core;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/** What is kept between batches, in maps. Nobody shares an object with it. */
final class Memory implements SliceState {
    final Clock clock = new Clock();
    final Map<ByteBuffer, List<Window>> slices = new HashMap<>();
    final Pages due = new Pages();
    final Pages closing = new Pages();
    private final Parts parts;

    Memory(Parts parts) {
        this.parts = parts;
    }

    /** How many slices and entries there are. */
    int size() {
        return slices.size() + due.size() + closing.size();
    }

    @Override
    public ArrayList<Window> read(byte[] key, long slice) {
        List<Window> kept = slices.get(name(key, slice));
        return kept == null ? null : copy(kept);
    }

    @Override
    public void write(byte[] key, long slice, List<Window> windows, List<Window> removed) {
        if (windows.isEmpty()) {
            slices.remove(name(key, slice));
        } else {
            slices.put(name(key, slice), copy(windows));
        }
    }

    private ArrayList<Window> copy(List<Window> windows) {
        ArrayList<Window> copies = new ArrayList<>();
        for (Window window : windows) {
            Window copy = new Window(window.start, window.end, window.at, parts.copy(window.parts));
            copy.gone = window.gone;
            copy.waits = window.waits;
            copies.add(copy);
        }
        return copies;
    }

    private static ByteBuffer name(byte[] key, long slice) {
        return ByteBuffer.allocate(key.length + Long.BYTES).put(key).putLong(slice).flip();
    }

    /** Of one {@link Due}: its pages and how many there are. */
    static final class Pages implements LastingDue.Kept {
        final TreeMap<Long, Integer> counts = new TreeMap<>();
        final Map<String, List<Due.Entry>> pages = new HashMap<>();

        @Override
        public Map<Long, Integer> counts() {
            return counts;
        }

        @Override
        public void counts(NavigableMap<Long, Integer> now) {
            counts.clear();
            counts.putAll(now);
        }

        int size() {
            return pages.values().stream().mapToInt(List::size).sum();
        }

        @Override
        public List<Due.Entry> read(long span, int page) {
            return pages.get(span + " " + page);
        }

        @Override
        public void write(long span, int page, List<Due.Entry> entries) {
            pages.put(span + " " + page, List.copyOf(entries));
        }

        @Override
        public void delete(long span, int page) {
            pages.remove(span + " " + page);
        }
    }
}
