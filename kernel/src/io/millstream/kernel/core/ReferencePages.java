package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/**
 * References in slices. There may be many to one key, so they are on pages, by their names: at first one page, and
 * twice as many whenever one is full.
 */
public final class ReferencePages implements References.Kept {
    /** The slice with the number of pages, if there is more than one. */
    private static final long HEAD = -1;

    private static final int FULL = 64;

    private final Table table;
    /** How many parts a reference has. */
    private final int parts;

    public ReferencePages(Table table, int parts) {
        this.table = table;
        this.parts = parts;
    }

    @Override
    public void put(byte[] key, byte[] name, Window reference) {
        Slice page = table.slice(key, page(name, pages(key)));
        int place = place(page, name);
        if (place >= 0) {
            page.windows.remove(place);
            table.mark(page);
        }
        if (reference != null) {
            page.windows.add(reference);
            table.mark(page);
            if (page.windows.size() > Math.max(FULL, pages(key) / FULL)) { // this ends even if all hashes are equal
                spread(key);
            }
        }
    }

    private static int place(Slice page, byte[] name) {
        for (int place = 0; place < page.windows.size(); place++) {
            if (Arrays.equals(name(page.windows.get(place)), name)) {
                return place;
            }
        }
        return -1;
    }

    private static byte[] name(Window reference) {
        return References.name(reference.parts);
    }

    private static long page(byte[] name, long pages) {
        // FNV-1a: consecutive keys have different hashes.
        long hash = 0xCBF29CE484222325L;
        for (byte each : name) {
            hash = (hash ^ each & 0xFF) * 0x100000001B3L;
        }
        return (hash ^ hash >>> 32) & (pages - 1);
    }

    private long pages(byte[] key) {
        Slice head = table.slice(key, HEAD);
        return head.windows.isEmpty() ? 1 : head.windows.get(0).start;
    }

    /** Doubles the number of pages: half of each goes to a new one. */
    private void spread(byte[] key) {
        long pages = pages(key);
        for (long number = 0; number < pages; number++) {
            Slice page = table.slice(key, number);
            Slice other = table.slice(key, number + pages);
            long old = number;
            page.windows.stream()
                    .filter(each -> page(name(each), 2 * pages) != old)
                    .forEach(other.windows::add);
            page.windows.removeIf(each -> page(name(each), 2 * pages) != old);
            table.mark(page);
            table.mark(other);
        }
        Slice head = table.slice(key, HEAD);
        head.windows.clear();
        head.windows.add(new Window(2 * pages, 0, 0, new Object[parts]));
        table.mark(head);
    }

    @Override
    public List<Window> all(byte[] key) {
        table.makeRoom();
        List<Window> found = new ArrayList<>();
        for (long number = 0, pages = pages(key); number < pages; number++) {
            found.addAll(table.slice(key, number).windows);
        }
        found.sort(Comparator.comparing(ReferencePages::name, Arrays::compareUnsigned));
        return found;
    }
}
