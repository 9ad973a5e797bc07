package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/**
 * How partial results are merged, part by part. A record's parts are those of an aggregate of one.
 *
 * <p>A part that is null counts for nothing.
 */
public final class Parts {
    private final Rule[] rules;

    public Parts(List<Rule> rules) {
        this.rules = rules.toArray(new Rule[0]);
    }

    public int size() {
        return rules.length;
    }

    /** An aggregate of this record alone. */
    public Object[] first(Object[] record) {
        Object[] aggregate = new Object[rules.length];
        add(aggregate, record);
        return aggregate;
    }

    /** Merges a record, or another aggregate, into an aggregate. The other stays as it is. */
    public void add(Object[] aggregate, Object[] other) {
        for (int i = 0; i < rules.length; i++) {
            Object value = other[i];
            if (value != null) {
                aggregate[i] = aggregate[i] == null ? rules[i].first(value) : rules[i].merge(aggregate[i], value);
            }
        }
    }

    /** An aggregate that can be changed while the other stays as it is. */
    public Object[] copy(Object[] aggregate) {
        return first(aggregate);
    }

    /** Of the aggregate of a session, one that becomes a larger session's. */
    public void begin(Object[] aggregate) {
        for (int i = 0; i < rules.length; i++) {
            if (aggregate[i] != null) {
                aggregate[i] = rules[i].begin(aggregate[i]);
            }
        }
    }

    /** How the values of one part are merged. */
    public interface Rule {
        /** What merges are done into. Takes a copy of what merges change in its place. */
        default Object first(Object value) {
            return value;
        }

        /** What other aggregates are merged into, and records; it has this one to begin with. */
        default Object begin(Object value) {
            return value;
        }

        /**
         * @param one of an aggregate; may be changed, and given back
         * @param other stays as it is
         */
        Object merge(Object one, Object other);
    }

    /** All values, in their order: lists. */
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
