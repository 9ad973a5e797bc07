package io.millstream.kernel.task;

import java.io.Serializable;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.types.StructType;

/**
 * What a step with state does in one task: rows in, rows out. It stays as long as the task.
 *
 * <p>What comes out are its results, and the rows that came in; both in the order of the rows that led to them.
 */
interface Operator {
    /** What an operator is, as it is sent to where tasks run. */
    interface Spec extends Serializable {
        /** Its number among those of the subtopology. */
        int number();

        /** How many of the columns that come in go on, which are the first ones. */
        int passes();

        /** The columns of its results, which come before those. */
        StructType own();

        /** @param stored computes the values of stores, if they are tables */
        Operator of(RunningTask task, StoredValues stored);
    }

    /** Takes a row, which is valid until the next one comes in. */
    void process(InternalRow row);

    /** The next row that goes on; null if first another one has to come in. It is valid until the next call. */
    InternalRow next();

    /** Some bytes that belong to what was written last: to be committed with it, and found by the next owner. */
    byte[] clock();

    /** Its task ends. */
    default void close() {
        // most have nothing to release
    }

    /** That of the task whose rows the calling thread has. */
    @SuppressWarnings("resource") // the task stays open
    static Operator of(Spec spec, StoredValues stored) {
        RunningTask task = Tasks.current();
        Operator there = task.operators.get(spec.number());
        if (there == null) {
            there = spec.of(task, stored);
            task.operators.put(spec.number(), there);
        }
        return there;
    }
}
