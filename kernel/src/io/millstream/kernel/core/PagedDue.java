package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.TreeMap;

/**
 * What is due, for cores that are made anew for each micro-batch.
 *
 * <p>A micro-batch adds one more page to a span of time, and only pages of spans that have begun are read. So only
 * what is new or nearly due is read or written.
 */
public final class PagedDue extends Due {
    private static final int PAGE = 4_096;

    private final Pages pages;
    private final long span;
    private final boolean exact;
    /** The number of pages of each span. */
    private final TreeMap<Long, Integer> counts;
    /** New entries, by spans that have not begun. */
    private final TreeMap<Long, ArrayList<Entry>> fresh = new TreeMap<>();
    /** All entries of the spans that have begun. */
    private final PriorityQueue<Entry> begun = new PriorityQueue<>(ORDER);

    private long lastBegun = Long.MIN_VALUE;

    /**
     * @param counts the number of pages of each span, from {@link #counts}; becomes this object's own
     * @param span the span of time whose entries are kept together
     * @param exact entries are due exactly at their times; otherwise up to a span later, which is cheaper
     */
    public PagedDue(Pages pages, TreeMap<Long, Integer> counts, long span, boolean exact) {
        this.pages = pages;
        this.counts = counts;
        this.span = Math.max(1, span);
        this.exact = exact;
    }

    /** To be kept with the pages. */
    public Map<Long, Integer> counts() {
        return counts;
    }

    @Override
    void add(long time, byte[] key, long number) {
        long rounded = exact ? time : -Math.floorDiv(-time, span) * span;
        put(new Entry(rounded, key, number));
    }

    private void put(Entry entry) {
        long number = Math.floorDiv(entry.time(), span);
        if (number <= lastBegun) {
            begun.add(entry);
        } else {
            fresh.computeIfAbsent(number, absent -> new ArrayList<>()).add(entry);
        }
    }

    @Override
    List<Entry> take(long time) {
        begin(Math.floorDiv(time, span));
        if (begun.isEmpty() || begun.peek().time() > time) {
            return List.of();
        }
        List<Entry> taken = new ArrayList<>();
        while (!begun.isEmpty() && begun.peek().time() <= time) {
            taken.add(begun.poll());
        }
        return taken;
    }

    @Override
    Entry first() {
        if (begun.isEmpty()) {
            long kept = counts.isEmpty() ? Long.MAX_VALUE : counts.firstKey();
            begin(Math.min(kept, fresh.isEmpty() ? Long.MAX_VALUE : fresh.firstKey()));
        }
        return begun.remove();
    }

    private void begin(long number) {
        if (number <= lastBegun) {
            return;
        }
        lastBegun = number;
        while (!counts.isEmpty() && counts.firstKey() <= number) {
            Map.Entry<Long, Integer> first = counts.pollFirstEntry();
            for (int page = 0; page < first.getValue(); page++) {
                begun.addAll(pages.read(first.getKey(), page));
                pages.delete(first.getKey(), page);
            }
        }
        while (!fresh.isEmpty() && fresh.firstKey() <= number) {
            begun.addAll(fresh.pollFirstEntry().getValue());
        }
    }

    @Override
    public void flush() {
        lastBegun = Long.MIN_VALUE;
        begun.forEach(this::put);
        begun.clear();
        fresh.forEach((number, entries) -> {
            for (int from = 0; from < entries.size(); from += PAGE) {
                int page = counts.merge(number, 1, Integer::sum) - 1;
                pages.write(number, page, entries.subList(from, Math.min(from + PAGE, entries.size())));
            }
        });
        fresh.clear();
    }
}
