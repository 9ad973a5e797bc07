package io.millstream.kernel.core;

import java.util.Arrays;

/** The key of a slice, and its number among those of the key. */
class SliceName {
    /** The golden ratio: the sums of consecutive keys' hashes and numbers are different. */
    private static final int SPREAD = 0x9E3779B9;

    byte[] key;
    long number;
    private int keyHash;
    private int hash;

    final void set(byte[] toKey, long toNumber) {
        if (toKey != key) { // the same key is often requested several times
            key = toKey;
            keyHash = Arrays.hashCode(toKey);
        }
        number = toNumber;
        hash = mixed(SPREAD * keyHash + Long.hashCode(toNumber));
    }

    /** Spreads consecutive keys (k001, k002, …), which would be close together. Source: MurmurHash3's fmix32. */
    static int mixed(int hash) {
        int mixed = (hash ^ hash >>> 16) * 0x85EBCA6B;
        mixed = (mixed ^ mixed >>> 13) * 0xC2B2AE35;
        return mixed ^ mixed >>> 16;
    }

    @Override
    @SuppressWarnings("super")
    public final int hashCode() {
        return hash;
    }

    @Override
    @SuppressWarnings("super")
    public final boolean equals(Object other) {
        return other instanceof SliceName name
                && name.hash == hash
                && name.number == number
                && Arrays.equals(name.key, key);
    }
}
