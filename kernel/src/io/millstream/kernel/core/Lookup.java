package io.millstream.kernel.core;

import java.util.function.Supplier;

/** Each record of a stream, with the row of its key at the record's time. Source: KStreamKTableJoinProcessor. */
public final class Lookup {
    private final Supplier<TableView> table;
    private final Matches matches;

    public Lookup(Supplier<TableView> table, Matches matches) {
        this.table = table;
        this.matches = matches;
    }

    /** @param key null for a record that has no row */
    public void record(byte[] key, long at, Object[] parts) {
        Window found = key == null ? null : table.get().lookAsOf(key, at);
        matches.match(key, at, parts, found == null ? null : found.parts);
    }
}
