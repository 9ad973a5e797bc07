package io.millstream.kernel.task;

import io.millstream.kernel.core.DailyWindows;
import io.millstream.kernel.core.FixedWindows;
import io.millstream.kernel.core.SessionWindows;
import io.millstream.kernel.core.SlidingWindows;
import io.millstream.kernel.core.Versions;
import io.millstream.kernel.core.Window;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.function.LongUnaryOperator;

/**
 * How the windows of an item are entries of its store: each is one, under its key and a suffix of a fixed length, which
 * begins with a time. So the windows of a key are a range, in the order of these times, among those of longer keys.
 */
abstract class Layout {
    /** The length of the suffix. */
    final int suffix;
    /** The span of time of a slice. */
    final long span;
    /** What an entry has. */
    final Kept kept;
    /** Whether expired entries are forgotten by the changelog itself, because it is kept for a time. */
    final boolean isExpiring;

    /** Null for nothing. */
    final More more;

    /** What an entry has of a window. */
    enum Kept {
        /** Its parts, and the result, which others read. */
        TABLE,
        /** The value that others read, which says its parts. */
        VALUE,
        /** Its parts, which nobody else reads. */
        PARTS
    }

    private Layout(int suffix, long span, Kept kept, boolean isExpiring, More more) {
        this.suffix = suffix;
        this.span = Math.max(1, span);
        this.kept = kept;
        this.isExpiring = isExpiring;
        this.more = more;
    }

    /** @param isOfValues whether the entries have values that say their parts, where that can be */
    static Layout of(OperatorPlan.Item item, boolean isOfValues) {
        Kept kept = isOfValues ? Kept.VALUE : Kept.PARTS;
        String core = item.core();
        return switch (core) {
            case "whole", "latest" -> new OfRows();
            case "fixed" -> {
                long size = item.setting("size");
                long advance = item.setting("advance");
                yield new OfWindows(
                        FixedWindows.span(size, advance), advance, item.setting("origin"), start -> start + size);
            }
            case "sliding" -> {
                long size = item.setting("difference");
                yield new OfWindows(SlidingWindows.span(size), 1, 0, start -> start + size);
            }
            case "sessions" -> new OfSessions(SessionWindows.span(item.setting("gap"), item.setting("grace")));
            case "records" -> new OfRecords((item.setting("before") + item.setting("after")) / 2, kept, true);
            case "waiting" -> new OfRecords(1, Kept.PARTS, false);
            case "versions" -> new OfVersions(Versions.span(item.setting("history")));
            case "suppress" -> new OfUpdates(kept);
            default -> {
                if (!item.isDaily()) {
                    throw new IllegalArgumentException("no layout of '" + core + "'");
                }
                LongUnaryOperator ends = DailyWindows.ends(item.zone(), item.setting("hour"));
                yield new OfWindows(DailyWindows.DAY, 1, 0, ends);
            }
        };
    }

    /** The name of a window's entry. */
    final byte[] name(byte[] key, Window window) {
        ByteBuffer name = ByteBuffer.allocate(key.length + suffix).put(key);
        put(window, name);
        return name.array();
    }

    protected abstract void put(Window window, ByteBuffer name);

    /** The timestamp of a window's entry. */
    long timestamp(Window window) {
        return window.at;
    }

    /** The time of a deletion. */
    long deleted(Window window) {
        return Math.max(window.at, window.updated);
    }

    /** The window of an entry, without its value. */
    abstract Window window(ByteBuffer name, long at, Object[] parts);

    /** What a window has beside its parts and times. */
    interface More {
        void write(Window window, DataOutputStream out) throws IOException;

        void read(Window window, DataInputStream in) throws IOException;
    }

    /** The first time of a slice; that of the next one is where it ends. */
    long first(long slice) {
        return slice * span;
    }

    /** The names of all windows that a slice can have; null if they are too many to be looked up one by one. */
    abstract byte[][] names(byte[] key, long slice);

    static byte[] prefix(byte[] key, long time) {
        return ByteBuffer.allocate(key.length + Long.BYTES).put(key).putLong(time).array();
    }

    /** One row for each key. */
    private static final class OfRows extends Layout {
        OfRows() {
            super(0, 1, Kept.TABLE, false, null);
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            // Its key is the name.
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            return new Window(0, 0, at, parts);
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            return new byte[][] {key};
        }
    }

    /** As in Kafka Streams' window stores: the key, the start, and a sequence number. */
    private static final class OfWindows extends Layout {
        private static final int FEW = 2;

        private final long advance;
        private final long origin;
        private final LongUnaryOperator ends;
        private final long count;

        OfWindows(long span, long advance, long origin, LongUnaryOperator ends) {
            super(Long.BYTES + Integer.BYTES, span, Kept.TABLE, true, null);
            this.advance = advance;
            this.origin = origin;
            this.ends = ends;
            this.count = this.span / advance;
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            name.putLong(window.start).putInt(0);
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            long start = name.getLong();
            return new Window(start, ends.applyAsLong(start), at, parts);
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            if (count > FEW) {
                return null;
            }
            long start = origin - Math.floorDiv(origin - first(slice), advance) * advance;
            byte[][] names = new byte[(int) count][];
            for (int i = 0; i < count; i++) {
                names[i] = ByteBuffer.allocate(key.length + suffix)
                        .put(key)
                        .putLong(start + i * advance)
                        .putInt(0)
                        .array();
            }
            return names;
        }
    }

    /** As in Kafka Streams' session stores: the key, the end, and the start. */
    private static final class OfSessions extends Layout {
        OfSessions(long span) {
            super(2 * Long.BYTES, span, Kept.TABLE, true, null);
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            name.putLong(window.end).putLong(window.start);
        }

        @Override
        @SuppressWarnings("super")
        long timestamp(Window window) {
            return window.updated; // its end is its time
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            long end = name.getLong();
            Window window = new Window(name.getLong(), end, end, parts);
            window.updated = at;
            return window;
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            return null;
        }
    }

    /**
     * As in Kafka Streams' stores of records: the key, the time, and a number that those of this time do not share; and
     * whether it waits for a match.
     */
    private static final class OfRecords extends Layout {
        OfRecords(long span, Kept kept, boolean isExpiring) {
            super(Long.BYTES + Integer.BYTES, span, kept, isExpiring, new IsWaiting());
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            name.putLong(window.start).putInt((int) window.end);
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            long start = name.getLong();
            return new Window(start, name.getInt(), at, parts);
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            return null;
        }
    }

    private static final class IsWaiting implements More {
        @Override
        public void write(Window window, DataOutputStream out) throws IOException {
            out.writeBoolean(window.waits);
        }

        @Override
        public void read(Window window, DataInputStream in) throws IOException {
            window.waits = in.readBoolean();
        }
    }

    /** The key, and the end of the version; that of the last one is {@link Versions#NEVER}. */
    private static final class OfVersions extends Layout {
        OfVersions(long span) {
            super(Long.BYTES, span, Kept.PARTS, false, null);
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            name.putLong(window.end);
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            return new Window(at, name.getLong(), at, parts); // a version is valid from its own time on
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            return slice == Versions.LAST ? new byte[][] {prefix(key, Versions.NEVER)} : null;
        }
    }

    /** Held back updates, whose keys end with their windows' ends and starts. */
    private static final class OfUpdates extends Layout {
        OfUpdates(Kept kept) {
            super(0, 1, kept, false, new Held());
        }

        @Override
        @SuppressWarnings("super")
        long deleted(Window window) {
            return window.at; // it may be due much later
        }

        @Override
        protected void put(Window window, ByteBuffer name) {
            // Its key is the name.
        }

        @Override
        Window window(ByteBuffer name, long at, Object[] parts) {
            int behind = name.limit();
            return new Window(name.getLong(behind - Long.BYTES), name.getLong(behind - 2 * Long.BYTES), at, parts);
        }

        @Override
        byte[][] names(byte[] key, long slice) {
            return new byte[][] {key};
        }
    }
}
