package io.millstream.kernel.state;

import io.millstream.kernel.core.Clock;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Due;
import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.Lookup;
import io.millstream.kernel.core.Matches;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.PackedRows;
import io.millstream.kernel.core.PagedDue;
import io.millstream.kernel.core.Pairs;
import io.millstream.kernel.core.Parts;
import io.millstream.kernel.core.Records;
import io.millstream.kernel.core.ReferencePages;
import io.millstream.kernel.core.References;
import io.millstream.kernel.core.SliceState;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.Table;
import io.millstream.kernel.core.TableView;
import io.millstream.kernel.core.Task;
import io.millstream.kernel.core.Waiting;
import io.millstream.kernel.core.Window;
import io.millstream.kernel.plan.Encodings;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** The state of one aggregation in Spark, for the bucket of the current call. */
final class Shelf implements SliceState {
    private static final StructType ENTRY = new StructType()
            .add("time", DataTypes.LongType)
            .add("key", DataTypes.BinaryType)
            .add("number", DataTypes.LongType);
    private static final StructType PAGE = new StructType().add("entries", DataTypes.createArrayType(ENTRY));
    private static final StructType COUNT =
            new StructType().add("span", DataTypes.LongType).add("pages", DataTypes.IntegerType);
    private static final StructType CLOCK = new StructType()
            .add("stream_time", DataTypes.LongType)
            .add("own", DataTypes.createArrayType(DataTypes.LongType))
            .add("due", DataTypes.createArrayType(COUNT))
            .add("closing", DataTypes.createArrayType(COUNT));

    private final Plan.Item item;
    /** The number of the item whose functions compute the folds. */
    private final int fold;

    private final Folds folds;
    /** For each of its parts, whether it is a fold. */
    private final boolean[] folded;
    private final Parts rules;
    private final DataType[] types;
    private final PartsOfRows brought;
    /** Whether its windows have a flag, which says that a window is gone, or waits. */
    private final boolean flagged;
    /** Whether its windows keep headers: what is held back goes on with them. */
    private final boolean headed;

    private final boolean opaque;
    private final MapState<byte[], Row> slices;
    private final ValueState<Row> clock;
    private final MapState<byte[], Row> pages;
    private Clock time;
    private PagedDue due;
    private PagedDue closing;
    /** Rows that need not be read; null if each has to be. */
    private PackedRows inMemory;

    Shelf(StatefulProcessorHandle handle, Plan.Item item, int number, Folds folds) {
        this.item = item;
        this.fold = item.of() < 0 ? number : item.of();
        this.folds = folds;
        this.folded = new boolean[item.rules().size()];
        for (int i = 0; i < folded.length; i++) {
            folded[i] = item.rules().get(i).equals("fold");
        }
        this.rules = item.parts();
        this.types = item.types().toArray(new DataType[0]);
        this.brought = new PartsOfRows(item);
        this.flagged = item.of() >= 0 || item.core().equals("records");
        this.headed = item.core().equals("suppress");
        this.opaque = item.isOpaque();
        if (!item.hasState()) {
            slices = null;
            clock = null;
            pages = null;
            return;
        }
        StructType window = new StructType().add("at", DataTypes.LongType);
        if (item.isSliced()) {
            window = window.add("start", DataTypes.LongType).add("end", DataTypes.LongType);
        }
        for (int i = 0; i < types.length; i++) {
            // By place, not by name, because a column's name depends on the other items.
            window = window.add("part" + i, types[i]);
        }
        if (flagged) {
            window = window.add("flag", DataTypes.BooleanType);
        }
        if (headed) {
            window = window.add("headers", DataTypes.BinaryType);
        }
        StructType slice = item.isSliced()
                ? new StructType().add("windows", DataTypes.createArrayType(window))
                : window;
        slices = handle.getMapState("slices" + number, Encodings.binary(), Encodings.row(slice), TTLConfig.NONE());
        if (item.isWindowed()) {
            clock = handle.getValueState("clock" + number, Encodings.row(CLOCK), TTLConfig.NONE());
            pages = handle.getMapState("due" + number, Encodings.binary(), Encodings.row(PAGE), TTLConfig.NONE());
        } else {
            clock = null;
            pages = null;
        }
    }

    /** Sets the rows that are in memory, for the bucket of the current call. */
    void with(PackedRows packed) {
        inMemory = packed;
    }

    /** The core with its state; to be passed to {@link #close} afterwards. */
    Core open(Output output, int capacity) {
        open();
        Output changes = item.core().equals("suppress") ? Suppress.log(output) : output;
        Table table = new Table(this, changes, item.atOnce(), capacity);
        return item.core(new Task(rules, table, output, time, due, closing, item.remembers()));
    }

    /** The references to the rows of a table, likewise. */
    References open(Supplier<TableView> rows, Matches matches) {
        open();
        Table table = new Table(this, null, true, Table.CAPACITY);
        Task task = new Task(rules, table, null, time, due, closing, false);
        return new References(task, new ReferencePages(table, types.length), rows, matches);
    }

    /** The join of two sides, likewise. */
    Pairs open(Records left, Records right, Matches matches) {
        open();
        return new Pairs(time, closing, item.pairs(), left, right, matches);
    }

    /** The records that wait for their rows, likewise. */
    Waiting open(Lookup lookup) {
        open();
        Table table = new Table(this, null, true, Table.CAPACITY); // waiting records are not emitted
        Task task = new Task(rules, table, null, time, due, closing, false);
        return new Waiting(task, item.setting("grace"), lookup);
    }

    private void open() {
        time = new Clock();
        due = null;
        closing = null;
        if (item.isWindowed()) {
            TreeMap<Long, Integer> dueCounts = new TreeMap<>();
            TreeMap<Long, Integer> closingCounts = new TreeMap<>();
            if (clock.exists()) {
                Row kept = clock.get();
                time.streamTime = kept.getLong(0);
                List<Long> own = kept.getList(1);
                for (int i = 0; i < own.size(); i++) {
                    time.own[i] = own.get(i);
                }
                read(kept.getList(2), dueCounts);
                read(kept.getList(3), closingCounts);
            }
            due = item.isDue() ? new PagedDue(new Pages((byte) 0), dueCounts, item.span(), false) : null;
            closing = item.isOnClose() ? new PagedDue(new Pages((byte) 1), closingCounts, item.span(), true) : null;
        }
    }

    private static void read(List<Row> counts, TreeMap<Long, Integer> into) {
        counts.forEach(count -> into.put(count.getLong(0), count.getInt(1)));
    }

    /** Writes what a finished core has beside its slices. */
    void close() {
        if (item.isWindowed()) {
            List<Object> own = new ArrayList<>();
            for (long each : time.own) {
                own.add(each);
            }
            clock.update(RowFactory.create(
                    time.streamTime, CollectionConverters.asScala(own), counts(due), counts(closing)));
        }
    }

    private static Object counts(PagedDue due) {
        List<Row> counts = new ArrayList<>();
        if (due != null) {
            due.counts().forEach((span, number) -> counts.add(RowFactory.create(span, number)));
        }
        return CollectionConverters.asScala(counts);
    }

    /** A part in a row. */
    Object[] parts(byte[] key, Row row) {
        Object[] parts = brought.read(row);
        for (int i = 0; i < parts.length; i++) {
            if (folded[i]) {
                parts[i] = folds.record(fold, key, (byte[]) parts[i]);
            }
        }
        return parts;
    }

    private Object read(Object value, int part) {
        return opaque ? value : Values.read(value, types[part]);
    }

    /** A window from an earlier state; its start, end and time are columns 1 to 3. */
    Window window(Row row, int firstPart) {
        return window((byte[]) row.get(0), row, row.getLong(1), row.getLong(2), row.getLong(3), firstPart);
    }

    private Window window(byte[] key, Row row, long start, long end, long at, int first) {
        Object[] parts = new Object[types.length];
        for (int i = 0; i < parts.length; i++) {
            Object value = row.get(first + i);
            parts[i] = folded[i] ? folds.kept(fold, key, (byte[]) value) : read(value, i);
        }
        Window window = new Window(start, end, at, parts);
        int last = first + types.length;
        boolean flag = flagged && row.getBoolean(last);
        window.headers = headed ? (byte[]) row.get(flagged ? last + 1 : last) : null;
        window.gone = flag && item.of() >= 0;
        window.waits = flag && item.of() < 0;
        return window;
    }

    // --- slices ------------------------------------------------------------------------------------------

    @Override
    public ArrayList<Window> read(byte[] key, long slice) {
        Window found = inMemory == null ? null : inMemory.find(key);
        if (found != null) {
            return only(found);
        }
        if (inMemory != null && inMemory.isWhole()) {
            return null;
        }
        Row kept = slices.getValue(name(key, slice));
        if (kept == null) {
            return null;
        }
        if (!item.isSliced()) {
            Window window = window(key, kept, 0, 0, kept.getLong(0), 1);
            if (inMemory != null) {
                inMemory.put(key, window);
            }
            return only(window);
        }
        List<Row> rows = kept.getList(0);
        ArrayList<Window> windows = new ArrayList<>(rows.size() + 1);
        for (Row row : rows) {
            windows.add(window(key, row, row.getLong(1), row.getLong(2), row.getLong(0), 3));
        }
        return windows;
    }

    private static ArrayList<Window> only(Window window) {
        ArrayList<Window> windows = new ArrayList<>(1);
        windows.add(window);
        return windows;
    }

    @Override
    public void write(byte[] key, long slice, List<Window> windows) {
        byte[] name = name(key, slice);
        if (inMemory != null) {
            if (windows.isEmpty() || isForgotten(windows.get(0))) {
                inMemory.remove(key);
            } else {
                inMemory.put(key, windows.get(0));
            }
        }
        if (windows.isEmpty()) {
            slices.removeKey(name);
        } else if (item.isSliced()) {
            List<Row> rows = new ArrayList<>(windows.size());
            windows.forEach(window -> rows.add(row(window, 3)));
            slices.updateValue(name, RowFactory.create(CollectionConverters.asScala(rows)));
        } else if (isForgotten(windows.get(0))) {
            slices.removeKey(name);
        } else {
            slices.updateValue(name, row(windows.get(0), 1));
        }
    }

    /** Whether a key has no value, because a function returned none or it was deleted, so that it is forgotten. */
    private boolean isForgotten(Window window) {
        if (item.core().equals("latest")) {
            return window.parts[0] == null;
        }
        return window.parts[0] instanceof Folded computed && computed.bytes() == null;
    }

    private Row row(Window window, int first) {
        Object[] row = new Object[first + types.length + (flagged ? 1 : 0) + (headed ? 1 : 0)];
        row[0] = window.at;
        if (first > 1) {
            row[1] = window.start;
            row[2] = window.end;
        }
        for (int i = 0; i < types.length; i++) {
            row[first + i] = opaque ? window.parts[i] : Values.write(window.parts[i], types[i]);
        }
        if (flagged) {
            row[first + types.length] = window.gone || window.waits;
        }
        if (headed) {
            row[row.length - 1] = window.headers;
        }
        return RowFactory.create(row);
    }

    private byte[] name(byte[] key, long slice) {
        if (!item.isSliced()) {
            return key;
        }
        return ByteBuffer.allocate(key.length + Long.BYTES).put(key).putLong(slice).array();
    }

    // --- what is due -------------------------------------------------------------------------------------

    private final class Pages implements Due.Pages {
        private final byte kind;

        Pages(byte kind) {
            this.kind = kind;
        }

        @Override
        public List<Due.Entry> read(long span, int page) {
            List<Due.Entry> entries = new ArrayList<>();
            for (Row row : pages.getValue(name(span, page)).<Row>getList(0)) {
                entries.add(new Due.Entry(row.getLong(0), (byte[]) row.get(1), row.getLong(2)));
            }
            return entries;
        }

        @Override
        public void write(long span, int page, List<Due.Entry> entries) {
            List<Row> rows = new ArrayList<>(entries.size());
            entries.forEach(entry -> rows.add(RowFactory.create(entry.time(), entry.key(), entry.number())));
            pages.updateValue(name(span, page), RowFactory.create(CollectionConverters.asScala(rows)));
        }

        @Override
        public void delete(long span, int page) {
            pages.removeKey(name(span, page));
        }

        private byte[] name(long span, int page) {
            return ByteBuffer.allocate(1 + Long.BYTES + Integer.BYTES)
                    .put(kind)
                    .putLong(span)
                    .putInt(page)
                    .array();
        }
    }
}
