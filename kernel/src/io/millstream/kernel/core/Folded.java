package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/**
 * An aggregate that functions compute which are not here: what it comes from is noted, and it is computed with many
 * others as soon as somebody needs one of them.
 *
 * <p>It begins with another one, or with what the functions begin with; that one is merged with; and then come
 * records. It is changed only until somebody else has it.
 */
public final class Folded implements Encoded {
    private final Folds folds;
    /** Whose functions compute it, and the key that they are told. */
    public final int fold;

    public final byte[] key;

    private Folded before;
    private Folded merged;
    private ArrayList<byte[]> records;
    private byte[] bytes;
    private boolean known;
    /** About how many bytes it will have. */
    private long size;
    /** How many others come from it. */
    private int uses;
    /** Whether something else needs it, now or later. */
    private boolean shared;
    /** Among those that are computed now. */
    int number;

    private Folded(Folds folds, int fold, byte[] key) {
        this.folds = folds;
        this.fold = fold;
        this.key = key;
    }

    /** A record's value, which may be null. */
    record Added(Folds folds, int fold, byte[] key, byte[] value) {
        Folded first() {
            return folds.noted(new Folded(folds, fold, key)).add(value);
        }
    }

    /** One that was computed before; null: there is none. */
    static Folded kept(Folds folds, int fold, byte[] key, byte[] bytes) {
        Folded kept = new Folded(folds, fold, key);
        kept.set(bytes);
        return kept;
    }

    /** It will be needed as it is now. */
    public Folded share() {
        shared = true;
        return this;
    }

    /** This and one more record. */
    Folded add(byte[] value) {
        folds.makeRoom();
        Folded sum = this;
        if (known || shared || uses > 0) {
            sum = folds.noted(new Folded(folds, fold, key));
            sum.before = used(sum);
        }
        if (sum.records == null) {
            sum.records = new ArrayList<>(1);
        }
        sum.records.add(value);
        long added = value == null ? 0 : value.length;
        sum.size += added;
        folds.count(1, added);
        return sum;
    }

    /** This and another one. */
    Folded merge(Folded other) {
        Folded sum = folds.noted(new Folded(folds, fold, key));
        sum.before = used(sum);
        sum.merged = other.used(sum);
        return sum;
    }

    /** What the functions begin with, and this one. */
    Folded begin() {
        Folded sum = folds.noted(new Folded(folds, fold, key));
        sum.merged = used(sum);
        return sum;
    }

    private Folded used(Folded by) {
        uses++;
        by.size += size;
        folds.count(0, size);
        return this;
    }

    /** What has been computed; null for nothing. */
    @Override
    public byte[] bytes() {
        if (!known) {
            folds.compute();
        }
        return bytes;
    }

    void set(byte[] computed) {
        bytes = computed;
        size = computed == null ? 0 : computed.length;
        known = true;
        before = null;
        merged = null;
        records = null;
    }

    // --- for who computes it -------------------------------------------------------------------------------

    public boolean isKnown() {
        return known;
    }

    public Folded before() {
        return before;
    }

    public Folded merged() {
        return merged;
    }

    public List<byte[]> records() {
        return records == null ? List.of() : records;
    }

    /** Whether it is asked for; otherwise it is only on the way to others. */
    public boolean isWanted() {
        return shared || uses == 0;
    }

    public int uses() {
        return uses;
    }

    public int number() {
        return number;
    }
}
