package io.millstream.kernel.core;

import io.millstream.kernel.core.Parts.Rule;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.LongBinaryOperator;

/** The existing rules, by their names. Values are those of Spark's rows, with arrays and structs as lists. */
public final class Rules {
    private Rules() {}

    /**
     * @param name of the rule
     * @param type the part's, as Spark writes it in a schema
     * @throws IllegalArgumentException there is no such rule for this type
     */
    public static Rule of(String name, String type) {
        return switch (name) {
            case "sum" -> sum(type);
            case "min" -> (one, other) -> order(other, one) < 0 ? other : one;
            case "max" -> (one, other) -> order(other, one) > 0 ? other : one;
            case "and" -> (one, other) -> (Boolean) one && (Boolean) other;
            case "or" -> (one, other) -> (Boolean) one || (Boolean) other;
            case "product" -> (one, other) -> (Double) one * (Double) other;
            case "bit_and" -> bits(type, (one, other) -> one & other);
            case "bit_or" -> bits(type, (one, other) -> one | other);
            case "bit_xor" -> bits(type, (one, other) -> one ^ other);
            case "first" -> (one, other) -> one;
            case "last" -> (one, other) -> other;
            case "concat" -> new Parts.Concat();
            case "union" -> new Union();
            case "largest" -> (one, other) -> compare(field(other, 0), field(one, 0)) > 0 ? other : one;
            case "smallest" -> (one, other) -> compare(field(other, 0), field(one, 0)) < 0 ? other : one;
            case "fold" -> new Folds.Rule();
            case "hll" -> new Sketches.Rule();
            case "moments" -> new Moments();
            default -> throw new IllegalArgumentException("no rule '" + name + "'");
        };
    }

    private static Rule sum(String type) {
        if (type.equals("bigint")) {
            return Rules::exactSum;
        }
        if (type.equals("double")) {
            return (one, other) -> (Double) one + (Double) other;
        }
        if (type.startsWith("decimal")) {
            return (one, other) -> ((BigDecimal) one).add((BigDecimal) other);
        }
        throw new IllegalArgumentException("no sum of " + type);
    }

    private static Rule bits(String type, LongBinaryOperator operator) {
        return switch (type) {
            case "bigint" -> (one, other) -> operator.applyAsLong((Long) one, (Long) other);
            case "int" -> (one, other) -> (int) operator.applyAsLong((Integer) one, (Integer) other);
            case "smallint" -> (one, other) -> (short) operator.applyAsLong((Short) one, (Short) other);
            case "tinyint" -> (one, other) -> (byte) operator.applyAsLong((Byte) one, (Byte) other);
            default -> throw new IllegalArgumentException("no bits of " + type);
        };
    }

    private static Object exactSum(Object one, Object other) {
        long a = (Long) one;
        long b = (Long) other;
        long sum = a + b;
        if (((a ^ sum) & (b ^ sum)) < 0) {
            throw new ArithmeticException("a sum does not fit a bigint; sum decimals or doubles");
        }
        return sum;
    }

    private static Object field(Object struct, int index) {
        return ((List<?>) struct).get(index);
    }

    /** As Spark orders values: NaN is the largest number, text and bytes go by their unsigned bytes. */
    @SuppressWarnings("unchecked")
    static int compare(Object one, Object other) {
        if (one instanceof Double a && a == 0 && (Double) other == 0) {
            return 0; // 0.0 and -0.0
        }
        if (one instanceof Float a && a == 0 && (Float) other == 0) {
            return 0;
        }
        if (one instanceof String a) {
            return Arrays.compareUnsigned(
                    a.getBytes(StandardCharsets.UTF_8), ((String) other).getBytes(StandardCharsets.UTF_8));
        }
        if (one instanceof byte[] a) {
            return Arrays.compareUnsigned(a, (byte[]) other);
        }
        if (one instanceof List<?> a) {
            List<?> b = (List<?>) other;
            for (int i = 0; i < Math.min(a.size(), b.size()); i++) {
                int order = compareNullable(a.get(i), b.get(i));
                if (order != 0) {
                    return order;
                }
            }
            return Integer.compare(a.size(), b.size());
        }
        return ((Comparable<Object>) one).compareTo(other);
    }

    /** As {@link #compare}, but -0.0 is before 0.0, so that the smallest does not depend on the order of arrival. */
    private static int order(Object one, Object other) {
        if (one instanceof Double a) {
            return a.compareTo((Double) other);
        }
        return one instanceof Float a ? a.compareTo((Float) other) : compare(one, other);
    }

    private static int compareNullable(Object one, Object other) {
        if (one == null || other == null) {
            return one == other ? 0 : one == null ? -1 : 1;
        }
        return compare(one, other);
    }

    /** Each value once, in the order of arrival, as lists. */
    private static final class Union implements Rule {
        @Override
        public Object first(Object value) {
            return merge(new ArrayList<>(), value);
        }

        @Override
        @SuppressWarnings("unchecked")
        public Object merge(Object one, Object other) {
            List<Object> values = (List<Object>) one;
            Set<Object> there = new LinkedHashSet<>();
            values.forEach(value -> there.add(name(value)));
            for (Object value : (List<Object>) other) {
                if (there.add(name(value))) {
                    values.add(value);
                }
            }
            return values;
        }

        /** An object that equals another exactly if Spark considers the values equal. */
        private static Object name(Object value) {
            if (value instanceof byte[] bytes) {
                return ByteBuffer.wrap(bytes);
            }
            if (value instanceof List<?> list) {
                return list.stream().map(Union::name).toList();
            }
            if (value instanceof Double number && number == 0 || value instanceof Float other && other == 0) {
                return 0; // 0.0 and -0.0
            }
            return value;
        }
    }

    /** Count, mean and the sum of squared differences from it, for variances. Source: Chan et al., 1979. */
    private static final class Moments implements Rule {
        @Override
        public Object merge(Object one, Object other) {
            double n = number(one, 0);
            double m = number(other, 0);
            double all = n + m;
            double delta = number(other, 1) - number(one, 1);
            double mean = number(one, 1) + delta * (m / all);
            double squares = number(one, 2) + number(other, 2) + delta * delta * n * m / all;
            return List.of(all, mean, squares);
        }

        private static double number(Object struct, int index) {
            return (Double) field(struct, index);
        }
    }
}
