package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.Collection;
import java.util.TreeSet;

/**
 * Which partitions the tasks of a run are to be, from some moment on. It changes while the query runs: whoever knows
 * an earlier one asks a later one.
 *
 * @param number greater than those before it
 * @param partitions the numbers of the partitions
 * @param ended the last batch of Spark that has not all of them: it is to end, so that the next one has
 */
record Lot(int number, TreeSet<Integer> partitions, int ended) implements Serializable {
    /** Before anything is known. */
    static final Lot NONE = new Lot(0, new TreeSet<>(), 0);

    /**
     * The next one.
     *
     * @param toEnd the last batch that cannot take all of it
     */
    Lot next(Collection<Integer> wanted, int toEnd) {
        return new Lot(number + 1, new TreeSet<>(wanted), Math.max(ended, toEnd));
    }

    boolean has(int partition) {
        return partitions.contains(partition);
    }

    Lot later(Lot other) {
        return other.number > number ? other : this;
    }
}
