package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Pairs of records of two streams, of one key and near each other in time; and, of an outer side, those that have
 * no other by the time that there can be none. Sources: KStreamKStreamJoin, KStreamJoinWindow.
 */
public final class Pairs {
    /** Which of the clock's own numbers is the earliest time of a record that waits, plus 1; 0: none does. */
    private static final int EARLIEST = 0;

    private final Clock clock;
    private final Due waiting;
    private final Limits limits;
    private final Records left;
    private final Records right;
    private final Matches matches;

    /**
     * What belongs together.
     *
     * @param before how long before the left record the right one may be
     * @param after how long after it
     * @param grace how much later results for records without another come
     * @param isLeftOuter whether a left record without another has a result
     * @param isRightOuter whether a right one has
     */
    public record Limits(long before, long after, long grace, boolean isLeftOuter, boolean isRightOuter) {
        public long retention() {
            return before + after + grace;
        }

        private boolean isOuter(boolean isLeft) {
            return isLeft ? isLeftOuter : isRightOuter;
        }

        /** How far ahead in time the other one may be. */
        private long ahead(boolean isLeft) {
            return isLeft ? after : before;
        }
    }

    /** @param waiting the times of records that wait, each with its side and its key */
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
        if (key == null) {
            tell(isLeft, null, at, parts, null);
            return;
        }
        left.makeRoom();
        right.makeRoom();
        Window own = (isLeft ? left : right).put(key, at, parts);
        if (at == clock.streamTime) {
            tellAlone(isLeft);
        }
        Records others = isLeft ? right : left;
        long from = Math.max(0, at - limits.ahead(!isLeft));
        long to = at + limits.ahead(isLeft);
        List<Window> found = others.find(key, from, to);
        for (Window other : found) {
            if (other.waits) {
                others.takeWaiting(key, other.start);
            }
            tell(isLeft, key, Math.max(at, other.start), parts, other.parts);
        }
        if (!found.isEmpty() || !limits.isOuter(isLeft)) {
            return;
        }
        if (to < clock.streamTime) {
            tell(isLeft, key, at, parts, null);
        } else {
            own.waits = true;
            wait(at, name(isLeft, key));
        }
    }

    private void wait(long at, byte[] name) {
        clock.own[EARLIEST] = clock.own[EARLIEST] == 0 ? at + 1 : Math.min(clock.own[EARLIEST], at + 1);
        waiting.add(at, name, at);
    }

    private void tell(boolean isLeft, byte[] key, long at, Object[] parts, Object[] other) {
        matches.match(key, at, isLeft ? parts : other, isLeft ? other : parts);
    }

    /** Tells of the records that have waited, and for which nothing can come any more. */
    private void tellAlone(boolean isLeft) {
        long earliest = clock.own[EARLIEST] - 1;
        if (earliest < 0 || earliest >= clock.streamTime - limits.ahead(!isLeft) - limits.grace) {
            return;
        }
        clock.own[EARLIEST] = 0;
        List<Due.Entry> open = new ArrayList<>();
        long least = Math.min(limits.before, limits.after);
        for (Due.Entry entry : waiting.take(clock.streamTime - least - limits.grace - 1)) {
            boolean isLeftOne = entry.key()[0] == 1;
            if (entry.time() + limits.ahead(isLeftOne) + limits.grace >= clock.streamTime) {
                open.add(entry);
                continue;
            }
            byte[] key = Arrays.copyOfRange(entry.key(), 1, entry.key().length);
            for (Window window : (isLeftOne ? left : right).takeWaiting(key, entry.number())) {
                tell(isLeftOne, key, window.start, window.parts, null);
            }
        }
        open.forEach(entry -> wait(entry.time(), entry.key()));
        long next = waiting.earliest();
        if (next >= 0) {
            clock.own[EARLIEST] = next + 1;
        }
    }

    /** In whose order those of one time come: the right ones first. */
    private static byte[] name(boolean isLeft, byte[] key) {
        byte[] name = new byte[key.length + 1];
        name[0] = (byte) (isLeft ? 1 : 0);
        System.arraycopy(key, 0, name, 1, key.length);
        return name;
    }

    /** After the records of a micro-batch, and of both sides. */
    public void finish() {
        waiting.flush();
    }
}
