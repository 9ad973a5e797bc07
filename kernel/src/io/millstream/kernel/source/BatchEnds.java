package io.millstream.kernel.source;

import java.util.function.LongFunction;

/**
 * Where a batch ends if more is unread than it may read: at one time, the same for all partitions.
 *
 * <p>Kafka Streams takes the record with the smallest time among the first ones of all partitions. What it has taken
 * before it meets a certain time is, of each partition, what comes before the first record of that time or a later one;
 * and that is what Kafka's brokers can look up. So batches that end like this are parts of one sequence, whatever the
 * limit is. Records of the same time are in no order, so among them the limit may cut anywhere.
 *
 * <p>Decides by offsets and times alone; knows neither Spark nor a Kafka client.
 */
final class BatchEnds {
    private static final long HOUR_MS = 3_600_000;
    private static final double SHORT_S = 5;
    private static final double LONG_S = 20;

    /** The time at which the last batch ended, and that which a full one covers; they make the next search short. */
    private long last = -1;
    private long span = HOUR_MS;

    /**
     * The end of each partition.
     *
     * @param from the first unread offset of each partition
     * @param to the offset after the last one
     * @param limit about how many records a batch reads at most
     * @param firstAt for a time, the offset of each partition's first record of that time or a later one, and
     *     Long.MAX_VALUE if there is none; null if the brokers' times are not those that count
     * @param now the current time
     */
    long[] of(long[] from, long[] to, long limit, LongFunction<long[]> firstAt, long now) {
        if (total(from, to) <= limit) {
            return to;
        }
        if (firstAt == null || unread(from, to) == 1) {
            return shared(from, to, limit);
        }
        long low = -1; // no time: nothing is before it, and everything is before the highest
        long high = Long.MAX_VALUE;
        long[] lower = from;
        long[] upper = to;
        long step = span;
        long time = last < 0 ? now : last + step;
        while (time > low && time < high) {
            long[] ends = between(from, firstAt.apply(time), to);
            if (total(from, ends) > limit) {
                high = time;
                upper = ends;
            } else {
                low = time;
                lower = ends;
                if (isEnough(total(from, ends), limit)) {
                    break;
                }
            }
            step = step > Long.MAX_VALUE / 4 ? step : 2 * step;
            if (high == Long.MAX_VALUE) {
                time = low > high - 1 - step ? high - 1 : low + step;
            } else if (low < 0) {
                time = Math.max(0, high - step);
            } else {
                time = low + (high - low) / 2;
            }
        }
        long read = total(from, lower);
        if (last >= 0 && low > last && read > 0) {
            span = (long) Math.ceil((low - last) * (0.9 * limit / read));
        }
        last = Math.max(low, 0);
        // Otherwise a large part of the limit has one and the same time.
        return isEnough(read, limit) ? lower : shared(lower, upper, limit - read);
    }

    private static boolean isEnough(long records, long limit) {
        return records >= 0.75 * limit;
    }

    /**
     * The limit of the next batch: more if the last one was short although it was full, less if it was long.
     *
     * @param limit that of the last batch
     * @param least the limit of the first batch of a run, which therefore ends soon
     * @param most what it grows to
     * @param seconds from the start of the last batch to now
     * @param pause the shortest time between two starts, in seconds
     */
    static long next(long limit, long least, long most, double seconds, double pause) {
        if (seconds < Math.max(SHORT_S, 2 * pause)) {
            return Math.min(most, 2 * limit);
        }
        return seconds > Math.max(LONG_S, 4 * pause) ? Math.max(least, limit / 2) : limit;
    }

    /** Each partition gets the same share of what it has; one that would get nothing, a single record. */
    private static long[] shared(long[] from, long[] to, long limit) {
        double share = (double) limit / total(from, to);
        long[] ends = new long[from.length];
        for (int each = 0; each < ends.length; each++) {
            double records = share * Math.max(0, to[each] - from[each]);
            ends[each] = Math.min(to[each], from[each] + (long) (records < 1 ? Math.ceil(records) : records));
        }
        return between(from, ends, to);
    }

    private static long[] between(long[] from, long[] ends, long[] to) {
        long[] found = new long[from.length];
        for (int each = 0; each < found.length; each++) {
            found[each] = Math.max(from[each], Math.min(ends[each], to[each]));
        }
        return found;
    }

    /** How many records are unread; a partition that ends before it begins, as of a topic made anew, has none. */
    static long total(long[] from, long[] to) {
        long records = 0;
        for (int each = 0; each < from.length; each++) {
            records += Math.max(0, to[each] - from[each]);
        }
        return records;
    }

    private static int unread(long[] from, long[] to) {
        int partitions = 0;
        for (int each = 0; each < from.length; each++) {
            partitions += to[each] > from[each] ? 1 : 0;
        }
        return partitions;
    }
}
