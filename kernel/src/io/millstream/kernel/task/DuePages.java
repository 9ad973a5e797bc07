package io.millstream.kernel.task;

import io.millstream.kernel.core.Due;
import io.millstream.kernel.core.LastingDue;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;

/**
 * What is due, in a store that is not logged; all operators of a task can share it. It follows from the entries of
 * other stores, so it is derived anew when these are restored.
 */
final class DuePages implements LastingDue.Kept {
    private final Map<ByteBuffer, byte[]> inMemory;
    private final State state;
    private final int store;
    private final int operator;
    private final int number;

    /**
     * @param state null if it is only in memory
     * @param number its number among those of the operator
     */
    DuePages(State state, int store, int operator, int number) {
        this.inMemory = state == null ? new TreeMap<>() : null;
        this.state = state;
        this.store = store;
        this.operator = operator;
        this.number = number;
    }

    private byte[] get(byte[] name) {
        return state == null ? inMemory.get(ByteBuffer.wrap(name)) : state.get(store, name);
    }

    private void put(byte[] name, byte[] content) {
        if (state != null) {
            state.put(store, name, content);
        } else if (content == null) {
            inMemory.remove(ByteBuffer.wrap(name));
        } else {
            inMemory.put(ByteBuffer.wrap(name), content);
        }
    }

    private byte[] name(long span, int page) {
        return ByteBuffer.allocate(2 * Short.BYTES + Long.BYTES + Integer.BYTES)
                .putShort((short) operator)
                .putShort((short) number)
                .putLong(span)
                .putInt(page)
                .array();
    }

    private byte[] name() {
        return ByteBuffer.allocate(2 * Short.BYTES)
                .putShort((short) operator)
                .putShort((short) number)
                .array();
    }

    @Override
    public Map<Long, Integer> counts() {
        Map<Long, Integer> counts = new TreeMap<>();
        byte[] kept = get(name());
        for (ByteBuffer from = ByteBuffer.wrap(kept == null ? new byte[0] : kept); from.hasRemaining(); ) {
            counts.put(from.getLong(), from.getInt());
        }
        return counts;
    }

    @Override
    public void counts(NavigableMap<Long, Integer> counts) {
        ByteBuffer to = ByteBuffer.allocate(counts.size() * (Long.BYTES + Integer.BYTES));
        counts.forEach((span, count) -> to.putLong(span).putInt(count));
        put(name(), counts.isEmpty() ? null : to.array());
    }

    @Override
    public List<Due.Entry> read(long span, int page) {
        List<Due.Entry> entries = new ArrayList<>();
        try (DataInputStream in = Packing.from(get(name(span, page)))) {
            int size = in.readInt();
            for (int i = 0; i < size; i++) {
                long time = in.readLong();
                long slice = in.readLong();
                entries.add(new Due.Entry(time, in.readNBytes(in.readInt()), slice));
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return entries;
    }

    @Override
    public void write(long span, int page, List<Due.Entry> entries) {
        put(name(span, page), Packing.bytes(out -> {
            out.writeInt(entries.size());
            for (Due.Entry entry : entries) {
                out.writeLong(entry.time());
                out.writeLong(entry.number());
                out.writeInt(entry.key().length);
                out.write(entry.key());
            }
        }));
    }

    @Override
    public void delete(long span, int page) {
        put(name(span, page), null);
    }
}
