package io.millstream.kernel.core;

/** A table, as joins look into it. What they are given is not to be changed. */
public interface TableView {
    /** What the key has; null for nothing. */
    Window look(byte[] key);

    /** What the key had at a time, where the table knows that; otherwise what it has. */
    Window lookAsOf(byte[] key, long at);
}
