package io.millstream.kernel.core;

import java.util.function.Supplier;

/** Joins each record of a stream with the row of its key at the record's time. Source: KStreamKTableJoinProcessor. */
public final class Lookup {
    private final Supplier<TableView> table;
    private final boolean isLeft;
    private final Matches matches;

    /** @param isLeft whether records without a row have results, too */
    public Lookup(Supplier<TableView> table, boolean isLeft, Matches matches) {
        this.table = table;
        this.isLeft = isLeft;
        this.matches = matches;
    }

    /** @param key null for a record that has no row */
    public void record(byte[] key, long at, Object[] parts) {
        Window found = key == null ? null : table.get().lookAsOf(key, at);
        if (found != null && Keyed.isThere(found)) {
            matches.match(key, at, parts, found.parts);
        } else if (isLeft) {
            matches.match(key, at, parts, null);
        }
    }
}
