package io.millstream.kernel.core;

import java.util.List;
import java.util.function.Supplier;

/**
 * The references to the keys of a table, each under a name: emitted with the table's row when they come, and whenever
 * the row changes. Sources: SubscriptionReceiveProcessorSupplier, SubscriptionJoinProcessorSupplier,
 * ForeignTableJoinProcessorSupplier.
 */
public final class References extends Core {
    /** The parts with the name, and with whether it is kept; a reference replaces another one of the same name. */
    private static final int NAME = 1;

    private static final int STAYS = 2;

    private final Kept kept;
    private final Supplier<TableView> rows;
    private final Matches matches;

    /** Keeps references. */
    public interface Kept {
        /** @param reference what there is under this name from now on; null for nothing */
        void put(byte[] key, byte[] name, Window reference);

        /** The references to a key, by name, which is the order in which Kafka Streams finds them. */
        List<Window> all(byte[] key);
    }

    public References(Task task, Kept kept, Supplier<TableView> rows, Matches matches) {
        super(task);
        this.kept = kept;
        this.rows = rows;
        this.matches = matches;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        boolean stays = (boolean) record[STAYS];
        kept.put(key, name(record), stays ? new Window(0, 0, at, record.clone()) : null);
        Window row = rows.get().look(key);
        boolean isThere = Keyed.isThere(row);
        matches.match(key, isThere ? Math.max(at, row.at) : at, record, isThere ? row.parts : null);
    }

    static byte[] name(Object[] reference) {
        return (byte[]) reference[NAME];
    }

    /** The receiver of the table's changes, in addition to `first`. */
    public Output of(Output first) {
        return new TableOutput() {
            @Override
            public void update(byte[] key, Window row) {
                first.update(key, row);
                for (Window reference : kept.all(key)) {
                    matches.change(key, row.updated, row.at, false, reference, row);
                }
            }
        };
    }

    @Override
    public boolean derive(byte[] key, Window window) {
        return true;
    }

    @Override
    protected Slice place(byte[] key, Window window) {
        throw new IllegalStateException("what refers to a row is in no changelog");
    }
}
