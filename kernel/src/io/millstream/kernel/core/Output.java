package io.millstream.kernel.core;

/** Receives the changes that are emitted. It must not keep any argument. */
public interface Output {
    /** A window has this value now. */
    void update(byte[] key, Window window);

    /** There is no such window any more. */
    void gone(byte[] key, Window window);

    /** A window has closed with this value. Only from cores that emit closed windows. */
    void closed(byte[] key, Window window);

    /** A record came for a closed window, and is ignored. */
    void late(byte[] key, long at, long start, long end, long streamTime);
}
