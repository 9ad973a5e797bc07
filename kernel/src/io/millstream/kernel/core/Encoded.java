package io.millstream.kernel.core;

/** The value of a part that is kept as bytes, and is something else as long as it is worked on. */
public interface Encoded {
    /** What is kept; null for nothing. */
    byte[] bytes();
}
