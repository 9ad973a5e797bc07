package io.millstream.kernel.core;

/** The last record of each key, with its own time; null parts are values, too. Source: KTableSource. */
public final class Latest extends Keyed {
    public Latest(Task task) {
        super(task);
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        Slice slice = remembers ? table.slice(key, 0) : table.anew(key, 0);
        Window window = valueOf(slice);
        if (window == null) {
            window = new Window(0, 0, at, record.clone());
            table.add(slice, window);
        } else {
            changing(window);
            window.at = at;
            window.parts = record.clone();
        }
        table.changed(window);
    }
}
