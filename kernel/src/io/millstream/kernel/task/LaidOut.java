package io.millstream.kernel.task;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * A store of processors whose entries do not lie under the keys of its changelog: it is restored from there as
 * processors have filled it. The layouts are those of millstream/processors/stores.py, which has the theory.
 *
 * <p>Their names: `window`, `duplicates` and `session`, and then the retention in ms; `versioned`, and then how far the
 * history goes back. `plain` are entries as the changelog has them.
 */
abstract class LaidOut {
    private static final String PLAIN = "plain";
    private static final byte[] MARK = {};
    private static final long NO_TIME = -1;

    private final State state;
    private final int store;
    /** For how long entries are kept. */
    protected final long span;
    /** The newest time of all. */
    protected long newest = NO_TIME;

    private LaidOut(State state, int store, long span) {
        this.state = state;
        this.store = store;
        this.span = span;
    }

    /** For one store; null if its entries are those of its changelog. */
    static LaidOut of(State state, int store, String layout) {
        if (isPlain(layout)) {
            return null;
        }
        int space = layout.indexOf(' ');
        long span = Long.parseLong(layout.substring(space + 1));
        LaidOut made = switch (layout.substring(0, space)) {
            case "window" -> new InSegments(state, store, span, false, false);
            case "duplicates" -> new InSegments(state, store, span, false, true);
            case "session" -> new InSegments(state, store, span, true, false);
            case "versioned" -> new Versioned(state, store, span);
            default -> throw new IllegalArgumentException("the layout of a store is not known: " + layout);
        };
        byte[] mark = made.get(MARK);
        if (mark != null) {
            made.begin(ByteBuffer.wrap(mark));
        }
        return made;
    }

    static boolean isPlain(String layout) {
        return layout.isEmpty() || layout.equals(PLAIN);
    }

    /** What the mark says. */
    protected abstract void begin(ByteBuffer mark);

    /** Puts what follows from a record of the changelog. */
    abstract void restore(byte[] key, byte[] value, long at);

    // --- for the layouts ---------------------------------------------------------------------------------

    protected final byte[] get(byte[] key) {
        return state.get(store, key);
    }

    protected final void put(byte[] key, byte[] value) {
        state.put(store, key, value);
    }

    protected final void mark(byte[] content) {
        put(MARK, content);
    }

    protected final List<byte[]> keys(byte[] from, byte[] to) {
        List<byte[]> keys = new ArrayList<>();
        state.range(store, from, to, (key, value) -> keys.add(key));
        return keys;
    }

    /** The key of the first entry in a range, or of the last one; null if there is none. */
    protected final byte[] first(byte[] from, byte[] to, boolean isReverse) {
        try (Cursor entries = state.range(store, from, to, isReverse)) {
            return entries.next() ? entries.key() : null;
        }
    }

    protected static byte[] number(long number) {
        return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }

    protected static byte[] join(byte[]... parts) {
        ByteArrayOutputStream all = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            all.writeBytes(part);
        }
        return all.toByteArray();
    }

    /** A key in a form that sorts correctly even if other bytes follow it. */
    protected static byte[] escaped(byte[] key, int length) {
        ByteArrayOutputStream all = new ByteArrayOutputStream(length + 2);
        for (int i = 0; i < length; i++) {
            all.write(key[i]);
            if (key[i] == 0) {
                all.write(0xFF);
            }
        }
        all.write(0);
        all.write(0);
        return all.toByteArray();
    }

    /** Windows or sessions, in segments of time. */
    private static final class InSegments extends LaidOut {
        private static final long LEAST_INTERVAL = 60_000;
        private static final int WINDOW_TAIL = Long.BYTES + Integer.BYTES;

        private final long interval;
        private final boolean isOfSessions;
        private final boolean hasDuplicates;
        private int sequence;

        InSegments(State state, int store, long retention, boolean isOfSessions, boolean hasDuplicates) {
            super(state, store, retention);
            this.interval = Math.max(retention / 2, LEAST_INTERVAL);
            this.isOfSessions = isOfSessions;
            this.hasDuplicates = hasDuplicates;
        }

        @Override
        protected void begin(ByteBuffer mark) {
            newest = mark.getLong();
            sequence = mark.getInt();
        }

        @Override
        void restore(byte[] key, byte[] value, long at) {
            int length = key.length - (isOfSessions ? 2 * Long.BYTES : WINDOW_TAIL);
            if (length < 0) {
                return; // something else has written it
            }
            ByteBuffer tail = ByteBuffer.wrap(key, length, key.length - length);
            long time = tail.getLong();
            if (hasDuplicates) {
                sequence = tail.getInt();
            }
            if (time > newest && (value != null || !isOfSessions)) {
                advance(time);
            }
            if (time > newest - span && !(hasDuplicates && value == null)) {
                int kept = isOfSessions || hasDuplicates ? key.length : key.length - Integer.BYTES;
                byte[] local = join(
                        number(time / interval), escaped(key, length), Arrays.copyOfRange(key, length, kept));
                put(local, value == null ? null : join(number(at), value));
            }
            mark(ByteBuffer.allocate(WINDOW_TAIL).putLong(newest).putInt(sequence).array());
        }

        private void advance(long time) {
            long before = firstSegment(newest);
            newest = time;
            if (before < firstSegment(time)) {
                keys(number(before), number(firstSegment(time))).forEach(key -> put(key, null));
            }
        }

        private long firstSegment(long time) {
            return Math.max(0, time - span + 1) / interval;
        }
    }

    /** The versions of keys. */
    private static final class Versioned extends LaidOut {
        private static final byte[] LATEST = {'L'};
        private static final byte[] VERSION = {'V'};
        private static final byte[] EXPIRY = {'E'};
        private static final byte[] NOTHING = {};
        private static final byte[] DELETION = {0};
        private static final byte[] VALUE = {1};
        private static final byte[] AFTER = new byte[Long.BYTES + 1];
        private static final int INTERVALS = 4;

        static {
            Arrays.fill(AFTER, (byte) 0xFF);
        }

        /** Up to when versions were dropped. */
        private long forgotten = Long.MIN_VALUE;

        Versioned(State state, int store, long history) {
            super(state, store, history);
        }

        @Override
        protected void begin(ByteBuffer mark) {
            newest = mark.getLong();
            forgotten = mark.getLong();
        }

        @Override
        void restore(byte[] key, byte[] value, long time) {
            if (time < newest - span) {
                return;
            }
            byte[] body = escaped(key, key.length);
            byte[] content = value == null ? DELETION : join(VALUE, value);
            byte[] name = join(LATEST, body);
            byte[] latest = get(name);
            if (latest != null && time(latest, 0) > time) {
                insert(body, time, content, time(latest, 0));
            } else {
                if (latest != null) {
                    supersede(body, name, latest, time);
                }
                put(name, join(number(time), content));
                if (value == null) {
                    put(expiry(time, name), NOTHING);
                }
            }
            advance(Math.max(newest, time));
        }

        private void supersede(byte[] body, byte[] name, byte[] latest, long time) {
            long before = time(latest, 0);
            if (latest[Long.BYTES] == DELETION[0]) {
                put(expiry(before, name), null);
            }
            if (before < time) {
                keep(body, before, time, Arrays.copyOfRange(latest, Long.BYTES, latest.length));
            }
        }

        /** A version before the latest one. */
        private void insert(byte[] body, long time, byte[] content, long latest) {
            byte[] all = join(VERSION, body);
            byte[] here = join(all, sortable(-1 - time)); // the newest one first
            byte[] newer = first(all, here, true);
            byte[] older = first(here, join(all, AFTER), false);
            if (older != null) {
                byte[] stored = get(older);
                put(expiry(time(stored, 1), older), null);
                if (!Arrays.equals(older, here)) {
                    byte[] itsContent = Arrays.copyOfRange(stored, 2 * Long.BYTES, stored.length);
                    keep(body, time(stored, 0), time, itsContent);
                }
            }
            keep(body, time, newer == null ? latest : time(get(newer), 0), content);
        }

        private void keep(byte[] body, long time, long validTo, byte[] content) {
            byte[] name = join(VERSION, body, sortable(-1 - time));
            put(name, join(number(time), number(validTo), content));
            put(expiry(validTo, name), NOTHING);
        }

        private void advance(long time) {
            long horizon = time - span;
            long interval = Math.max(span / INTERVALS, 1);
            boolean forgets = forgotten == Long.MIN_VALUE
                    || Math.floorDiv(horizon, interval) > Math.floorDiv(forgotten, interval);
            newest = time;
            if (forgets) {
                forgotten = horizon;
                for (byte[] key : keys(EXPIRY, join(EXPIRY, sortable(horizon)))) {
                    put(Arrays.copyOfRange(key, 1 + Long.BYTES, key.length), null);
                    put(key, null);
                }
            }
            mark(join(number(newest), number(forgotten)));
        }

        private static byte[] expiry(long validTo, byte[] key) {
            return join(EXPIRY, sortable(validTo), key);
        }

        /** Bytes that sort like the numbers, including negative ones. */
        private static byte[] sortable(long time) {
            return number(time ^ Long.MIN_VALUE);
        }

        private static long time(byte[] stored, int place) {
            return ByteBuffer.wrap(stored).getLong(place * Long.BYTES);
        }
    }
}
