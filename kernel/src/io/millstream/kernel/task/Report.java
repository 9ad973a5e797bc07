package io.millstream.kernel.task;

import java.io.Serializable;
import java.util.HashMap;
import java.util.HashSet;

/**
 * What the tasks of a run in one executor have done, as it tells the driver.
 *
 * @param number of the figures: if a report is repeated, they count once
 * @param location of the executor, as Spark's scheduler takes it
 * @param epochs of the tasks that it has, by their partitions ({@link RunningTask#epoch})
 * @param open the partitions of those of them that are open, with their state restored
 * @param positions the next offset of each partition that is read, by topic-partition
 * @param ends where these partitions end, as far as that is known
 * @param records how many records were read there in this run
 * @param news the last batch in which a task there had a record
 * @param answered the questions ({@link Wishes}) that are answered
 * @param figures what is new in them
 */
record Report(
        String run,
        long number,
        String location,
        HashMap<Integer, Long> epochs,
        HashSet<Integer> open,
        HashMap<String, Long> positions,
        HashMap<String, Long> ends,
        long records,
        int news,
        HashSet<Long> answered,
        Figures figures)
        implements Serializable {}
