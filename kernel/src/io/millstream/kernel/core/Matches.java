package io.millstream.kernel.core;

/** Receives the results of joins. It must not keep any argument. */
public interface Matches {
    /**
     * Two records that match, or one without a match.
     *
     * @param left the parts of the left record; null if there is none
     * @param right those of the right record
     */
    void match(byte[] key, long at, Object[] left, Object[] right);

    /**
     * The row of a key has changed on one side.
     *
     * @param at when the joined row has changed
     * @param since the time of the joined row: the latest of the rows that are there
     * @param isLeft whether it is the left side; this side's window has the previous value
     * @param left null if there is none, as for `right`
     */
    void change(byte[] key, long at, long since, boolean isLeft, Window left, Window right);
}
