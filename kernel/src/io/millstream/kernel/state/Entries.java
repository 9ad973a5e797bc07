package io.millstream.kernel.state;

import io.millstream.kernel.core.Keys;
import io.millstream.kernel.python.Processing;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.streaming.MapState;

/**
 * A processor's store: a sorted map of bytes, for one task, in one micro-batch. All stores of an operator share one
 * map of Spark's, in which keys begin with the store's number.
 */
final class Entries implements Keys.Pages {
    private static final byte VALUE = 0;
    private static final byte PAGE = 1;
    private static final long MOST_BYTES = 1 << 26;

    private final MapState<byte[], byte[]> kept;
    private final int number;
    private final Keys keys;
    private long count;
    private final Map<ByteBuffer, Entry> known = new HashMap<>();
    private long bytes;

    private static final class Entry {
        byte[] value;
        boolean changed;

        Entry(byte[] value) {
            this.value = value;
        }
    }

    /**
     * @param top the top level of its keys' pages
     * @param count the number of its entries
     */
    Entries(MapState<byte[], byte[]> kept, int number, int top, long count) {
        this.kept = kept;
        this.number = number;
        this.keys = new Keys(this, top);
        this.count = count;
    }

    int top() {
        return keys.top();
    }

    long count() {
        return count;
    }

    byte[] get(byte[] key) {
        Entry entry = known.get(ByteBuffer.wrap(key));
        if (entry == null) {
            makeRoom();
            entry = note(key, new Entry(kept.getValue(name(VALUE, key))));
        }
        return entry.value;
    }

    private Entry note(byte[] key, Entry entry) {
        known.put(ByteBuffer.wrap(key), entry);
        bytes += 100L + key.length + (entry.value == null ? 0 : entry.value.length);
        return entry;
    }

    /** A value of null deletes the key. */
    void put(byte[] key, byte[] value) {
        Entry entry = known.get(ByteBuffer.wrap(key));
        boolean wasThere = entry != null && entry.value != null;
        if (value == null ? keys.remove(key) : !wasThere && keys.add(key)) {
            count += value == null ? -1 : 1;
        }
        if (entry == null) {
            entry = note(key, new Entry(null));
        }
        bytes += value == null ? 0 : value.length;
        entry.value = value;
        entry.changed = true;
        makeRoom();
    }

    private void makeRoom() {
        if (bytes > MOST_BYTES) {
            flush();
        }
    }

    /** As {@link io.millstream.kernel.python.Processing.Stores#range}. */
    List<byte[]> range(byte[] from, byte[] end, boolean isReverse, int limit) {
        List<byte[]> found = new ArrayList<>();
        byte[] key = isReverse ? keys.lower(end) : keys.higher(from == null ? new byte[0] : from, true);
        long size = 0;
        while (key != null
                && found.size() < 2 * limit
                && size < Processing.MOST_BYTES
                && isWithin(key, from, end, isReverse)) {
            byte[] value = get(key);
            found.add(key);
            found.add(value);
            size += key.length + value.length;
            key = isReverse ? keys.lower(key) : keys.higher(key, false);
        }
        return found;
    }

    private static boolean isWithin(byte[] key, byte[] from, byte[] end, boolean isReverse) {
        return isReverse
                ? from == null || Keys.compare(key, from) >= 0
                : end == null || Keys.compare(key, end) < 0;
    }

    /** Writes what has changed, and empties the cache. */
    void flush() {
        known.forEach((key, entry) -> {
            if (entry.changed) {
                keep(name(VALUE, key.array()), entry.value);
            }
        });
        known.clear();
        bytes = 0;
        keys.flush();
    }

    private void keep(byte[] name, byte[] content) {
        if (content == null) {
            kept.removeKey(name);
        } else {
            kept.updateValue(name, content);
        }
    }

    private byte[] name(byte kind, byte[] key) {
        return ByteBuffer.allocate(3 + key.length)
                .putShort((short) number)
                .put(kind)
                .put(key)
                .array();
    }

    // --- the pages of its keys -----------------------------------------------------------------------------

    @Override
    public byte[] read(byte[] name) {
        return kept.getValue(name(PAGE, name));
    }

    @Override
    public void write(byte[] name, byte[] content) {
        keep(name(PAGE, name), content);
    }
}
