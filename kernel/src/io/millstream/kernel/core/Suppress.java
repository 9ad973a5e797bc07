package io.millstream.kernel.core;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;

/**
 * Holds back the updates of a table, and emits the last one of each key when its time has come, as closed.
 *
 * <p>It gets them as records, or as another core's changes (see {@link #of}). Sources: KTableSuppressProcessor,
 * InMemoryTimeOrderedKeyValueChangeBuffer.
 */
public final class Suppress extends Core {
    /** The indexes of the clock's own numbers: how many updates are held back, and how many bytes. */
    private static final int RECORDS = 0;

    private static final int BYTES = 1;
    private static final int WINDOW = 2 * Long.BYTES;

    private final Due held;
    private final Limits limits;

    /**
     * When updates are released.
     *
     * @param name the operation's name, for messages
     * @param untilClose when their window closes (deletions are never released); otherwise after some time
     * @param delay how long after the window's end, or after the first update's time
     * @param records the maximum number of held updates; beyond it, the first ones are released
     * @param bytes the same for their estimated size
     * @param stops beyond the maximum, fail
     * @param isWindowed the first two parts of a record are its window's start and end
     * @param isLogged also emit what is held back, as updates, and as gone when it is released
     */
    public record Limits(
            String name,
            boolean untilClose,
            long delay,
            long records,
            long bytes,
            boolean stops,
            boolean isWindowed,
            boolean isLogged) {}

    public Suppress(Task task, Limits limits) {
        super(task);
        this.held = task.closing();
        this.limits = limits;
    }

    /** The receiver to use instead of the given one, so that its updates are held back, too. */
    public Output of(Output first) {
        return new Output() {
            @Override
            public void update(byte[] key, Window window) {
                first.update(key, window);
                table.of(window.headers);
                hold(key, window.start, window.end, window.at, window.parts, false);
            }

            @Override
            public void gone(byte[] key, Window window) {
                first.gone(key, window);
                table.of(window.headers);
                hold(key, window.start, window.end, window.at, new Object[parts.size()], true);
            }

            @Override
            public void closed(byte[] key, Window window) {
                first.closed(key, window);
            }

            @Override
            public void late(byte[] key, long at, long start, long end, long streamTime) {
                first.late(key, at, start, end, streamTime);
            }
        };
    }

    /** The receiver of the table of held updates, which converts names of slices to the keys themselves. */
    public static Output log(Output output) {
        return new Output() {
            @Override
            public void update(byte[] name, Window window) {
                output.update(key(name), window);
            }

            @Override
            public void gone(byte[] name, Window window) {
                output.gone(key(name), window);
            }

            @Override
            public void closed(byte[] name, Window window) {
                throw new IllegalStateException("a table closes nothing");
            }

            @Override
            public void late(byte[] name, long at, long start, long end, long streamTime) {
                throw new IllegalStateException("a table finds nothing late");
            }
        };
    }

    private static byte[] key(byte[] name) {
        return Arrays.copyOf(name, name.length - WINDOW);
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        throw new UnsupportedOperationException("what is held back is in no changelog of its table");
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        if (limits.isWindowed) {
            hold(key, (Long) record[0], (Long) record[1], at, record, false);
        } else {
            hold(key, 0, 0, at, record, false);
        }
    }

    /** Emits a row that was processed earlier, unless a later update of it is held back. */
    public void restored(byte[] key, long at, Object[] record) {
        boolean isWindowed = limits.isWindowed;
        restored(key, new Window(isWindowed ? (Long) record[0] : 0, isWindowed ? (Long) record[1] : 0, at, record));
    }

    /** The same of a row of the table whose changes it gets. */
    public void restored(byte[] key, Window window) {
        table.makeRoom();
        if (table.slice(name(key, window.start, window.end), 0).windows.isEmpty()) {
            output.closed(key, window);
        }
    }

    /** Updates of the same time are released in this order. */
    private static byte[] name(byte[] key, long start, long end) {
        return ByteBuffer.allocate(key.length + WINDOW)
                .put(key)
                .putLong(end)
                .putLong(start)
                .array();
    }

    private void hold(byte[] key, long start, long end, long at, Object[] value, boolean gone) {
        table.makeRoom();
        clock.streamTime = Math.max(clock.streamTime, at);
        byte[] name = name(key, start, end);
        Slice slice = table.slice(name, 0);
        if (slice.windows.isEmpty()) {
            Window window = new Window(start, end, at, parts.copy(value));
            window.updated = limits.untilClose ? end : at;
            window.gone = gone;
            table.add(slice, window);
            held.add(window.updated, name, 0);
            clock.own[RECORDS]++;
        } else {
            Window window = slice.windows.get(0);
            clock.own[BYTES] -= size(name, window);
            window.at = at;
            window.parts = parts.copy(value);
            window.gone = gone;
        }
        Window last = slice.windows.get(0);
        last.headers = table.headers();
        clock.own[BYTES] += size(name, last);
        if (limits.isLogged) {
            table.changed(last);
        } else {
            table.touch(last);
        }
        held.take(clock.streamTime - limits.delay).forEach(this::release);
        while (clock.own[RECORDS] > limits.records || clock.own[BYTES] > limits.bytes) {
            if (limits.stops) {
                throw new IllegalStateException(String.format(
                        "%s buffer exceeded its max capacity. Currently [%d/%d] records and [%d/%d] bytes.",
                        limits.name, clock.own[RECORDS], limits.records, clock.own[BYTES], limits.bytes));
            }
            release(held.first());
        }
    }

    @Override
    public boolean derive(byte[] name, Window window) {
        held.add(window.updated, name, 0);
        return true;
    }

    /** Counts an update that was read back, if the clock's own numbers were not. */
    public void count(byte[] name, Window window) {
        clock.own[RECORDS]++;
        clock.own[BYTES] += size(name, window);
    }

    private void release(Due.Entry entry) {
        table.makeRoom();
        byte[] name = entry.key();
        Slice slice = table.slice(name, 0);
        if (slice.windows.isEmpty() || slice.windows.get(0).updated != entry.time()) {
            return; // it was released before
        }
        Window window = slice.windows.get(0);
        clock.own[RECORDS]--;
        clock.own[BYTES] -= size(name, window);
        if (!limits.untilClose || !window.gone) {
            output.closed(key(name), window);
        }
        if (limits.isLogged) {
            table.remove(window);
        } else {
            table.forget(window);
        }
    }

    /** About the size that Kafka Streams would count: of key, value, headers, two times, and the record's position. */
    private static long size(byte[] name, Window window) {
        return name.length + Long.BYTES + Integer.BYTES + size(Arrays.asList(window.parts)) + length(window.headers);
    }

    private static int length(byte[] bytes) {
        return bytes == null ? 0 : bytes.length;
    }

    private static long size(Object value) {
        if (value instanceof Encoded encoded) {
            return size(encoded.bytes());
        }
        if (value instanceof byte[] bytes) {
            return bytes.length;
        }
        if (value instanceof String text) {
            return text.length();
        }
        if (value instanceof List<?> list) {
            return list.stream().mapToLong(Suppress::size).sum();
        }
        return value == null ? 0 : Long.BYTES;
    }

    @Override
    public void finish() {
        super.finish();
        held.flush();
    }
}
