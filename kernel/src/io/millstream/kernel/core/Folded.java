package io.millstream.kernel.core;

import java.util.ArrayList;
import java.util.List;

/**
 * An aggregate that is computed by functions outside the kernel: its inputs are recorded, and it is computed together
 * with many others as soon as one of them is needed.
 *
 * <p>It starts from another aggregate, or from the functions' initial value; may be merged with another one; and then
 * gets records. It changes only until it is shared. If it has none of these, it is the initial value.
 */
public final class Folded implements Encoded {
    private final Folds folds;
    /** The item whose functions compute it, and the key that they get. */
    public final int fold;

    public final byte[] key;

    private Folded before;
    private Folded merged;
    private ArrayList<byte[]> records;
    private byte[] bytes;
    private boolean known;
    /** Its approximate size in bytes. */
    private long size;
    /** How many others are computed from it. */
    private int uses;
    /** Whether something else needs it, now or later. */
    private boolean shared;
    /** Its number among those that are being computed. */
    int number;

    Folded(Folds folds, int fold, byte[] key) {
        this.folds = folds;
        this.fold = fold;
        this.key = key;
    }

    /** The value of a record, which may be null. */
    record Added(Folds folds, int fold, byte[] key, byte[] value) {
        Folded first() {
            return folds.noted(new Folded(folds, fold, key)).add(value);
        }
    }

    /** An aggregate that was computed earlier; null if there is none. */
    static Folded kept(Folds folds, int fold, byte[] key, byte[] bytes) {
        Folded kept = new Folded(folds, fold, key);
        kept.set(bytes);
        return kept;
    }

    /** Keeps it as it is now, because others need it. */
    public Folded share() {
        shared = true;
        return this;
    }

    /** This aggregate and one more record. */
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

    /** This aggregate merged with another one. */
    Folded merge(Folded other) {
        Folded sum = folds.noted(new Folded(folds, fold, key));
        sum.before = used(sum);
        sum.merged = other.used(sum);
        return sum;
    }

    /** The functions' initial value merged with this aggregate. */
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

    /** The computed bytes; null for nothing. */
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

    /** Its approximate size in bytes. */
    long size() {
        return size;
    }

    // --- for its computation -------------------------------------------------------------------------------

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

    /** Whether its value is needed; otherwise it is only a step to others. */
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
