package io.millstream.kernel.core;

/** A core with one value for each key, for all time. */
public abstract class Keyed extends Core implements TableView {
    protected Keyed(Task task) {
        super(task);
    }

    @Override
    public final boolean derive(byte[] key, Window window) {
        return true;
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        return table.slice(key, 0);
    }

    /** The key's current value; null if it has none. Must not be changed. */
    public final Window now(byte[] key) {
        return valueOf(table.slice(key, 0));
    }

    static Window valueOf(Slice slice) {
        return slice.windows.isEmpty() ? null : slice.windows.get(0);
    }

    /** Whether it is a row, and not a deleted key. */
    static boolean isThere(Window window) {
        if (window != null) {
            for (Object part : window.parts) {
                if (part != null) {
                    return true;
                }
            }
        }
        return false;
    }

    @Override
    public final Window look(byte[] key) {
        return valueOf(table.look(key, 0));
    }

    @Override
    public final Window lookAsOf(byte[] key, long at) {
        return look(key);
    }
}
