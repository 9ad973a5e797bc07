package io.millstream.kernel.core;

import java.util.Arrays;

/**
 * What the records of each key come to, for a while: in a few arrays, as small as can be, so that a record costs
 * little. For rules that do not ask in which order records come.
 */
public final class Sums {
    private static final int FREE = -1;

    private final Parts parts;
    private final int capacity;
    /** By hash: the number of a key, or FREE. At most half of them are taken. */
    private final int[] slots;

    private final int[] hashes;
    /** The bytes of all keys, and where each ends. */
    private byte[] keys = new byte[1 << 16];

    private final int[] ends;
    private final long[] times;
    private final Object[][] sums;
    private int size;

    /** @param capacity of how many keys it is full */
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

    /** Takes in a record. It is not kept as it is. */
    public void add(byte[] key, long at, Object[] record) {
        int hash = SliceName.mixed(Arrays.hashCode(key));
        int slot = hash & slots.length - 1;
        while (slots[slot] != FREE) {
            int number = slots[slot];
            if (hashes[number] == hash && is(number, key)) {
                times[number] = Math.max(times[number], at);
                parts.add(sums[number], record);
                return;
            }
            slot = slot + 1 & slots.length - 1;
        }
        slots[slot] = size;
        begin(hash, key, at, record);
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

    /** How many keys there are: they are numbered as they first came. */
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

    /** Begins anew. */
    public void clear() {
        Arrays.fill(slots, FREE);
        Arrays.fill(sums, 0, size, null);
        size = 0;
    }
}
