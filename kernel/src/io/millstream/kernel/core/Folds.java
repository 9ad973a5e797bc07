package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/** Aggregates that are computed elsewhere ({@link Folded}), and how they are merged. */
public final class Folds {
    /** About how many bytes, or records, are computed together. */
    private static final int MOST_BYTES = 1 << 22;

    private static final int MOST_RECORDS = 20_000;

    private final Computer computer;
    private final ArrayList<Folded> pending = new ArrayList<>();
    private int records;
    private long bytes;

    /** Computes aggregates. */
    public interface Computer {
        /**
         * The bytes of the aggregates that are needed; those of the others are ignored.
         *
         * @param all each comes after those from which it is computed, unless these are known
         */
        byte[][] compute(List<Folded> all);
    }

    public Folds(Computer computer) {
        this.computer = computer;
    }

    /** The value of a record. */
    public Object record(int fold, byte[] key, byte[] value) {
        return new Folded.Added(this, fold, key, value);
    }

    /** What there is before the first record: the functions' initial value, or nothing. */
    public Folded initial(int fold, byte[] key) {
        return noted(new Folded(this, fold, key));
    }

    /** An aggregate that was computed earlier. */
    public Object kept(int fold, byte[] key, byte[] computed) {
        return Folded.kept(this, fold, key, computed);
    }

    Folded noted(Folded one) {
        one.number = pending.size();
        pending.add(one);
        return one;
    }

    void count(int more, long bytesMore) {
        records += more;
        bytes += bytesMore;
    }

    void makeRoom() {
        if (records >= MOST_RECORDS || bytes >= MOST_BYTES) {
            compute();
        }
    }

    void compute() {
        byte[][] computed = computer.compute(pending);
        for (int i = 0; i < computed.length; i++) {
            pending.get(i).set(computed[i]);
        }
        pending.clear();
        records = 0;
        bytes = 0;
    }

    /** The rule of a part with such aggregates. The part of a record is not one yet. */
    static final class Rule implements Parts.Rule {
        @Override
        public Object first(Object value) {
            return value instanceof Folded.Added record ? record.first() : ((Folded) value).share();
        }

        @Override
        public Object begin(Object value) {
            return ((Folded) value).begin();
        }

        @Override
        public Object merge(Object one, Object other) {
            Folded folded = (Folded) one;
            return other instanceof Folded.Added record ? folded.add(record.value()) : folded.merge((Folded) other);
        }
    }
}
