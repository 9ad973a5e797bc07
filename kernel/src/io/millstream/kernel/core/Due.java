package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * Which slices have to be looked at when stream time has come so far.
 *
 * <p>Times are rounded up, so that there are few of them. What a micro-batch adds at one time is one more page, so
 * nothing is read or written but what is new or due.
 */
public final class Due {
    private static final int PAGE = 4_096;

    private final Pages pages;
    private final long step;
    /** How many pages each time has. */
    private final TreeMap<Long, Integer> counts;
    private final HashMap<Long, ArrayList<Entry>> fresh = new HashMap<>();

    /** A slice. */
    public record Entry(byte[] key, long slice) {}

    /** Where pages are kept beyond a micro-batch. */
    public interface Pages {
        List<Entry> read(long time, int page);

        void write(long time, int page, List<Entry> entries);

        void delete(long time, int page);
    }

    /** What is done with a slice that is due. */
    public interface Action {
        void take(byte[] key, long slice);
    }

    /**
     * @param counts how many pages each time has, as {@link #counts} gave it; becomes the object's own
     * @param step times are rounded up to multiples of this
     */
    public Due(Pages pages, TreeMap<Long, Integer> counts, long step) {
        this.pages = pages;
        this.counts = counts;
        this.step = Math.max(1, step);
    }

    /** To be kept with the pages. */
    public Map<Long, Integer> counts() {
        return counts;
    }

    public void add(long time, byte[] key, long slice) {
        long rounded = (time + step - 1) / step * step;
        fresh.computeIfAbsent(rounded, absent -> new ArrayList<>()).add(new Entry(key, slice));
    }

    /** Takes out what is due at this time, the earliest first. */
    public void take(long time, Action action) {
        flush();
        while (!counts.isEmpty() && counts.firstKey() <= time) {
            Map.Entry<Long, Integer> first = counts.pollFirstEntry();
            for (int page = 0; page < first.getValue(); page++) {
                for (Entry entry : pages.read(first.getKey(), page)) {
                    action.take(entry.key(), entry.slice());
                }
                pages.delete(first.getKey(), page);
            }
        }
    }

    /** Writes what is new. */
    public void flush() {
        fresh.forEach((time, entries) -> {
            for (int from = 0; from < entries.size(); from += PAGE) {
                int page = counts.merge(time, 1, Integer::sum) - 1;
                pages.write(time, page, entries.subList(from, Math.min(from + PAGE, entries.size())));
            }
        });
        fresh.clear();
    }
}
