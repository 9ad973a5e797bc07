package io.millstream.kernel.core;

/** A table as joins see it. They must not change what they get. */
public interface TableView {
    /** The key's value; null if it has none. */
    Window look(byte[] key);

    /** The key's value at a time, if the table knows it, or else its current value. */
    Window lookAsOf(byte[] key, long at);
}
