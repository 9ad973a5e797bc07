package io.millstream.kernel.state;

import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Due;
import io.millstream.kernel.core.Kept;
import io.millstream.kernel.core.Parts;
import io.millstream.kernel.core.Told;
import io.millstream.kernel.core.Window;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeMap;
import org.apache.spark.sql.Encoders;
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

/** What Spark keeps of one aggregation, for whichever bucket it is called for. */
final class Shelf implements Kept, Due.Pages {
    private static final StructType ENTRY =
            new StructType().add("key", DataTypes.BinaryType).add("slice", DataTypes.LongType);
    private static final StructType PAGE = new StructType().add("entries", DataTypes.createArrayType(ENTRY));
    private static final StructType COUNT =
            new StructType().add("time", DataTypes.LongType).add("pages", DataTypes.IntegerType);
    private static final StructType CLOCK = new StructType()
            .add("stream_time", DataTypes.LongType)
            .add("due", DataTypes.createArrayType(COUNT));

    private final Plan.Item item;
    private final Parts rules;
    private final DataType[] types;
    private final int[] columns;
    private final MapState<byte[], Row> slices;
    private final ValueState<Row> clock;
    private final MapState<byte[], Row> pages;
    private Due due;

    Shelf(StatefulProcessorHandle handle, Plan.Item item, int number) {
        this.item = item;
        this.rules = item.parts();
        this.types = item.types().toArray(new DataType[0]);
        this.columns = item.columns().stream().mapToInt(Integer::intValue).toArray();
        StructType window = new StructType().add("at", DataTypes.LongType);
        if (item.isWindowed()) {
            window = window.add("start", DataTypes.LongType).add("end", DataTypes.LongType);
        }
        for (int i = 0; i < types.length; i++) {
            // By place and not by name: a column's name depends on what else there is.
            window = window.add("part" + i, types[i]);
        }
        StructType slice = item.isWindowed()
                ? new StructType().add("windows", DataTypes.createArrayType(window))
                : window;
        slices = handle.getMapState("slices" + number, Encoders.BINARY(), Encoders.row(slice), TTLConfig.NONE());
        if (item.isWindowed()) {
            clock = handle.getValueState("clock" + number, Encoders.row(CLOCK), TTLConfig.NONE());
            pages = handle.getMapState("due" + number, Encoders.BINARY(), Encoders.row(PAGE), TTLConfig.NONE());
        } else {
            clock = null;
            pages = null;
        }
    }

    /** The core, as it was left; to be given back to {@link #close}. */
    Core open(Told told) {
        long streamTime = Core.NO_TIME;
        due = null;
        if (item.isWindowed()) {
            TreeMap<Long, Integer> counts = new TreeMap<>();
            if (clock.exists()) {
                Row kept = clock.get();
                streamTime = kept.getLong(0);
                for (Row count : kept.<Row>getList(1)) {
                    counts.put(count.getLong(0), count.getInt(1));
                }
            }
            due = new Due(this, counts, item.step());
        }
        return item.core(rules, this, told, due, streamTime);
    }

    void close(Core core) {
        if (item.isWindowed()) {
            List<Row> counts = new ArrayList<>();
            due.counts().forEach((time, number) -> counts.add(RowFactory.create(time, number)));
            clock.update(RowFactory.create(core.streamTime(), CollectionConverters.asScala(counts)));
        }
    }

    /** The parts that a row brings. */
    Object[] parts(Row row) {
        Object[] parts = new Object[columns.length];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = Values.read(row.get(columns[i]), types[i]);
        }
        return parts;
    }

    // --- slices ------------------------------------------------------------------------------------------

    @Override
    public List<Window> read(byte[] key, long slice) {
        Row kept = slices.getValue(name(key, slice));
        if (kept == null) {
            return null;
        }
        if (!item.isWindowed()) {
            return List.of(window(kept, 0, 0, 1));
        }
        List<Window> windows = new ArrayList<>();
        for (Row row : kept.<Row>getList(0)) {
            windows.add(window(row, row.getLong(1), row.getLong(2), 3));
        }
        return windows;
    }

    private Window window(Row row, long start, long end, int first) {
        Object[] parts = new Object[types.length];
        for (int i = 0; i < parts.length; i++) {
            parts[i] = Values.read(row.get(first + i), types[i]);
        }
        return new Window(start, end, row.getLong(0), parts);
    }

    @Override
    public void write(byte[] key, long slice, List<Window> windows) {
        byte[] name = name(key, slice);
        if (windows.isEmpty()) {
            slices.removeKey(name);
        } else if (item.isWindowed()) {
            List<Row> rows = new ArrayList<>(windows.size());
            windows.forEach(window -> rows.add(row(window, 3)));
            slices.updateValue(name, RowFactory.create(CollectionConverters.asScala(rows)));
        } else {
            slices.updateValue(name, row(windows.get(0), 1));
        }
    }

    private Row row(Window window, int first) {
        Object[] row = new Object[first + types.length];
        row[0] = window.at;
        if (first > 1) {
            row[1] = window.start;
            row[2] = window.end;
        }
        for (int i = 0; i < types.length; i++) {
            row[first + i] = Values.write(window.parts[i], types[i]);
        }
        return RowFactory.create(row);
    }

    private byte[] name(byte[] key, long slice) {
        if (!item.isWindowed()) {
            return key;
        }
        return ByteBuffer.allocate(key.length + Long.BYTES).put(key).putLong(slice).array();
    }

    // --- what is due -------------------------------------------------------------------------------------

    @Override
    public List<Due.Entry> read(long time, int page) {
        List<Due.Entry> entries = new ArrayList<>();
        for (Row row : pages.getValue(name(time, page)).<Row>getList(0)) {
            entries.add(new Due.Entry((byte[]) row.get(0), row.getLong(1)));
        }
        return entries;
    }

    @Override
    public void write(long time, int page, List<Due.Entry> entries) {
        List<Row> rows = new ArrayList<>(entries.size());
        entries.forEach(entry -> rows.add(RowFactory.create(entry.key(), entry.slice())));
        pages.updateValue(name(time, page), RowFactory.create(CollectionConverters.asScala(rows)));
    }

    @Override
    public void delete(long time, int page) {
        pages.removeKey(name(time, page));
    }

    private static byte[] name(long time, int page) {
        return ByteBuffer.allocate(Long.BYTES + Integer.BYTES).putLong(time).putInt(page).array();
    }
}
