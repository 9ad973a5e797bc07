package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.HashMap;

/**
 * What the driver wants of the tasks of a run in executors. All of it at any time, so none is missed for good.
 *
 * @param isOver whether the run is: everything of it is to be released
 * @param lot which partitions are to be read
 * @param isEnding whether everything that was read is to be committed, and nothing more read
 * @param hurries how often a commit was asked for
 * @param news the last batch in which a task anywhere had a record
 * @param epochs of the tasks, by their partitions: whoever has one of an earlier epoch is not its owner any more
 * @param questions topics whose global tables are to be read up to their ends, by numbers
 */
record Wishes(
        String run,
        boolean isOver,
        Lot lot,
        boolean isEnding,
        int hurries,
        int news,
        HashMap<Integer, Long> epochs,
        HashMap<Long, String> questions)
        implements Serializable {
    /** For one that has ended. */
    static Wishes over(String run) {
        return new Wishes(run, true, Lot.NONE, true, 0, 0, new HashMap<>(), new HashMap<>());
    }
}
