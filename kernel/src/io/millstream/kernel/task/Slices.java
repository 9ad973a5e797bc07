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

    Slices(State state, int store, Packing[] packings) {
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
        try (DataInputStream in = Packing.from(kept)) {
            int size = in.readInt();
            ArrayList<Window> windows = new ArrayList<>(size + 1);
            for (int i = 0; i < size; i++) {
                long start = in.readLong();
                long end = in.readLong();
                long at = in.readLong();
                Object[] parts = new Object[packings.length];
                for (int part = 0; part < parts.length; part++) {
                    parts[part] = packings[part].read(in);
                }
                windows.add(new Window(start, end, at, parts));
            }
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
        state.put(store, name(key, slice), Packing.bytes(out -> {
            out.writeInt(windows.size());
            for (Window window : windows) {
                out.writeLong(window.start);
                out.writeLong(window.end);
                out.writeLong(window.at);
                for (int i = 0; i < packings.length; i++) {
                    packings[i].write(window.parts[i], out);
                }
            }
        }));
    }
}
