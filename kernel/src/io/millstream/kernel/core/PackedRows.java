package io.millstream.kernel.core;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongPredicate;

/**
 * Rows of a table in memory, by their keys: packed into few large arrays, so that garbage collections do not have to
 * visit each of them.
 *
 * <p>A row that is not here may be kept elsewhere, unless this {@link #isWhole}. If there is no room, rows are omitted,
 * and this is no longer whole.
 */
public final class PackedRows {
    private static final int CHUNK = 1 << 20;
    private static final int FIRST = 1 << 12;
    private static final int SLOTS = 1 << 6;
    /** The unit of addresses, as a shift. */
    private static final int UNIT = 3;
    /** As many as can be addressed: 16 GB. */
    private static final int CHUNKS = Integer.MAX_VALUE / (CHUNK >> UNIT);

    private static final VarHandle INTS =
            MethodHandles.byteArrayViewVarHandle(int[].class, ByteOrder.nativeOrder());
    private static final VarHandle LONGS =
            MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

    /** Each row: its time, the lengths of its key and parts (-1 for null), and then their bytes. */
    private List<byte[]> chunks = new ArrayList<>();
    /** A hash table with linear probing: hash and address + 1; 0 for a free slot. */
    private long[] slots = new long[SLOTS];

    private final int parts;
    private final LongPredicate room;
    private int rows;
    /** The number of bytes used in the last chunk. */
    private int filled;

    private long wasted;
    private long bytes;
    private boolean isWhole;

    /**
     * @param parts the number of a row's parts, which are bytes or null
     * @param isWhole whether no row is kept elsewhere
     * @param room whether so many more bytes are available, which then count as taken; a negative number returns them
     */
    public PackedRows(int parts, boolean isWhole, LongPredicate room) {
        this.parts = parts;
        this.isWhole = isWhole;
        this.room = room;
    }

    /** Whether a key that is not here does not exist. */
    public boolean isWhole() {
        return isWhole;
    }

    /** The number of bytes that it has taken. */
    public long bytes() {
        return bytes;
    }

    /** The row of a key; null if it is not here. */
    public Window find(byte[] key) {
        long slot = slots[place(key, hash(key))];
        if (slot == 0) {
            return null;
        }
        int address = address(slot);
        byte[] chunk = chunk(address);
        int start = start(address);
        int next = start + header() + key.length;
        Object[] found = new Object[parts];
        for (int i = 0; i < parts; i++) {
            int length = (int) INTS.get(chunk, start + header() - Integer.BYTES * (parts - i));
            if (length >= 0) {
                found[i] = Arrays.copyOfRange(chunk, next, next + length);
                next += length;
            }
        }
        return new Window(0, 0, (long) LONGS.get(chunk, start), found);
    }

    /** Sets the row of a key. */
    public void put(byte[] key, Window row) {
        int size = header() + key.length;
        for (Object part : row.parts) {
            size += part == null ? 0 : ((byte[]) part).length;
        }
        int hash = hash(key);
        int place = place(key, hash);
        if (slots[place] != 0) {
            int before = size(address(slots[place]));
            if (size <= before) {
                write(address(slots[place]), key, row);
                return;
            }
            wasted += before;
        } else if (rows >= slots.length / 3 * 2) {
            if (!more((long) slots.length * Long.BYTES)) {
                isWhole = false;
                return;
            }
            spread();
            place = place(key, hash);
        }
        int address = allocate(size);
        if (address < 0) {
            isWhole = false;
            free(place);
            return;
        }
        rows += slots[place] == 0 ? 1 : 0;
        slots[place] = (long) hash << Integer.SIZE | address + 1;
        write(address, key, row);
        if (wasted > CHUNK && wasted > bytes / 2) {
            pack();
        }
    }

    /** Removes the row of a key. */
    public void remove(byte[] key) {
        int place = place(key, hash(key));
        if (slots[place] != 0) {
            wasted += size(address(slots[place]));
            free(place);
        }
    }

    private static int hash(byte[] key) {
        return SliceName.mixed(Arrays.hashCode(key));
    }

    /** The slot of a key, or a free slot for it. */
    private int place(byte[] key, int hash) {
        int mask = slots.length - 1;
        int place = hash & mask;
        while (slots[place] != 0 && !((int) (slots[place] >>> Integer.SIZE) == hash && isOf(key, slots[place]))) {
            place = place + 1 & mask;
        }
        return place;
    }

    private boolean isOf(byte[] key, long slot) {
        byte[] chunk = chunk(address(slot));
        int start = start(address(slot));
        int from = start + header();
        return (int) INTS.get(chunk, start + Long.BYTES) == key.length
                && Arrays.equals(chunk, from, from + key.length, key, 0, key.length);
    }

    /** Frees a slot, and closes the gap, because keys behind it could not be found otherwise. */
    private void free(int place) {
        if (slots[place] == 0) {
            return;
        }
        int mask = slots.length - 1;
        int gap = place;
        for (int next = gap + 1 & mask; slots[next] != 0; next = next + 1 & mask) {
            int home = (int) (slots[next] >>> Integer.SIZE) & mask;
            if ((next - home & mask) >= (next - gap & mask)) {
                slots[gap] = slots[next];
                gap = next;
            }
        }
        slots[gap] = 0;
        rows--;
    }

    private void spread() {
        long[] before = slots;
        slots = new long[2 * before.length];
        int mask = slots.length - 1;
        for (long slot : before) {
            if (slot != 0) {
                int place = (int) (slot >>> Integer.SIZE) & mask;
                while (slots[place] != 0) {
                    place = place + 1 & mask;
                }
                slots[place] = slot;
            }
        }
    }

    // --- bytes -------------------------------------------------------------------------------------------

    private int header() {
        return Long.BYTES + Integer.BYTES * (1 + parts);
    }

    private static int address(long slot) {
        return (int) slot - 1;
    }

    private byte[] chunk(int address) {
        return chunks.get(address / (CHUNK >> UNIT));
    }

    private static int start(int address) {
        return address % (CHUNK >> UNIT) << UNIT;
    }

    private int size(int address) {
        byte[] chunk = chunk(address);
        int start = start(address);
        int size = header() + (int) INTS.get(chunk, start + Long.BYTES);
        for (int i = 0; i < parts; i++) {
            size += Math.max(0, (int) INTS.get(chunk, start + Long.BYTES + Integer.BYTES * (1 + i)));
        }
        return size;
    }

    private void write(int address, byte[] key, Window row) {
        byte[] chunk = chunk(address);
        int start = start(address);
        LONGS.set(chunk, start, row.at);
        INTS.set(chunk, start + Long.BYTES, key.length);
        int next = start + header();
        System.arraycopy(key, 0, chunk, next, key.length);
        next += key.length;
        for (int i = 0; i < parts; i++) {
            byte[] part = (byte[]) row.parts[i];
            INTS.set(chunk, start + Long.BYTES + Integer.BYTES * (1 + i), part == null ? -1 : part.length);
            if (part != null) {
                System.arraycopy(part, 0, chunk, next, part.length);
                next += part.length;
            }
        }
    }

    /** The address of so many free bytes; negative if there is no room. */
    private int allocate(int size) {
        int last = chunks.size() - 1;
        int length = last < 0 ? 0 : chunks.get(last).length;
        if (size > CHUNK) {
            return -1;
        }
        if (last < 0 || filled + size > CHUNK) {
            int first = last < 0 ? larger(FIRST, size) : CHUNK;
            if (chunks.size() >= CHUNKS || !more(first)) {
                return -1;
            }
            chunks.add(new byte[first]);
            last++;
            filled = 0;
        } else if (filled + size > length) { // the first chunk grows until it is as large as the others
            int longer = larger(length, filled + size);
            if (!more(longer - length)) {
                return -1;
            }
            chunks.set(last, Arrays.copyOf(chunks.get(last), longer));
        }
        int address = last * (CHUNK >> UNIT) + (filled >> UNIT);
        filled = filled + size + (1 << UNIT) - 1 >> UNIT << UNIT;
        return address;
    }

    private static int larger(int than, int least) {
        int length = than;
        while (length < least) {
            length *= 2;
        }
        return length;
    }

    private boolean more(long wanted) {
        if (!room.test(wanted)) {
            return false;
        }
        bytes += wanted;
        return true;
    }

    /** Drops bytes that are not used any more. */
    private void pack() {
        PackedRows packed = new PackedRows(parts, isWhole, more -> true);
        for (long slot : slots) {
            if (slot != 0) {
                int address = address(slot);
                int from = start(address) + header();
                byte[] chunk = chunk(address);
                int length = (int) INTS.get(chunk, start(address) + Long.BYTES);
                byte[] key = Arrays.copyOfRange(chunk, from, from + length);
                packed.put(key, find(key));
            }
        }
        chunks = packed.chunks;
        slots = packed.slots;
        rows = packed.rows;
        filled = packed.filled;
        wasted = 0;
        room.test(packed.bytes - bytes);
        bytes = packed.bytes;
    }
}
