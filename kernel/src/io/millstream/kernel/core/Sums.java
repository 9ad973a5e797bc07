package io.millstream.kernel.core;

import java.util.Arrays;

/**
 * The intermediate aggregates of each key's records, in a few compact arrays, so that a record costs little. For rules
 * that do not depend on the order of records.
 */
public final class Sums {
    private static final int FREE = -1;

    private final Parts parts;
    private final int capacity;
    /** The number of a key, by its hash, or FREE. At most half of the slots are taken. */
    private final int[] slots;

    private final int[] hashes;
    /** The bytes of all keys, and where each ends. */
    private byte[] keys = new byte[1 << 16];

    private final int[] ends;
    private final long[] times;
    private final Object[][] sums;
    /** Those of each key's last record; null as long as no record has had any. */
    private byte[][] headers;

    private int size;

    /** @param capacity the number of keys at which it is full */
    public Sums(Parts parts, int capacity) {
        this.parts = parts;
        this.capacity = capacity;
        this.slots = new int[Integer.highestOneBit(Math.max(capacity, 1)) * 4];
        this.hashes = new int[capacity];
        this.ends = new int[capacity];
        this.times = new long[capacity];
        this.sums = new Object[capacity][];
        Arrays.fill(slots, FREE);
    }

    /**
     * Adds a record, which is not kept itself.
     *
     * @param last its headers, kept without a copy; null for none
     */
    public void add(byte[] key, long at, Object[] record, byte[] last) {
        int number = add(key, at, record);
        if (last != null && headers == null) {
            headers = new byte[sums.length][];
        }
        if (headers != null) {
            headers[number] = last;
        }
    }

    /** Returns the number of the record's key. */
    private int add(byte[] key, long at, Object[] record) {
        int hash = SliceName.mixed(Arrays.hashCode(key));
        int slot = hash & slots.length - 1;
        while (slots[slot] != FREE) {
            int number = slots[slot];
            if (hashes[number] == hash && is(number, key)) {
                times[number] = Math.max(times[number], at);
                parts.add(sums[number], record);
                return number;
            }
            slot = slot + 1 & slots.length - 1;
        }
        slots[slot] = size;
        begin(hash, key, at, record);
        return size - 1;
    }

    private boolean is(int number, byte[] key) {
        return Arrays.equals(keys, begin(number), ends[number], key, 0, key.length);
    }

    private void begin(int hash, byte[] key, long at, Object[] record) {
        int begin = begin(size);
        if (keys.length - begin < key.length) {
            keys = Arrays.copyOf(keys, Math.max(2 * keys.length, begin + key.length));
        }
        System.arraycopy(key, 0, keys, begin, key.length);
        hashes[size] = hash;
        ends[size] = begin + key.length;
        times[size] = at;
        sums[size] = parts.first(record);
        size++;
    }

    private int begin(int number) {
        return number == 0 ? 0 : ends[number - 1];
    }

    public boolean isFull() {
        return size == capacity;
    }

    /** The number of keys, which are numbered by first arrival. */
    public int size() {
        return size;
    }

    public byte[] key(int number) {
        return Arrays.copyOfRange(keys, begin(number), ends[number]);
    }

    /** The largest timestamp of its records. */
    public long at(int number) {
        return times[number];
    }

    public Object[] parts(int number) {
        return sums[number];
    }

    /** Whether any record has had headers, also of the keys that were removed. */
    public boolean hasHeaders() {
        return headers != null;
    }

    /** Those of its last record; null for none. */
    public byte[] headers(int number) {
        return headers == null ? null : headers[number];
    }

    /** Removes all keys. */
    public void clear() {
        Arrays.fill(slots, FREE);
        Arrays.fill(sums, 0, size, null);
        if (headers != null) {
            Arrays.fill(headers, 0, size, null);
        }
        size = 0;
    }
}
