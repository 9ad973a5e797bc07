package io.millstream.kernel.core;

/** One value of a key, for all time. Source: KStreamAggregate. */
public final class WholeTime extends Core {
    public WholeTime(Parts parts, Table table, Told told, long streamTime) {
        super(parts, table, told, streamTime);
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        Slice slice = table.slice(key, 0);
        Window window;
        if (slice.size() == 0) {
            window = new Window(0, 0, at, parts.first(record));
            table.add(slice, window);
        } else {
            window = slice.get(0);
            window.at = Math.max(window.at, at);
            parts.add(window.parts, record);
        }
        table.changed(slice, window);
    }
}
