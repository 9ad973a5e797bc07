package io.millstream.kernel.core;

/** Receives the changed rows of a table, and nothing else, because a table has no windows. */
public abstract class TableOutput implements Output {
    @Override
    public final void gone(byte[] key, Window window) {
        throw new IllegalStateException("a row stays, with nothing in it");
    }

    @Override
    public final void closed(byte[] key, Window window) {
        throw new IllegalStateException("a table of no windows closes nothing");
    }

    @Override
    public final void late(byte[] key, long at, long start, long end, long streamTime) {
        throw new IllegalStateException("a table of no windows finds nothing late");
    }
}
