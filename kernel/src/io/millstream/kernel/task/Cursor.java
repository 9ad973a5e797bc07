package io.millstream.kernel.task;

import io.millstream.kernel.python.Processing;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.function.UnaryOperator;

/**
 * Entries of a store in the order of their keys, or in the opposite order, as they were when it was opened: what is
 * put or committed later is not seen. It merges what is kept with the changes as it goes.
 *
 * <p>It is closed when its last entry was passed, when it is closed, or with the state.
 */
final class Cursor implements AutoCloseable {
    /** What is committed, in the order of the cursor; it does not change while it is read. */
    interface Kept {
        /** Go to the next entry, if there is one. */
        boolean next();

        byte[] key();

        byte[] value();

        void close();
    }

    /** In place of what a key was changed to: it was not changed. */
    private static final byte[] UNCHANGED = new byte[0];

    private final Kept kept;
    private final NavigableMap<byte[], byte[]> changes;
    /** What later changes have replaced. */
    private final TreeMap<byte[], byte[]> replaced;

    private final byte[] from;
    private final byte[] to;
    private final Comparator<? super byte[]> order;
    private final Consumer<Cursor> closed;
    private boolean isOpen = true;
    private boolean isKeptThere;
    private Iterator<Map.Entry<byte[], byte[]>> changing;
    private Map.Entry<byte[], byte[]> change;
    private byte[] key;
    private byte[] value;

    /**
     * Over both.
     *
     * @param from the least key; null if there is no bound
     * @param to the key that all are less than; null if there is no bound
     * @param changes the part of the changes that is within the bounds, in the order of the cursor; null for a
     *     deleted key
     * @param closed is called when it closes
     */
    Cursor(Kept kept, NavigableMap<byte[], byte[]> changes, byte[] from, byte[] to, Consumer<Cursor> closed) {
        this.from = from;
        this.to = to;
        this.kept = kept;
        this.changes = changes;
        this.order = changes.comparator();
        this.replaced = new TreeMap<>(order);
        this.closed = closed;
        this.changing = changes.entrySet().iterator();
        isKeptThere = kept.next();
        change = next(changing);
    }

    private static Map.Entry<byte[], byte[]> next(Iterator<Map.Entry<byte[], byte[]>> entries) {
        return entries.hasNext() ? entries.next() : null;
    }

    /** A key is about to be changed: the value that it is changed from, and whether it was changed before. */
    void changing(byte[] ofKey, byte[] before, boolean wasChanged) {
        if (!wasChanged) {
            changing = null; // the map gets another entry
        }
        boolean isWithin = (from == null || Arrays.compareUnsigned(ofKey, from) >= 0)
                && (to == null || Arrays.compareUnsigned(ofKey, to) < 0);
        if (isWithin && (key == null || order.compare(ofKey, key) > 0) && !replaced.containsKey(ofKey)) {
            replaced.put(ofKey, wasChanged ? before : UNCHANGED);
        }
    }

    /** Go to the next entry; whether there is one. */
    boolean next() {
        while (isOpen) {
            if (changing == null) {
                changing = (key == null ? changes : changes.tailMap(key, false)).entrySet().iterator();
                change = next(changing);
            }
            Map.Entry<byte[], byte[]> before = replaced.isEmpty() ? null : replaced.firstEntry();
            byte[] least = isKeptThere ? kept.key() : null;
            least = smaller(least, change == null ? null : change.getKey());
            least = smaller(least, before == null ? null : before.getKey());
            if (least == null) {
                close();
                return false;
            }
            if (pass(least, before)) {
                return true;
            }
        }
        return false;
    }

    /** Whether there is an entry with this key, which is the smallest that is left. */
    private boolean pass(byte[] least, Map.Entry<byte[], byte[]> before) {
        byte[] found = null;
        if (isKeptThere && order.compare(kept.key(), least) == 0) {
            found = kept.value();
            isKeptThere = kept.next();
        }
        boolean isReplaced = false;
        byte[] replacement = UNCHANGED;
        if (before != null && order.compare(before.getKey(), least) == 0) {
            isReplaced = true;
            replacement = before.getValue();
        }
        if (change != null && order.compare(change.getKey(), least) == 0) {
            found = isReplaced ? found : change.getValue();
            change = next(changing);
        }
        if (isReplaced) {
            found = replacement == UNCHANGED ? found : replacement;
            replaced.pollFirstEntry();
        }
        key = least;
        value = found;
        return found != null;
    }

    private byte[] smaller(byte[] one, byte[] other) {
        if (one == null || other == null) {
            return one == null ? other : one;
        }
        return order.compare(one, other) <= 0 ? one : other;
    }

    byte[] key() {
        return key;
    }

    byte[] value() {
        return value;
    }

    /**
     * The next keys and values, alternating, as {@link Processing.Stores#range} returns them.
     *
     * @param read what is told of a value; null if nothing is
     */
    List<byte[]> page(int limit, UnaryOperator<byte[]> read) {
        List<byte[]> found = new ArrayList<>();
        long size = 0;
        while (found.size() < 2 * limit && size < Processing.MOST_BYTES && next()) {
            byte[] told = read.apply(value);
            if (told != null) {
                found.add(key);
                found.add(told);
                size += key.length + told.length;
            }
        }
        return found;
    }

    @Override
    public void close() {
        if (isOpen) {
            isOpen = false;
            kept.close();
            closed.accept(this);
        }
    }
}
