package io.millstream.kernel.core;

import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.time.ZoneId;
import java.util.function.LongUnaryOperator;

/**
 * The days of a time zone, each from one hour of the clock to the same hour of the next day: 23 or 25 hours if clocks
 * change.
 *
 * <p>If clocks skip that hour, a day begins when they do. If they show it twice, it begins the first time. The first
 * day begins with 1970 or later.
 */
public final class DailyWindows extends TimedWindows {
    /** The span of a slice. */
    public static final long DAY = 86_400_000;

    private final Days days;

    public DailyWindows(Task task, String zone, long hour, long grace) {
        // Even where clocks were put back by a day, no day was longer than two.
        super(task, DAY, 2 * DAY + grace, grace);
        this.days = new Days(zone, hour);
    }

    /** The end of the window that begins at a time. */
    public static LongUnaryOperator ends(String zone, long hour) {
        return new Days(zone, hour)::end;
    }

    @Override
    protected long first(long at) {
        return days.first(at);
    }

    @Override
    protected long after(long begin) {
        return Long.MAX_VALUE;
    }

    @Override
    protected long end(long begin) {
        return days.end(begin);
    }

    private static final class Days {
        private final ZoneId zone;
        private final LocalTime hour;
        /** The window that was requested last. */
        private long start = -1;

        private long end = -1;

        Days(String zone, long hour) {
            this.zone = ZoneId.of(zone);
            this.hour = LocalTime.of((int) hour, 0);
        }

        private long beginning(LocalDate day) {
            return day.atTime(hour).atZone(zone).toInstant().toEpochMilli();
        }

        long first(long at) {
            if (at < start || at >= end) {
                // If clocks are put back around midnight, a day may have begun although its date is not yet back.
                LocalDate day = Instant.ofEpochMilli(at).atZone(zone).toLocalDate().plusDays(1);
                while (beginning(day) > at) {
                    day = day.minusDays(1);
                }
                start = Math.max(0, beginning(day));
                end = beginning(day.plusDays(1));
            }
            return start;
        }

        long end(long begin) {
            first(begin);
            return end;
        }
    }
}
