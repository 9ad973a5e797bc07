package io.millstream.kernel.core;

/** One value of a key, for all time. Source: KStreamAggregate. */
public final class WholeTime extends Core {
    public WholeTime(Task task) {
        super(task);
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        return table.slice(key, 0);
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        Slice slice = table.slice(key, 0);
        Window window;
        if (slice.windows.isEmpty()) {
            window = new Window(0, 0, at, parts.first(record));
            table.add(slice, window);
        } else {
            window = slice.windows.get(0);
            window.at = Math.max(window.at, at);
            parts.add(window.parts, record);
        }
        table.changed(window);
    }
}
