package io.millstream.kernel.task;

import io.millstream.kernel.core.SliceState;
import io.millstream.kernel.core.Window;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** The slices of an aggregation in the state of a task: each is one entry. */
final class Slices implements SliceState {
    private final State state;
    private final int store;
    private final Packing[] packings;
    private final Values values;

    /** The values of a store, in bytes. */
    interface Values {
        byte[] of(byte[] key, Window window);
    }

    Slices(State state, int store, Packing[] packings, Values values) {
        this.values = values;
        this.state = state;
        this.store = store;
        this.packings = packings;
    }

    private static byte[] name(byte[] key, long slice) {
        return slice == 0
                ? key
                : ByteBuffer.allocate(key.length + Long.BYTES).put(key).putLong(slice).array();
    }

    @Override
    public ArrayList<Window> read(byte[] key, long slice) {
        byte[] kept = state.get(store, name(key, slice));
        if (kept == null) {
            return null;
        }
        Entry entry = Entry.of(kept);
        try (DataInputStream in = Packing.from(entry.parts())) {
            Object[] parts = new Object[packings.length];
            for (int part = 0; part < parts.length; part++) {
                parts[part] = packings[part].read(in);
            }
            ArrayList<Window> windows = new ArrayList<>(1);
            windows.add(new Window(0, 0, entry.timestamp(), parts));
            return windows;
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    @Override
    public void write(byte[] key, long slice, List<Window> windows) {
        if (windows.isEmpty()) {
            state.put(store, name(key, slice), null);
            return;
        }
        Window window = windows.get(0);
        byte[] parts = Packing.bytes(out -> {
            for (int i = 0; i < packings.length; i++) {
                packings[i].write(window.parts[i], out);
            }
        });
        state.put(store, name(key, slice), new Entry(window.at, parts, values.of(key, window)).bytes());
    }
}
