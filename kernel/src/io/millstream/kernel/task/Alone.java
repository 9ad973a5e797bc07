package io.millstream.kernel.task;

import io.millstream.kernel.core.Window;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * The records of one side of a join that wait for a match, as Kafka Streams keeps them: the values of a key and a time
 * in one entry. It follows the store of the side's records, and says which of those wait that another program has
 * written. Sources: TimestampedKeyAndJoinSideSerializer, LeftOrRightValueSerializer, ListValueStore.
 */
final class Alone {
    /** How a list begins whose values have lengths of their own. Source: ListSerializer. */
    private static final byte LENGTHS = 1;

    private final State state;
    private final int store;
    private final byte side;

    Alone(State state, int store, boolean isLeft) {
        this.state = state;
        this.store = store;
        this.side = (byte) (isLeft ? 1 : 0);
    }

    /** Whether a record of this key, time and value waits. */
    boolean has(byte[] key, long at, byte[] value) {
        byte[] kept = state.get(store, name(key, at));
        if (kept == null) {
            return false;
        }
        ByteBuffer list = ByteBuffer.wrap(Entry.of(kept).result());
        list.get();
        for (int left = list.getInt(); left > 0; left--) {
            byte[] one = new byte[list.getInt()];
            list.get(one);
            if (Arrays.equals(one, 1, one.length, value, 0, value.length)) {
                return true;
            }
        }
        return false;
    }

    /** Follows the records of a slice that have begun to wait, or have ended. */
    void settle(byte[] key, List<Window> windows, Content content) {
        for (Window window : windows) {
            if (window.waits != window.waited) {
                keep(key, window.start, windows, content);
            }
        }
    }

    private void keep(byte[] key, long at, List<Window> windows, Content content) {
        List<byte[]> waiting = new ArrayList<>();
        int size = 1 + Integer.BYTES;
        for (Window window : windows) {
            if (window.start > at) {
                break;
            }
            if (window.start == at) {
                window.waited = window.waits;
                if (window.waits) {
                    waiting.add(content.result(key, window));
                    size += Integer.BYTES + 1 + waiting.get(waiting.size() - 1).length;
                }
            }
        }
        if (waiting.isEmpty()) {
            state.put(store, name(key, at), null);
            return;
        }
        ByteBuffer list = ByteBuffer.allocate(size).put(LENGTHS).putInt(waiting.size());
        waiting.forEach(value -> list.putInt(1 + value.length).put(side).put(value));
        state.put(store, name(key, at), new Entry(at, null, list.array()).bytes());
    }

    private byte[] name(byte[] key, long at) {
        return ByteBuffer.allocate(Long.BYTES + 1 + key.length).putLong(at).put(side).put(key).array();
    }
}
