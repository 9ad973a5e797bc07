package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/**
 * How partial results are merged, part by part. The parts of a record are those of an aggregate of one.
 *
 * <p>Null parts are ignored.
 */
public final class Parts {
    private static final int REFERENCE = 16;

    private final Rule[] rules;

    public Parts(List<Rule> rules) {
        this.rules = rules.toArray(new Rule[0]);
    }

    public int size() {
        return rules.length;
    }

    /** An aggregate of only this record. */
    public Object[] first(Object[] record) {
        Object[] aggregate = new Object[rules.length];
        add(aggregate, record);
        return aggregate;
    }

    /** Merges a record, or another aggregate, into an aggregate. The other one is unchanged. */
    public void add(Object[] aggregate, Object[] other) {
        for (int i = 0; i < rules.length; i++) {
            Object value = other[i];
            if (value != null) {
                aggregate[i] = aggregate[i] == null ? rules[i].first(value) : rules[i].merge(aggregate[i], value);
            }
        }
    }

    /** A copy of an aggregate, which can be changed without changing the original. */
    public Object[] copy(Object[] aggregate) {
        return first(aggregate);
    }

    /** The approximate size of an aggregate in the memory, in bytes. */
    static long size(Object[] aggregate) {
        long size = 0;
        for (Object part : aggregate) {
            size += sizeOf(part);
        }
        return size;
    }

    private static long sizeOf(Object part) {
        if (part instanceof byte[] bytes) {
            return bytes.length;
        }
        if (part instanceof String text) {
            return text.length();
        }
        if (part instanceof Folded folded) {
            return folded.size();
        }
        if (part instanceof List<?> values) {
            long size = 0;
            for (Object value : values) {
                size += REFERENCE + sizeOf(value);
            }
            return size;
        }
        return REFERENCE;
    }

    /** Prepares the aggregate of a session to become that of a larger one. */
    public void begin(Object[] aggregate) {
        for (int i = 0; i < rules.length; i++) {
            if (aggregate[i] != null) {
                aggregate[i] = rules[i].begin(aggregate[i]);
            }
        }
    }

    /** How the values of one part are merged. */
    public interface Rule {
        /** The value into which others are merged: a copy, if merges change it in place. */
        default Object first(Object value) {
            return value;
        }

        /** The value into which other aggregates and records are merged, starting with this one. */
        default Object begin(Object value) {
            return value;
        }

        /**
         * @param one the aggregate's value; may be changed and returned
         * @param other is unchanged
         */
        Object merge(Object one, Object other);
    }

    /** All values in their order, as lists. */
    static final class Concat implements Rule {
        @Override
        public Object first(Object value) {
            return new ArrayList<>((List<?>) value);
        }

        @Override
        @SuppressWarnings("unchecked")
        public Object merge(Object one, Object other) {
            ((List<Object>) one).addAll((List<Object>) other);
            return one;
        }
    }
}
