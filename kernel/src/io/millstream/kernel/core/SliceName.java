package io.millstream.kernel.core;

import java.util.Arrays;

/** The key of a slice, and its number among those of the key. */
class SliceName {
    byte[] key;
    long number;
    private int keyHash;
    private int hash;

    final void set(byte[] toKey, long toNumber) {
        if (toKey != key) { // the same one is often asked for several times
            key = toKey;
            keyHash = Arrays.hashCode(toKey);
        }
        number = toNumber;
        hash = 31 * keyHash + Long.hashCode(toNumber);
    }

    @Override
    @SuppressWarnings("super")
    public final int hashCode() {
        return hash;
    }

    @Override
    @SuppressWarnings("super")
    public final boolean equals(Object other) {
        return other instanceof SliceName name && name.number == number && Arrays.equals(name.key, key);
    }
}
