package io.millstream.kernel.task;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** Whether what is derived from the entries of stores has followed all that was restored. */
final class Derived {
    private static final byte[] RESTORED = {(byte) 0xFF};
    /** In place of an operator's number. */
    private static final int OF_STORES = -1;

    private final State state;
    private final int store;
    private final byte[] name;

    /**
     * What an operator derives.
     *
     * @param store the number of the store for what is due
     */
    Derived(State state, int store, int operator) {
        this.state = state;
        this.store = store;
        this.name = ByteBuffer.allocate(Short.BYTES).putShort((short) operator).array();
    }

    /** The stores that follow from others. */
    static Derived ofStores(State state, int store) {
        return new Derived(state, store, OF_STORES);
    }

    /**
     * Notes, before the state is committed, that entries were restored of which no operator has heard by
     * {@link Operation#restored}.
     */
    static void outdate(State state, int store) {
        byte[] last = state.get(store, RESTORED);
        long count = last == null ? 0 : ByteBuffer.wrap(last).getLong();
        state.put(store, RESTORED, ByteBuffer.allocate(Long.BYTES).putLong(count + 1).array());
    }

    boolean isOutdated() {
        return !Arrays.equals(state.get(store, RESTORED), state.get(store, name));
    }

    void update() {
        if (isOutdated()) {
            state.put(store, name, state.get(store, RESTORED));
        }
    }
}
