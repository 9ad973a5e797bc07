package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;

/**
 * Pairs of records of two streams with the same key and close in time; and, for an outer side, records without a match
 * once none can come any more. Sources: KStreamKStreamJoin, KStreamJoinWindow; there, a late record is emitted
 * without a match as soon as its window is over, though in the grace period one may come.
 */
public final class Pairs {
    private final Clock clock;
    private final Due waiting;
    private final Limits limits;
    private final Records left;
    private final Records right;
    private final Matches matches;

    /**
     * Which records match.
     *
     * @param before how long before the left record the right one may be
     * @param after how long after it
     * @param grace how much later the results of records without a match come
     * @param isLeftOuter whether a left record without a match has a result
     * @param isRightOuter whether a right one has
     */
    public record Limits(long before, long after, long grace, boolean isLeftOuter, boolean isRightOuter) {
        public long retention() {
            return before + after + grace;
        }

        /** The minimum time for which a waiting record is kept. */
        public long patience() {
            return Math.max(before, after) + grace;
        }

        private boolean isOuter(boolean isLeft) {
            return isLeft ? isLeftOuter : isRightOuter;
        }

        /** How far ahead in time the other record may be. */
        private long ahead(boolean isLeft) {
            return isLeft ? after : before;
        }
    }

    /** @param waiting when waiting records are emitted, each with its side and key, and its time as the number */
    public Pairs(Clock clock, Due waiting, Limits limits, Records left, Records right, Matches matches) {
        this.clock = clock;
        this.waiting = waiting;
        this.limits = limits;
        this.left = left;
        this.right = right;
        this.matches = matches;
    }

    /** @param key null only for a side that is outer */
    public void record(boolean isLeft, byte[] key, long at, Object[] parts) {
        clock.streamTime = Math.max(clock.streamTime, at);
        left.makeRoom();
        right.makeRoom();
        if (at == clock.streamTime) {
            emitUnmatched();
        }
        if (key == null) {
            emit(isLeft, null, at, parts, null);
            return;
        }
        Window own = (isLeft ? left : right).put(key, at, parts);
        Records others = isLeft ? right : left;
        long from = Math.max(0, at - limits.ahead(!isLeft));
        long to = at + limits.ahead(isLeft);
        List<Window> found = others.find(key, from, to);
        for (Window other : found) {
            if (other.waits) {
                others.takeWaiting(key, other.start);
            }
            emit(isLeft, key, Math.max(at, other.start), parts, other.parts);
        }
        if (!found.isEmpty() || !limits.isOuter(isLeft)) {
            return;
        }
        if (to + limits.grace < clock.streamTime) {
            emit(isLeft, key, at, parts, null);
        } else {
            own.waits = true;
            await(isLeft, key, at);
        }
    }

    /** Passes over what was already emitted before the state was opened. */
    public Pairs begun() {
        waiting.take(clock.streamTime);
        return this;
    }

    /** Notes that a record, which was read back into its side, waits for a match. */
    public void derive(boolean isLeft, byte[] key, Window record) {
        long emitted = clock.streamTime - limits.ahead(isLeft) - limits.grace;
        if (record.waits && record.start >= emitted) {
            await(isLeft, key, record.start);
        }
    }

    private void await(boolean isLeft, byte[] key, long at) {
        waiting.add(at + limits.ahead(isLeft) + limits.grace + 1, name(isLeft, key), at);
    }

    private void emit(boolean isLeft, byte[] key, long at, Object[] parts, Object[] other) {
        matches.match(key, at, isLeft ? parts : other, isLeft ? other : parts);
    }

    /** Tells the waiting records for which no match can come any more. */
    private void emitUnmatched() {
        List<Due.Entry> alone = new ArrayList<>(waiting.take(clock.streamTime));
        alone.sort(Comparator.comparingLong(Due.Entry::number).thenComparing(Due.Entry::key, Arrays::compareUnsigned));
        for (Due.Entry entry : alone) {
            boolean isLeft = entry.key()[0] == 1;
            byte[] key = Arrays.copyOfRange(entry.key(), 1, entry.key().length);
            for (Window window : (isLeft ? left : right).takeWaiting(key, entry.number())) {
                emit(isLeft, key, window.start, window.parts, null);
            }
        }
    }

    /** The order of records with the same time: the right ones first. */
    private static byte[] name(boolean isLeft, byte[] key) {
        byte[] name = new byte[key.length + 1];
        name[0] = (byte) (isLeft ? 1 : 0);
        System.arraycopy(key, 0, name, 1, key.length);
        return name;
    }

    /** Called after the records of both sides in a batch. */
    public void finish() {
        waiting.flush();
    }
}
