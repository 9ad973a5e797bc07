package io.millstream.kernel.serdes;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Map;
import java.util.function.Predicate;
import org.apache.spark.sql.types.Decimal;

/** Numbers as JSON has them. */
final class JsonNumbers {
    static final Map<String, Double> NOT_FINITE = Map.of(
            "NaN", Double.NaN,
            "Infinity", Double.POSITIVE_INFINITY,
            "+Infinity", Double.POSITIVE_INFINITY,
            "INF", Double.POSITIVE_INFINITY,
            "+INF", Double.POSITIVE_INFINITY,
            "-Infinity", Double.NEGATIVE_INFINITY,
            "-INF", Double.NEGATIVE_INFINITY);

    private static final boolean IS_SHORTEST = Runtime.version().feature() >= 19;
    private static final long FAR = 1_000_000_000_000L;
    private static final double[] TENS = new double[23];

    static {
        for (int i = 0; i < TENS.length; i++) {
            TENS[i] = Double.parseDouble("1e" + i);
        }
    }

    private JsonNumbers() {}

    /** A whole number; null if it is another, or does not fit. */
    static Long whole(String number) {
        boolean negative = number.charAt(0) == '-';
        long value = 0; // negative, because there is one more of these
        for (int i = negative ? 1 : 0; i < number.length(); i++) {
            int digit = number.charAt(i) - '0';
            if (digit < 0 || digit > 9 || value < Long.MIN_VALUE / 10 || 10 * value < Long.MIN_VALUE + digit) {
                return null;
            }
            value = 10 * value - digit;
        }
        return negative ? (Long) value : value == Long.MIN_VALUE ? null : (Long) (-value);
    }

    /** The nearest double to a number of JSON's. */
    static double floating(String number) {
        // Most have few digits and no exponent: the quotient of two numbers that a double has exactly is the nearest.
        int length = number.length();
        int start = number.charAt(0) == '-' ? 1 : 0;
        if (length - start > 16 || number.charAt(start) > '9') {
            return Double.parseDouble(number);
        }
        long digits = 0;
        int decimals = 0;
        boolean fraction = false;
        for (int i = start; i < length; i++) {
            char next = number.charAt(i);
            if (next >= '0' && next <= '9') {
                digits = 10 * digits + next - '0';
                decimals += fraction ? 1 : 0;
            } else if (next == '.') {
                fraction = true;
            } else {
                return Double.parseDouble(number);
            }
        }
        if (digits >= 1L << 53) {
            return Double.parseDouble(number);
        }
        double value = digits / TENS[decimals];
        return start > 0 && (digits != 0 || length > 2) ? -value : value; // -0 is a whole number, which has no sign
    }

    /**
     * A number, rounded half up to a scale; null if it is none, or too large. What that takes depends on the length of
     * the text alone: an exponent of a million would otherwise be as many digits.
     */
    static Decimal decimal(String text, int precision, int scale) {
        int length = text.length();
        int at = length > 0 && (text.charAt(0) == '-' || text.charAt(0) == '+') ? 1 : 0;
        boolean negative = at > 0 && text.charAt(0) == '-';
        // The number is 0.D * 10^point, where D are its digits from the first one that is not 0.
        StringBuilder digits = new StringBuilder();
        long point = 0;
        boolean fraction = false;
        boolean some = false;
        for (; at < length; at++) {
            char next = text.charAt(at);
            if (next == '.' && !fraction) {
                fraction = true;
            } else if (next >= '0' && next <= '9') {
                some = true;
                boolean counts = next != '0' || !digits.isEmpty();
                if (counts && digits.length() <= precision) { // one more, which rounds
                    digits.append(next);
                }
                point += fraction ? counts ? 0 : -1 : counts ? 1 : 0;
            } else {
                break;
            }
        }
        if (!some) {
            return null;
        }
        if (at < length) {
            long exponent = exponent(text, at);
            if (exponent == Long.MIN_VALUE) {
                return null;
            }
            point += exponent;
        }
        if (digits.isEmpty() || point + scale < 0) {
            return Decimal.apply(BigDecimal.valueOf(0, scale), precision, scale);
        }
        if (point > precision - scale) {
            return null;
        }
        int units = (int) point + scale;
        while (digits.length() <= units) {
            digits.append('0');
        }
        BigInteger unscaled = units == 0 ? BigInteger.ZERO : new BigInteger(digits.substring(0, units));
        unscaled = digits.charAt(units) >= '5' ? unscaled.add(BigInteger.ONE) : unscaled;
        BigDecimal value = new BigDecimal(negative ? unscaled.negate() : unscaled, scale);
        return value.precision() > precision ? null : Decimal.apply(value, precision, scale);
    }

    /** What follows an {@code e}, or about that much; the least number if it is no exponent. */
    private static long exponent(String text, int place) {
        int at = place + 1;
        boolean negative = at < text.length() && text.charAt(at) == '-';
        at += at < text.length() && (negative || text.charAt(at) == '+') ? 1 : 0;
        if (text.charAt(place) != 'e' && text.charAt(place) != 'E' || at == text.length()) {
            return Long.MIN_VALUE;
        }
        long exponent = 0;
        for (; at < text.length(); at++) {
            char next = text.charAt(at);
            if (next < '0' || next > '9') {
                return Long.MIN_VALUE;
            }
            exponent = Math.min(FAR, 10 * exponent + next - '0');
        }
        return negative ? -exponent : exponent;
    }

    /** As Java writes it from version 19 on: with the fewest digits that are read as this number. */
    static String text(double number) {
        String text = Double.toString(number);
        return IS_SHORTEST ? text : shortest(text, 15, number, each -> each.doubleValue() == number);
    }

    static String text(float number) {
        String text = Float.toString(number);
        return IS_SHORTEST ? text : shortest(text, 6, number, each -> (float) each.doubleValue() == number);
    }

    /**
     * Java 17 and 18 sometimes write a digit too many, or a last digit that is not the nearest.
     *
     * @param unique numbers with so many digits all differ
     */
    private static String shortest(String text, int unique, double number, Predicate<BigDecimal> isIt) {
        boolean isSmall = Math.abs(number) < 1e-37; // these have fewer digits, the smaller the fewer
        if (!Double.isFinite(number) || number == 0 || text.length() <= unique && !isSmall) {
            return text;
        }
        BigDecimal written = new BigDecimal(text);
        int most = written.stripTrailingZeros().precision();
        if (most <= unique && !isSmall) {
            return text;
        }
        BigDecimal exact = new BigDecimal(number);
        BigDecimal best = written;
        for (int digits = Math.max(2, most); digits >= 2; digits--) {
            BigDecimal nearest = nearest(exact, digits, isIt);
            if (nearest == null) {
                break;
            }
            best = nearest;
        }
        return inJavasForm(best);
    }

    private static BigDecimal nearest(BigDecimal exact, int digits, Predicate<BigDecimal> isIt) {
        BigDecimal nearest = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
        if (isIt.test(nearest)) {
            return nearest;
        }
        // Below a power of two numbers are nearer to each other than above.
        RoundingMode other = nearest.compareTo(exact) < 0 ? RoundingMode.CEILING : RoundingMode.FLOOR;
        BigDecimal next = exact.round(new MathContext(digits, other));
        return isIt.test(next) ? next : null;
    }

    private static String inJavasForm(BigDecimal number) {
        BigDecimal size = number.abs().stripTrailingZeros();
        String digits = size.unscaledValue().toString();
        int exponent = digits.length() - size.scale() - 1;
        StringBuilder out = new StringBuilder(number.signum() < 0 ? "-" : "");
        if (exponent >= 7 || exponent < -3) {
            out.append(digits.charAt(0)).append('.').append(digits.length() > 1 ? digits.substring(1) : "0");
            return out.append('E').append(exponent).toString();
        }
        String plain = size.toPlainString();
        return out.append(plain).append(plain.indexOf('.') < 0 ? ".0" : "").toString();
    }
}
