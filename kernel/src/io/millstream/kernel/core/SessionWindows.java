package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/**
 * Sessions: records of a key that are at most a gap apart; both ends belong to them. Source:
 * KStreamSessionWindowAggregate.
 *
 * <p>The sessions of a key do not overlap, so the orders of their starts and of their ends are the same.
 */
public final class SessionWindows extends Windowed {
    private final long gap;
    private final long grace;
    private final long retention;
    /** The sessions with which a record is merged; one list for all records. */
    private final ArrayList<Window> near = new ArrayList<>();

    /**
     * @param retention how long after its end, in stream time, a session can become part of another
     */
    public SessionWindows(Task task, long gap, long grace, long retention) {
        super(task, span(gap, grace), retention);
        this.gap = gap;
        this.grace = grace;
        this.retention = retention;
        begin(closes(clock.streamTime) - 1);
    }

    /** The span of a slice. A session is in the slice of its end. A slice has few sessions, and few can change. */
    public static long span(long gap, long grace) {
        return Math.max(4 * gap, (gap + grace) / 8);
    }

    @Override
    protected long moment(Window window) {
        return window.end;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        long before = clock.streamTime;
        clock.streamTime = Math.max(before, at);
        find(key, at, before);
        if (near.isEmpty()) {
            if (at < closes(clock.streamTime)) {
                output.late(key, at, at, at, clock.streamTime);
            } else {
                put(key, new Window(at, at, at, parts.first(record)), true);
            }
        } else {
            merge(key, at, record, closes(before));
        }
        if (closing != null && clock.streamTime > before) {
            emitClosing(closes(clock.streamTime));
        }
    }

    @Override
    protected void awaitClosing(byte[] key, Window session) {
        if (session.end >= closes(clock.streamTime)) {
            closing.add(session.end, key, session.end);
        }
    }

    /** Sessions that end before this have closed. */
    private long closes(long streamTime) {
        return streamTime - grace - gap;
    }

    /** The sessions that a record belongs to, in their order. */
    private void find(byte[] key, long at, long streamTime) {
        near.clear();
        long closes = closes(clock.streamTime);
        if (at < closes && !reaches(key, at, closes)) {
            return; // late, whichever session it would belong to
        }
        // Kafka Streams' store would have forgotten what ended before this.
        long from = Math.max(0, Math.max(at - gap, streamTime - retention + 1));
        for (long number = number(from); number <= number(clock.streamTime); number++) {
            for (Window session : table.slice(key, number).windows) {
                if (session.start > at + gap) {
                    return;
                }
                if (session.end >= from) {
                    near.add(session);
                }
            }
        }
    }

    /** Whether a record that would be late on its own belongs to a session that has not closed. */
    private boolean reaches(byte[] key, long at, long closes) {
        for (long number = number(closes); number <= number(clock.streamTime); number++) {
            for (Window session : table.slice(key, number).windows) {
                if (session.start > at + gap) {
                    return false;
                }
                if (session.end >= closes) {
                    return true;
                }
            }
        }
        return false;
    }

    private void merge(byte[] key, long at, Object[] record, long closedBefore) {
        Window first = near.get(0);
        Window last = near.get(near.size() - 1);
        long start = Math.min(at, first.start);
        long end = Math.max(at, last.end);
        if (end < closes(clock.streamTime)) {
            output.late(key, at, start, end, clock.streamTime);
            return;
        }
        near.forEach(this::changing);
        if (first == last && start == first.start && end == first.end) {
            if (start != end) {
                table.again(first);
            }
            parts.begin(first.parts);
            parts.add(first.parts, record);
            first.updated = at;
            table.changed(first);
            return;
        }
        parts.begin(first.parts);
        for (Window session : near) {
            session.updated = at;
            table.remove(session);
            if (session != first) {
                parts.add(first.parts, session.parts);
            }
        }
        parts.add(first.parts, record);
        Window merged = new Window(start, end, end, first.parts);
        merged.updated = at;
        put(key, merged, last.end < closedBefore);
    }

    /**
     * @param isFirst its closing is not awaited yet, nor that of a session that it was merged from
     */
    private void put(byte[] key, Window session, boolean isFirst) {
        Slice slice = slice(key, session.end);
        // What Kafka Streams' store has forgotten can still be here. The new session would replace it there, too.
        for (int place = slice.from(session.start); place < slice.windows.size(); place++) {
            Window other = slice.windows.get(place);
            if (other.start != session.start) {
                break;
            }
            if (other.end == session.end) {
                table.forget(other);
                session.kept = other.kept;
                break;
            }
        }
        add(slice, session);
        table.changed(session);
        if (isFirst && closing != null) {
            closing.add(session.end, key, session.end);
        }
    }

    /**
     * Tells the closed sessions. Not at the end of the batch, because a record can merge a session that has
     * closed with others that have not.
     *
     * <p>A waiting entry has a moment of its session, which is still in the session after it has grown.
     */
    private void emitClosing(long closes) {
        List<Due.Entry> closed = new ArrayList<>();
        for (Due.Entry entry : closing.take(closes - 1)) {
            table.makeRoom();
            Window session = at(entry.key(), entry.number());
            if (session == null) {
                continue;
            }
            if (session.end < closes) {
                closed.add(new Due.Entry(session.end, entry.key(), session.start));
            } else {
                closing.add(session.end, entry.key(), session.end);
            }
        }
        // In the order of a store that is ordered by time: by end, then start, then key.
        closed.sort(Comparator.comparingLong(Due.Entry::time)
                .thenComparingLong(Due.Entry::number)
                .thenComparing(Due.Entry::key, Arrays::compareUnsigned));
        Due.Entry last = null;
        for (Due.Entry entry : closed) {
            if (last == null || last.time() != entry.time() || !Arrays.equals(last.key(), entry.key())) {
                table.makeRoom();
                output.closed(entry.key(), at(entry.key(), entry.time()));
            }
            last = entry;
        }
    }

    /** The session with this moment; null if there is none any more, which is found out here. */
    private Window at(byte[] key, long moment) {
        for (long number = number(moment); number <= number(clock.streamTime); number++) {
            for (Window session : table.slice(key, number).windows) {
                if (session.end >= moment) {
                    return session;
                }
            }
        }
        return null;
    }
}
