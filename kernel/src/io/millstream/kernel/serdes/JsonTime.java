package io.millstream.kernel.serdes;

import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.YearMonth;
import java.time.ZoneOffset;

/**
 * Dates and times as texts: {@code 2024-02-29}, then {@code T} or a space and a time of day, then a zone, which is an
 * offset. One digit may stand for two; a time without a zone is in UTC. Only the years 1 to 9999, because Python has no
 * others.
 */
final class JsonTime {
    static final long LEAST_SECONDS = -62_135_596_800L;
    static final long MOST_SECONDS = 253_402_300_799L;
    private static final long MICROS = 1_000_000L;

    private final String text;
    private int at;
    private long days;
    private long micros;
    private boolean hasZone;
    private int offset;

    private JsonTime(String text) {
        this.text = text;
    }

    /** Days since 1970. */
    static Object date(String text) {
        return (int) of(text, "DATE").days;
    }

    /** Microseconds since 1970. */
    static Object timestamp(String text) {
        JsonTime time = of(text, "TIMESTAMP");
        long micros = time.days * 86_400 * MICROS + time.micros - time.offset * MICROS;
        if (!isPossible(micros)) {
            throw new JsonMisfit("TIMESTAMP");
        }
        return micros;
    }

    /** The same for a time that has no zone. */
    static Object clock(String text) {
        JsonTime time = of(text, "TIMESTAMP_NTZ");
        if (time.hasZone) {
            throw new JsonMisfit("TIMESTAMP_NTZ", "this time has a zone");
        }
        return time.days * 86_400 * MICROS + time.micros;
    }

    static boolean isPossible(long micros) {
        return micros >= LEAST_SECONDS * MICROS && micros < (MOST_SECONDS + 1) * MICROS;
    }

    private static JsonTime of(String text, String wanted) {
        if (text != null) {
            JsonTime time = new JsonTime(text);
            if (time.read() && time.at == text.length()) {
                return time;
            }
        }
        throw new JsonMisfit(wanted);
    }

    private boolean read() {
        int year = number(4, 4);
        int month = skip('-') ? number(1, 2) : -1;
        int day = skip('-') ? number(1, 2) : -1;
        if (year < 1 || month < 1 || month > 12 || day < 1 || day > YearMonth.of(year, month).lengthOfMonth()) {
            return false;
        }
        days = LocalDate.of(year, month, day).toEpochDay();
        if (!skip('T') && !skip(' ')) {
            return true;
        }
        int hour = number(1, 2);
        int minute = skip(':') ? number(1, 2) : -1;
        int second = 0;
        if (skip(':')) {
            second = number(1, 2);
            micros = second >= 0 && skip('.') ? fraction() : 0;
        }
        if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
            return false;
        }
        micros += (hour * 3600 + minute * 60 + second) * MICROS;
        while (skip(' ')) {
            hasZone = true; // or it ends with a space
        }
        return at == text.length() ? !hasZone : zone();
    }

    private long fraction() {
        long value = 0;
        int digits = 0;
        for (int digit = number(1, 1); digit >= 0; digit = number(1, 1)) {
            if (digits++ < 6) {
                value = 10 * value + digit;
            }
        }
        for (; digits < 6; digits++) {
            value *= 10;
        }
        return value;
    }

    private boolean zone() {
        hasZone = true;
        if (skip('Z')) {
            return true;
        }
        for (String name : new String[] {"UTC", "GMT", "UT"}) {
            if (text.startsWith(name, at)) {
                at += name.length();
                if (at == text.length()) {
                    return true;
                }
                break;
            }
        }
        boolean negative = skip('-');
        if (!negative && !skip('+')) {
            return false;
        }
        int start = at;
        int hours = number(1, 2);
        int minutes = at - start == 2 ? number(2, 2) : -1;
        int seconds = 0;
        if (minutes < 0) {
            minutes = skip(':') ? number(2, 2) : at == text.length() ? 0 : -1;
            seconds = minutes >= 0 && skip(':') ? number(2, 2) : 0;
        }
        int size = hours * 3600 + minutes * 60 + seconds;
        offset = negative ? -size : size;
        return hours >= 0 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds < 60 && size <= 18 * 3600;
    }

    private boolean skip(char character) {
        boolean is = at < text.length() && text.charAt(at) == character;
        at += is ? 1 : 0;
        return is;
    }

    /** A number of so many digits; -1, and nothing is read, if there are fewer. */
    private int number(int least, int most) {
        int end = at;
        int value = 0;
        while (end < text.length() && end - at < most && text.charAt(end) >= '0' && text.charAt(end) <= '9') {
            value = 10 * value + text.charAt(end++) - '0';
        }
        if (end - at < least) {
            return -1;
        }
        at = end;
        return value;
    }

    // --- writing -----------------------------------------------------------------------------------------------

    static String dateText(int days) {
        long micros = days * 86_400L * MICROS;
        if (!isPossible(micros)) {
            throw new UnwritableException("a DATE is beyond the years 1 to 9999");
        }
        return LocalDate.ofEpochDay(days).toString();
    }

    /** In milliseconds; what is between them is cut off. */
    static String timeText(long micros, String wanted) {
        if (!isPossible(micros)) {
            throw new UnwritableException("a " + wanted + " is beyond the years 1 to 9999");
        }
        long seconds = Math.floorDiv(micros, MICROS);
        LocalDateTime time = LocalDateTime.ofEpochSecond(seconds, 0, ZoneOffset.UTC);
        char[] out = "0000-00-00T00:00:00.000".toCharArray();
        digits(out, 3, time.getYear());
        digits(out, 6, time.getMonthValue());
        digits(out, 9, time.getDayOfMonth());
        digits(out, 12, time.getHour());
        digits(out, 15, time.getMinute());
        digits(out, 18, time.getSecond());
        digits(out, 22, (int) (Math.floorMod(micros, MICROS) / 1000));
        return new String(out);
    }

    private static void digits(char[] out, int last, int number) {
        int rest = number;
        for (int at = last; rest > 0; at--, rest /= 10) {
            out[at] = (char) ('0' + rest % 10);
        }
    }
}
