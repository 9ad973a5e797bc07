package io.millstream.kernel.core;

/** What comes of joins. Nothing that it is given may be kept. */
public interface Matches {
    /**
     * Two records that belong together, or one that has no other.
     *
     * @param left the parts of the left one; null for none
     * @param right those of the right one
     */
    void match(byte[] key, long at, Object[] left, Object[] right);

    /**
     * A key has another row on one side.
     *
     * @param isLeft whether it is the left one; it has what there was before
     * @param left null for nothing, as `right`
     */
    void change(byte[] key, long at, boolean isLeft, Window left, Window right);
}
