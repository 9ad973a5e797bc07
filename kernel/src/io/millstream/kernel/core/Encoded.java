package io.millstream.kernel.core;

/** The value of a part that is kept as bytes, but has another form while it is in use. */
public interface Encoded {
    /** The bytes to keep; null for nothing. */
    byte[] bytes();
}
