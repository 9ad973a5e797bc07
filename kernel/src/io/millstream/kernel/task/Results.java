package io.millstream.kernel.task;

import io.millstream.kernel.Constants;
import io.millstream.kernel.core.Encoded;
import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.Matches;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.Window;
import java.util.ArrayDeque;
import org.apache.spark.sql.catalyst.InternalRow;

/** Turns the changes and matches of one item into rows. */
final class Results implements Output, Matches {
    private final Rows rows;
    private final int tag;
    private final OperatorPlan.Item item;
    private final boolean isSilent;
    private final boolean isOfOne;
    private final boolean isHeldBack;
    /** Whether records wait for their rows: they carry their headers among their parts. */
    private final boolean isWaiting;
    /** The items whose parts a join has; on the left its own, if it is a join with a table. */
    private final int onLeft;

    private final int onRight;
    /** The headers of its last record. */
    byte[] last;

    /** The rows of an operator. */
    static final class Rows {
        private final Shelf[] shelves;
        /** For each item, the columns of its parts, and of its previous ones. */
        private final int[] places;

        private final int[] placesOfOld;
        private final int width;
        private final ArrayDeque<ResultRow> results = new ArrayDeque<>();
        private final ArrayDeque<ResultRow> free = new ArrayDeque<>();
        private ResultRow taken;
        /** The headers of the record at hand. */
        byte[] atHand;

        Rows(OperatorPlan plan, Shelf[] shelves) {
            this.shelves = shelves;
            this.places = new int[shelves.length];
            this.placesOfOld = new int[shelves.length];
            int columns = Operation.OWN.size();
            for (int i = 0; i < shelves.length; i++) {
                places[i] = Operation.OWN.size() + plan.place(i);
                placesOfOld[i] = Operation.OWN.size() + plan.placeOfOld(i);
                OperatorPlan.Item each = plan.items.get(i);
                columns += each.prefixes().size() * each.names().size();
            }
            width = columns;
        }

        int width() {
            return width;
        }

        /** The next row; null if there is none. It is valid until the next call. */
        InternalRow next() {
            if (taken != null) {
                free.push(taken);
            }
            taken = results.poll();
            return taken == null ? null : taken.computed();
        }

        private ResultRow row(int tag, int kind, byte[] key, long start, long end, long at) {
            ResultRow row = free.isEmpty() ? new ResultRow(width) : free.pop();
            return row.of(tag, kind, key, start, end, at);
        }

        private void put(ResultRow row, int of, Object[] given, boolean isOld) {
            if (isOld ? !shelves[of].item.remembers() : given == null) {
                return;
            }
            int first = isOld ? placesOfOld[of] : places[of];
            Content content = shelves[of].content;
            Object[] parts = given == null ? initial(of, row.key()) : given;
            for (int i = 0; i < parts.length; i++) {
                Object part = parts[i];
                if (part instanceof Folded folded) {
                    row.put(first + i, folded.share()); // computed later, with others
                } else if (part instanceof Encoded encoded) {
                    row.put(first + i, encoded.bytes());
                } else if (part != null) {
                    row.put(first + i, content.packing(i).column(part));
                }
            }
        }

        /** What a window has before its first record. Sessions have nothing. */
        private Object[] initial(int of, byte[] key) {
            Object[] parts = new Object[shelves[of].item.names().size()];
            if (!shelves[of].item.core().equals("sessions")) {
                for (int i = 0; i < parts.length; i++) {
                    parts[i] = shelves[of].content.initial(i, key);
                }
            }
            return parts;
        }

        /** The row of a window as its store has it, which is emitted to nobody. */
        InternalRow stored(int tag, byte[] key, Window window) {
            ResultRow row = new ResultRow(width)
                    .of(tag, Constants.KIND_UPDATE, key, window.start, window.end, window.at);
            put(row, tag, window.parts, false);
            return row.computed();
        }

        /** The row of a value that was read, which is in the place of headers. */
        InternalRow given(int tag, byte[] key, Window window, byte[] value) {
            ResultRow row = new ResultRow(width)
                    .of(tag, Constants.KIND_UPDATE, key, window.start, window.end, window.at);
            row.headers = value;
            return row.computed();
        }
    }

    Results(Rows rows, OperatorPlan plan, int tag) {
        this.rows = rows;
        this.tag = tag;
        this.item = plan.items.get(tag);
        this.isSilent = item.setting("silent") != 0;
        this.isOfOne = item.isOfOne();
        this.isHeldBack = item.core().equals("suppress");
        this.isWaiting = item.core().equals("waiting");
        boolean isOfTable = item.settings().containsKey("table");
        this.onLeft = isOfTable ? tag : item.link("left");
        this.onRight = item.link(isOfTable ? "table" : "right");
    }

    @Override
    public void update(byte[] key, Window window) {
        if (isSilent) {
            return;
        }
        if (window.gone) {
            gone(key, window);
        } else {
            emit(Constants.KIND_UPDATE, key, window, window.headers);
        }
    }

    @Override
    public void gone(byte[] key, Window window) {
        ResultRow row = row(Constants.KIND_GONE, key, window.start, window.end, window.at);
        row.headers = window.headers;
        rows.put(row, of(), window.before, true);
        rows.results.add(row);
    }

    @Override
    public void closed(byte[] key, Window window) {
        // What is held back has its own headers; a window that closes, those of the record that closed it.
        byte[] headers = isHeldBack ? window.headers : last;
        if (window.gone) {
            ResultRow row = row(Constants.KIND_CLOSED_GONE, key, window.start, window.end, window.at);
            row.headers = headers;
            rows.results.add(row);
        } else {
            emit(Constants.KIND_CLOSED, key, window, headers);
        }
    }

    @Override
    public void late(byte[] key, long at, long start, long end, long streamTime) {
        ResultRow row = row(Constants.KIND_LATE, key, start, end, at);
        row.time(streamTime);
        rows.results.add(row);
    }

    private int of() {
        return item.of() < 0 ? tag : item.of();
    }

    private void emit(int kind, byte[] key, Window window, byte[] headers) {
        ResultRow row = row(kind, key, window.start, window.end, window.at);
        row.headers = headers;
        rows.put(row, of(), window.parts, false);
        rows.put(row, of(), window.before, true);
        if (window.isPast) {
            row.time(window.end);
        }
        rows.results.add(row);
    }

    @Override
    public void match(byte[] key, long at, Object[] left, Object[] right) {
        ResultRow row = row(Constants.KIND_UPDATE, key, 0, 0, at);
        row.headers = isWaiting ? null : rows.atHand;
        rows.put(row, onLeft, left, false);
        rows.put(row, onRight, right, false);
        rows.results.add(row);
    }

    @Override
    public void change(byte[] key, long at, long since, boolean isLeft, Window left, Window right) {
        ResultRow row = row(Constants.KIND_UPDATE, key, since, 0, at);
        row.time(isLeft ? Constants.SIDE_LEFT : Constants.SIDE_RIGHT);
        row.headers = (isLeft ? left : right).headers;
        put(row, onLeft, left, isLeft || isOfOne);
        if (!isOfOne) {
            put(row, onRight, right, !isLeft);
        }
        rows.results.add(row);
    }

    private ResultRow row(int kind, byte[] key, long start, long end, long at) {
        return rows.row(tag, kind, key, start, end, at);
    }

    private void put(ResultRow row, int of, Window window, boolean hasChanged) {
        if (window != null) {
            rows.put(row, of, window.parts, false);
            rows.put(row, of, hasChanged ? window.before : window.parts, true);
        }
    }
}
