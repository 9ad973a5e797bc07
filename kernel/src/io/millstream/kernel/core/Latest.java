package io.millstream.kernel.core;

/** The last record of each key, with its own time; null parts are values, too. Source: KTableSource. */
public final class Latest extends Keyed {
    /** Whether a row that was and is absent is no change. */
    private final boolean isQuiet;

    public Latest(Task task) {
        this(task, false);
    }

    /** @param isQuiet a row that was and is absent is no change, as behind KTableFilter */
    public Latest(Task task, boolean isQuiet) {
        super(task);
        this.isQuiet = isQuiet;
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        update(key, at, at, record);
    }

    /**
     * Processes the update of a row that is computed from rows elsewhere.
     *
     * @param since the latest time of these rows, which may be before the update's, if that was a deletion
     * @param headers the headers of the changes it causes; null for none
     */
    public void record(byte[] key, long at, long since, Object[] record, byte[] headers) {
        table.makeRoom();
        table.of(headers);
        update(key, at, since, record);
    }

    private void update(byte[] key, long at, long since, Object[] record) {
        Slice slice = remembers || isQuiet ? table.slice(key, 0) : table.anew(key, 0);
        Window window = valueOf(slice);
        Window row = new Window(0, 0, since, record.clone());
        if (isQuiet && !isThere(window) && !isThere(row)) {
            return;
        }
        if (window == null) {
            window = row;
            table.add(slice, window);
        } else {
            changing(window);
            window.at = since;
            window.parts = row.parts;
        }
        window.updated = at;
        table.changed(window);
    }
}
