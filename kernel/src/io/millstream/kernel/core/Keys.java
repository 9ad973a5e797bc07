package io.millstream.kernel.core;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * A sorted set of keys in pages, for a storage that can only look up a page by its name. Keys are compared byte by
 * byte, as unsigned numbers.
 *
 * <p>The keys are on the pages of level 0. The name of a page is the smallest key that belongs on it. The names of a
 * level's pages are a sorted set, too, on the pages of the next level, up to a level with a single page. The name of a
 * level's first page is the empty key. A page that is not stored is empty or, above level 0, has only its own name.
 */
public final class Keys {
    private static final int LARGEST = 100;
    private static final byte[] FIRST = {};

    private final Pages pages;
    private final Map<ByteBuffer, Page> read = new HashMap<>();
    private int top;

    /** The storage for pages, by names that begin with the level. */
    public interface Pages {
        /** The content of a page; null if there is none. */
        byte[] read(byte[] name);

        /** Replaces a page; a content of null deletes it. */
        void write(byte[] name, byte[] content);
    }

    private static final class Page {
        final int level;
        final byte[] name;
        ArrayList<byte[]> keys;
        boolean changed;

        Page(int level, byte[] name, ArrayList<byte[]> keys) {
            this.level = level;
            this.name = name;
            this.keys = keys;
        }
    }

    /**
     * @param top the level with a single page, from {@link #top}; 0 for a new set
     */
    public Keys(Pages pages, int top) {
        this.pages = pages;
        this.top = top;
    }

    public int top() {
        return top;
    }

    /** Adds a key; whether it is new. */
    public boolean add(byte[] key) {
        return add(0, key);
    }

    private boolean add(int level, byte[] key) {
        Page page = find(level, key);
        int place = place(page, key);
        if (place >= 0) {
            return false;
        }
        page.keys.add(-place - 1, key);
        page.changed = true;
        if (page.keys.size() <= LARGEST) {
            return true;
        }
        // Keys that are added in order leave full pages behind.
        int half = place == -LARGEST - 1 ? LARGEST : LARGEST / 2;
        ArrayList<byte[]> rest = new ArrayList<>(page.keys.subList(half, page.keys.size()));
        page.keys.subList(half, page.keys.size()).clear();
        Page next = new Page(level, rest.get(0), rest);
        next.changed = true;
        read.put(name(level, next.name), next);
        top = Math.max(top, level + 1);
        return add(level + 1, next.name);
    }

    /** Removes a key; whether it existed. */
    public boolean remove(byte[] key) {
        Page page = find(0, key);
        int place = place(page, key);
        if (place < 0) {
            return false;
        }
        page.keys.remove(place);
        page.changed = true;
        forgetIfEmpty(page);
        return true;
    }

    private void forgetIfEmpty(Page page) {
        if (page.level == top || !isEmpty(page)) {
            return;
        }
        Page above = find(page.level + 1, page.name);
        // A page is found by its name, so the first name on the page above stays while there are others.
        if (!Arrays.equals(page.name, above.name)) {
            above.keys.remove(place(above, page.name));
            above.changed = true;
        }
        forgetIfEmpty(above);
    }

    private boolean isEmpty(Page page) {
        return page.level == 0
                ? page.keys.isEmpty()
                : page.keys.size() == 1 && isEmpty(page(page.level - 1, page.keys.get(0)));
    }

    /** The next key; null if there is none. */
    public byte[] higher(byte[] key, boolean orItself) {
        return higher(0, key, orItself);
    }

    private byte[] higher(int level, byte[] key, boolean orItself) {
        if (level > top) {
            return null;
        }
        Page page = find(level, key);
        int place = place(page, key);
        int next = place < 0 ? -place - 1 : orItself ? place : place + 1;
        while (next == page.keys.size()) {
            byte[] after = higher(level + 1, page.name, false);
            if (after == null) {
                return null;
            }
            page = page(level, after);
            next = 0;
        }
        return page.keys.get(next);
    }

    /** The previous key; null if there is none. For null, the last key. */
    public byte[] lower(byte[] key) {
        return lower(0, key);
    }

    private byte[] lower(int level, byte[] key) {
        if (level > top) {
            return null;
        }
        Page page = key == null ? last(level) : find(level, key);
        int place = key == null ? page.keys.size() : place(page, key);
        int before = (place < 0 ? -place - 1 : place) - 1;
        while (before < 0) {
            byte[] previous = lower(level + 1, page.name);
            if (previous == null) {
                return null;
            }
            page = page(level, previous);
            before = page.keys.size() - 1;
        }
        return page.keys.get(before);
    }

    private Page last(int level) {
        byte[] name = FIRST;
        for (int above = top; above > level; above--) {
            ArrayList<byte[]> names = page(above, name).keys;
            name = names.get(names.size() - 1);
        }
        return page(level, name);
    }

    /** The page of a level on which a key belongs. */
    private Page find(int level, byte[] key) {
        byte[] name = FIRST;
        for (int above = top; above > level; above--) {
            Page page = page(above, name);
            int place = place(page, key);
            name = page.keys.get(place < 0 ? -place - 2 : place);
        }
        return page(level, name);
    }

    private static int place(Page page, byte[] key) {
        return Collections.binarySearch(page.keys, key, Keys::compare);
    }

    public static int compare(byte[] one, byte[] other) {
        return Arrays.compareUnsigned(one, other);
    }

    // --- pages -------------------------------------------------------------------------------------------

    private Page page(int level, byte[] name) {
        return read.computeIfAbsent(name(level, name), whole -> {
            byte[] content = pages.read(whole.array());
            ArrayList<byte[]> keys = new ArrayList<>();
            if (content != null) {
                ByteBuffer data = ByteBuffer.wrap(content);
                while (data.hasRemaining()) {
                    byte[] key = new byte[data.getInt()];
                    data.get(key);
                    keys.add(key);
                }
            } else if (level > 0) {
                keys.add(name);
            }
            return new Page(level, name, keys);
        });
    }

    private static ByteBuffer name(int level, byte[] name) {
        return ByteBuffer.wrap(ByteBuffer.allocate(1 + name.length)
                .put((byte) level)
                .put(name)
                .array());
    }

    /** Writes the changed pages, and forgets all pages to free memory. */
    public void flush() {
        read.forEach((name, page) -> {
            if (page.changed) {
                List<byte[]> keys = page.keys;
                boolean isImplied = page.level > 0 && keys.size() == 1 && Arrays.equals(keys.get(0), page.name);
                pages.write(name.array(), keys.isEmpty() || isImplied ? null : content(keys));
            }
        });
        read.clear();
    }

    private static byte[] content(List<byte[]> keys) {
        int size = keys.stream().mapToInt(key -> 4 + key.length).sum();
        ByteBuffer data = ByteBuffer.allocate(size);
        keys.forEach(key -> data.putInt(key.length).put(key));
        return data.array();
    }
}
