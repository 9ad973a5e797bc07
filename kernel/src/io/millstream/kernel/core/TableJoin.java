package io.millstream.kernel.core;

import java.util.function.Supplier;

/** Joins two tables, row by row. Sources: KTableKTableInnerJoin, KTableKTableLeftJoin, KTableKTableOuterJoin. */
public final class TableJoin {
    private final Supplier<TableView> left;
    private final Supplier<TableView> right;
    private final Matches matches;
    private final Runnable past;

    public TableJoin(Supplier<TableView> left, Supplier<TableView> right, Matches matches) {
        this(left, right, matches, () -> {
            // nobody counts them
        });
    }

    /** @param past is called for a change that is not joined, because its row has a later version */
    public TableJoin(Supplier<TableView> left, Supplier<TableView> right, Matches matches, Runnable past) {
        this.left = left;
        this.right = right;
        this.matches = matches;
        this.past = past;
    }

    /** The time of a row; before all times, if it is not there. */
    private static long since(Window row) {
        return Keyed.isThere(row) ? row.at : Long.MIN_VALUE;
    }

    /** The receiver of one side's changes, in addition to `first`. */
    public Output of(Output first, boolean isLeft) {
        return new TableOutput() {
            @Override
            public void update(byte[] key, Window window) {
                first.update(key, window);
                if (window.isPast) {
                    past.run();
                    return;
                }
                Window other = (isLeft ? right : left).get().look(key);
                long at = Math.max(window.updated, since(other));
                boolean isThere = Keyed.isThere(window) || Keyed.isThere(other);
                long since = isThere ? Math.max(since(window), since(other)) : at; // a time that a row can have
                matches.change(key, at, since, isLeft, isLeft ? window : other, isLeft ? other : window);
            }
        };
    }
}
