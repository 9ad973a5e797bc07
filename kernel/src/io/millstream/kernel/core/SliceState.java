package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/** Keeps slices beyond a micro-batch: Spark's state, or a map in a test. */
public interface SliceState {
    /** The windows of a slice; null if there is none. The list and its windows become the caller's. */
    ArrayList<Window> read(byte[] key, long slice);

    /** Replaces a slice; without windows, it is deleted. */
    void write(byte[] key, long slice, List<Window> windows);
}
