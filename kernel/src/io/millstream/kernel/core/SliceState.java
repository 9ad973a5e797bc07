package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/** Keeps slices: the state of a task, or a map in a test. */
public interface SliceState {
    /** The windows of a slice; null if there is none. The list and its windows become the caller's. */
    ArrayList<Window> read(byte[] key, long slice);

    /**
     * Writes what has changed in a slice: the dirty ones of its windows.
     *
     * @param windows all there are; those that the state does not keep are removed from the list
     * @param removed windows that are in the state, and have to be deleted
     */
    void write(byte[] key, long slice, List<Window> windows, List<Window> removed);

    /**
     * Deletes a slice whose time is over.
     *
     * @param windows those that are in the state; null if they are not known
     */
    default void drop(byte[] key, long slice, List<Window> windows) {
        write(key, slice, List.of(), List.of());
    }

    /** Whether nothing was in it in the beginning. */
    default boolean isEmpty() {
        return false;
    }
}
