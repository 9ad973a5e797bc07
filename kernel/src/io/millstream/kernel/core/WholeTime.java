package io.millstream.kernel.core;

/** The aggregate of all records of a key. Source: KStreamAggregate. */
public final class WholeTime extends Keyed {
    public WholeTime(Task task) {
        super(task);
    }

    @Override
    protected void process(byte[] key, long at, Object[] record) {
        Window window = now(key);
        if (window == null) {
            window = new Window(0, 0, at, parts.first(record));
            table.add(table.slice(key, 0), window);
        } else if (isForgotten(window)) {
            window.at = at;
            window.before = null;
            window.parts = parts.first(record);
        } else {
            changing(window);
            window.at = Math.max(window.at, at);
            parts.add(window.parts, record);
        }
        table.changed(window);
    }

    /** Whether a function gave nothing, which is as if there had been no record. */
    private static boolean isForgotten(Window window) {
        for (Object part : window.parts) {
            if (part instanceof Folded folded && folded.isKnown() && folded.bytes() == null) {
                return true;
            }
        }
        return false;
    }
}
