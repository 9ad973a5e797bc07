package io.millstream.kernel.task;

import io.millstream.kernel.core.References;
import io.millstream.kernel.core.Window;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;

/** References in the state of a task: each is an entry, under the length of the key, the key, and the name. */
final class ReferenceRanges implements References.Kept {
    private final State state;
    private final int store;
    private final Content content;

    ReferenceRanges(State state, int store, Content content) {
        this.state = state;
        this.store = store;
        this.content = content;
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
            state.put(store, entry, content.write(reference.at, reference.parts));
        } else if (state.get(store, entry) != null) {
            state.put(store, entry, null);
        }
    }

    @Override
    public List<Window> all(byte[] key) {
        List<Window> found = new ArrayList<>();
        byte[] from = name(key, new byte[0]);
        state.range(store, from, after(from), (name, kept) -> found.add(content.read(kept)));
        return found;
    }

    /** The first bytes behind all that begin with a prefix; null if there are none. */
    private static byte[] after(byte[] prefix) {
        for (int last = prefix.length - 1; last >= 0; last--) {
            if (prefix[last] != (byte) 0xFF) {
                byte[] after = java.util.Arrays.copyOf(prefix, last + 1);
                after[last]++;
                return after;
            }
        }
        return null;
    }
}
