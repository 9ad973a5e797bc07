package io.millstream.kernel.task;

import io.millstream.kernel.core.References;
import io.millstream.kernel.core.Window;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * References in the state of a task: each is an entry, under the length of the key, the key, and the name; with the
 * request that has made it. Sources: CombinedKeySchema, SubscriptionWrapperSerde.
 */
final class ReferenceRanges implements References.Kept {
    private final State state;
    private final int store;

    ReferenceRanges(State state, int store) {
        this.state = state;
        this.store = store;
    }

    private static byte[] name(byte[] key, byte[] behind) {
        return ByteBuffer.allocate(Integer.BYTES + key.length + behind.length)
                .putInt(key.length)
                .put(key)
                .put(behind)
                .array();
    }

    @Override
    public void put(byte[] key, byte[] name, Window reference) {
        byte[] entry = name(key, name);
        if (reference != null) {
            state.put(store, entry, new Entry(reference.at, null, (byte[]) reference.parts[0]).bytes());
        } else if (state.get(store, entry) != null) {
            state.put(store, entry, null);
        }
    }

    @Override
    public List<Window> all(byte[] key) {
        List<Window> found = new ArrayList<>();
        byte[] from = name(key, new byte[0]);
        state.range(store, from, State.after(from), (name, kept) -> {
            Entry entry = Entry.of(kept);
            Object[] parts = {entry.result(), Arrays.copyOfRange(name, from.length, name.length), true};
            found.add(new Window(0, 0, entry.timestamp(), parts));
        });
        return found;
    }
}
