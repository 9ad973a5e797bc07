package io.millstream.kernel.core;

/** What comes of records: gets every change that is to be told. Nothing that it is given may be kept. */
public interface Told {
    /** A window has this value now. */
    void update(byte[] key, Window window);

    /** There is no such window any more. */
    void gone(byte[] key, Window window);

    /** A window has closed, with this value. Only of a core that is asked to tell so. */
    void closed(byte[] key, Window window);

    /** A record came for a window that has closed, and does not count. */
    void late(byte[] key, long at, long start, long end, long streamTime);
}
