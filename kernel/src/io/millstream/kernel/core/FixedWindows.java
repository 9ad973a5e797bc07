package io.millstream.kernel.core;

/** Windows of one size that begin every {@code advance}, aligned to the epoch. Source: KStreamWindowAggregate. */
public final class FixedWindows extends Core {
    private final long size;
    private final long advance;
    private final long grace;
    private final long span;
    private final Due due;

    public FixedWindows(
            Parts parts, Table table, Told told, Due due, long streamTime, long size, long advance, long grace) {
        super(parts, table, told, streamTime);
        this.size = size;
        this.advance = advance;
        this.grace = grace;
        this.span = span(size, advance);
        this.due = due;
    }

    /** The span of time whose windows are kept together: those of a record are in two slices at most. */
    static long span(long size, long advance) {
        return size / advance * advance;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        long closes = streamTime - grace;
        long first = Math.max(0, at - size + advance) / advance * advance;
        for (long start = first; start <= at; start += advance) {
            if (start + size > closes) {
                update(key, start, at, record);
            } else {
                told.late(key, at, start, start + size, streamTime);
            }
        }
    }

    private void update(byte[] key, long start, long at, Object[] record) {
        long number = start / span;
        Slice slice = table.slice(key, number);
        Window window = slice.find(start);
        if (window == null) {
            if (slice.size() == 0 && slice.isNew) {
                due.add((number + 1) * span - advance + size, key, number);
            }
            window = new Window(start, start + size, at, parts.first(record));
            table.add(slice, window);
        } else {
            window.at = Math.max(window.at, at);
            parts.add(window.parts, record);
        }
        table.changed(slice, window);
    }

    @Override
    public void finish() {
        // A slice whose last window has closed is not needed any more.
        due.take(streamTime - grace, (key, number) -> {
            Slice slice = table.slice(key, number);
            while (slice.size() > 0) {
                table.drop(slice, slice.get(slice.size() - 1));
            }
        });
        super.finish();
        due.flush();
    }
}
