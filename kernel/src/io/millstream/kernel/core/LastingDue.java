package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.PriorityQueue;
import java.util.TreeMap;

/**
 * What is due, for cores that live on from one commit to the next.
 *
 * <p>The pages of a span of time are read when it begins, and stay until it is over. So after a restart an entry may
 * come again that was taken before, or whose slice has changed since. Cores pass over such entries.
 */
public final class LastingDue extends Due {
    private static final int PAGE = 4_096;
    /** More entries than this are written before the next commit. */
    private static final int MOST = 50_000;

    private static final Comparator<Item> ITEMS =
            Comparator.comparing((Item item) -> item.entry, ORDER.thenComparingLong(Entry::number));

    private final Kept kept;
    private final long span;
    private final boolean exact;
    /** The number of pages of each span. */
    private final TreeMap<Long, Integer> counts;
    /** Entries that are in no page, by spans that have not begun. */
    private final TreeMap<Long, ArrayList<Entry>> fresh = new TreeMap<>();
    /** All entries of the spans that have begun. */
    private final PriorityQueue<Item> begun = new PriorityQueue<>(ITEMS);
    /** Those of them that are in no page. */
    private final ArrayList<Item> unwritten = new ArrayList<>();

    private int added;
    private long lastBegun = Long.MIN_VALUE;

    /** Where pages and their numbers are kept. */
    public interface Kept extends Pages {
        /** The number of pages of each span. */
        Map<Long, Integer> counts();

        void counts(NavigableMap<Long, Integer> counts);
    }

    private static final class Item {
        final Entry entry;
        boolean isTaken;

        Item(Entry entry) {
            this.entry = entry;
        }
    }

    /**
     * @param span the span of time whose entries are kept together
     * @param exact entries are due exactly at their times; otherwise up to a span later, which is cheaper
     */
    public LastingDue(Kept kept, long span, boolean exact) {
        this.kept = kept;
        this.counts = new TreeMap<>(kept.counts());
        this.span = Math.max(1, span);
        this.exact = exact;
    }

    private long spanOf(long time) {
        return Math.floorDiv(time, span);
    }

    @Override
    void add(long time, byte[] key, long number) {
        Entry entry = new Entry(exact ? time : -Math.floorDiv(-time, span) * span, key, number);
        long of = spanOf(entry.time());
        if (of <= lastBegun) {
            Item item = new Item(entry);
            begun.add(item);
            unwritten.add(item);
        } else {
            fresh.computeIfAbsent(of, absent -> new ArrayList<>()).add(entry);
        }
        if (++added > MOST) {
            flush();
        }
    }

    @Override
    List<Entry> take(long time) {
        begin(spanOf(time));
        if (begun.isEmpty() || begun.peek().entry.time() > time) {
            return List.of();
        }
        List<Entry> taken = new ArrayList<>();
        while (!begun.isEmpty() && begun.peek().entry.time() <= time) {
            taken.add(poll());
        }
        return taken;
    }

    @Override
    Entry first() {
        if (begun.isEmpty()) {
            long written = counts.isEmpty() ? Long.MAX_VALUE : notBegun();
            begin(Math.min(written, fresh.isEmpty() ? Long.MAX_VALUE : fresh.firstKey()));
        }
        return poll();
    }

    private long notBegun() {
        Long next = counts.higherKey(lastBegun);
        return next == null ? Long.MAX_VALUE : next;
    }

    /** An entry may be there several times, from a page and again. */
    private Entry poll() {
        Item first = begun.remove();
        first.isTaken = true;
        while (!begun.isEmpty() && ITEMS.compare(begun.peek(), first) == 0) {
            begun.remove().isTaken = true;
        }
        return first.entry;
    }

    private void begin(long number) {
        if (number <= lastBegun) {
            return;
        }
        for (Map.Entry<Long, Integer> each :
                counts.subMap(lastBegun, false, number, true).entrySet()) {
            for (int page = 0; page < each.getValue(); page++) {
                kept.read(each.getKey(), page).forEach(entry -> begun.add(new Item(entry)));
            }
        }
        lastBegun = number;
        while (!fresh.isEmpty() && fresh.firstKey() <= number) {
            for (Entry entry : fresh.pollFirstEntry().getValue()) {
                Item item = new Item(entry);
                begun.add(item);
                unwritten.add(item);
            }
        }
    }

    @Override
    public void flush() {
        added = 0;
        boolean isNew = !fresh.isEmpty();
        fresh.forEach(this::write);
        fresh.clear();
        if (!unwritten.isEmpty()) {
            TreeMap<Long, ArrayList<Entry>> bySpan = new TreeMap<>();
            for (Item item : unwritten) {
                if (!item.isTaken) {
                    bySpan.computeIfAbsent(spanOf(item.entry.time()), absent -> new ArrayList<>())
                            .add(item.entry);
                }
            }
            isNew |= !bySpan.isEmpty();
            bySpan.forEach(this::write);
            unwritten.clear();
        }
        if (deletePast() || isNew) {
            kept.counts(counts);
        }
    }

    private void write(long number, List<Entry> entries) {
        for (int from = 0; from < entries.size(); from += PAGE) {
            int page = counts.merge(number, 1, Integer::sum) - 1;
            kept.write(number, page, entries.subList(from, Math.min(from + PAGE, entries.size())));
        }
    }

    /** Deletes the pages of spans of which everything was taken; whether there are any. */
    private boolean deletePast() {
        long end = begun.isEmpty() ? lastBegun : spanOf(begun.peek().entry.time()) - 1;
        boolean isAny = false;
        while (!counts.isEmpty() && counts.firstKey() <= Math.min(end, lastBegun)) {
            Map.Entry<Long, Integer> past = counts.pollFirstEntry();
            for (int page = 0; page < past.getValue(); page++) {
                kept.delete(past.getKey(), page);
            }
            isAny = true;
        }
        return isAny;
    }
}
