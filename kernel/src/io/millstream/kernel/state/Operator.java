package io.millstream.kernel.state;

import io.millstream.kernel.Constants;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.Latest;
import io.millstream.kernel.core.Lookup;
import io.millstream.kernel.core.Matches;
import io.millstream.kernel.core.Output;
import io.millstream.kernel.core.Pairs;
import io.millstream.kernel.core.Records;
import io.millstream.kernel.core.References;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.TableJoin;
import io.millstream.kernel.core.TableView;
import io.millstream.kernel.core.Window;
import io.millstream.kernel.python.Folding;
import io.millstream.kernel.python.Program;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessorWithInitialState;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Aggregations and joins of keyed records, as one stateful Spark operator.
 *
 * <p>Spark's grouping key is a bucket of keys: the partition in which Kafka Streams would have them. So the rows of a
 * call are those that a Kafka Streams task would get, in the same order.
 */
public final class Operator extends StatefulProcessorWithInitialState<Integer, Row, Row, Row> {
    private static final long serialVersionUID = 1;

    private static final int TAG = 1;
    private static final int KEY = 2;
    private static final int AT = 3;
    private static final int HEADERS = 4;

    /** The columns of the output that come before the parts, and the last two of them. */
    private static final int OWN = 8;

    private static final int TIME = 6;
    private static final int HEADERS_OUT = 7;
    private static final String PASSED = "passed";
    private static final String SINCE = "since";

    private final Plan plan;
    /** The place of the column `since`; negative if there is none. */
    private final int sinceAt;

    private final StructType output;
    private final Program program;
    /** The name under which its tasks keep rows in memory. */
    private final String name = UUID.randomUUID().toString();
    /** Whether all its tasks are in one JVM. */
    private final boolean isAlone;

    private transient Retained retained;
    private transient List<Shelf> shelves;
    private transient Columns[] columnsOf;

    /** The columns of an item's parts in the output, and of its previous ones. */
    private record Columns(int first, int firstOld, boolean remembers, boolean isOpaque, DataType[] types) {}

    /** For each item, whether its changes are emitted without headers. */
    private transient boolean[] isBare;

    private Operator(Plan plan, int sinceAt, StructType output, Program program, boolean isAlone) {
        this.plan = plan;
        this.sinceAt = sinceAt;
        this.isAlone = isAlone;
        this.output = output;
        this.program = program;
    }

    /**
     * The results of aggregations.
     *
     * @param rows the bucket, an int, by which they are partitioned and sorted; the number of the aggregation, int; the
     *     key, binary; the timestamp, bigint, ms; the headers, binary (see {@link Headers}); then the parts, by their
     *     names. Rows with a negative number pass unchanged; they have only a column `passed`. A column `since`,
     *     bigint, has the time of a row of a table, if that is not its update's.
     * @param description a JSON array: for each aggregation its core, settings and parts; for an item that holds back
     *     the updates of an earlier one, that one's number as `of`, and no parts; for a join, the numbers of its sides
     * @param kept the initial state of a new checkpoint, or null: the bucket, the number of the aggregation, and an
     *     array of structs: `key`, `start`, `end`, `at`, and the parts of all aggregations
     * @param program computes the parts that are folds, by their numbers; null if there is none
     * @return `tag` int, `kind` int, `key` binary, `start`, `end`, `at`, `time` bigint, `headers` binary, and the parts
     *     of all; the parts of an aggregation that remembers are followed by their previous values, as `old_…`. Of a
     *     joined row, `start` is the time of the rows that it is made of; of a version of a row that has a later one,
     *     `time` is its end.
     */
    @SuppressWarnings("resource")
    public static Dataset<Row> of(Dataset<Row> rows, String description, Dataset<Row> kept, Program program) {
        Plan plan = Plan.of(description, rows.schema());
        StructType output = new StructType()
                .add("tag", DataTypes.IntegerType)
                .add("kind", DataTypes.IntegerType)
                .add("key", DataTypes.BinaryType)
                .add("start", DataTypes.LongType)
                .add("end", DataTypes.LongType)
                .add("at", DataTypes.LongType)
                .add("time", DataTypes.LongType)
                .add("headers", DataTypes.BinaryType);
        for (Plan.Item item : plan.items) {
            for (String prefix : item.prefixes()) {
                for (int i = 0; i < item.names().size(); i++) {
                    output = output.add(prefix + item.names().get(i), item.types().get(i));
                }
            }
        }
        if (List.of(rows.columns()).contains(PASSED)) {
            output = output.add(PASSED, rows.schema().apply(PASSED).dataType());
        }
        boolean isAlone = rows.sparkSession().sparkContext().isLocal();
        Operator processor = new Operator(plan, List.of(rows.columns()).indexOf(SINCE), output, program, isAlone);
        KeyValueGroupedDataset<Integer, Row> grouped = byBucket(rows);
        if (kept == null) {
            return grouped.transformWithState(
                    processor, TimeMode.None(), OutputMode.Update(), Encoders.row(output));
        }
        return grouped.transformWithState(
                processor,
                TimeMode.None(),
                OutputMode.Update(),
                byBucket(kept),
                Encoders.row(output),
                Encoders.row(kept.schema()));
    }

    private static KeyValueGroupedDataset<Integer, Row> byBucket(Dataset<Row> rows) {
        return rows.groupBy(rows.columns()[0]).as(Encoders.INT(), Encoders.row(rows.schema()));
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
        shelves = new ArrayList<>();
        columnsOf = new Columns[plan.items.size()];
        isBare = new boolean[plan.items.size()];
        Folds folds = new Folds(new Folding(program));
        boolean isRetained = IntStream.range(0, plan.items.size()).anyMatch(plan::isRetained);
        retained = isRetained ? Retained.of(name, isAlone, getHandle().getQueryInfo()) : null;
        for (int i = 0; i < plan.items.size(); i++) {
            Plan.Item item = plan.items.get(i);
            shelves.add(new Shelf(getHandle(), item, i, folds));
            isBare[i] = item.setting("bare") != 0;
            columnsOf[i] = new Columns(
                    OWN + plan.place(i),
                    OWN + plan.placeOfOld(i),
                    item.remembers(),
                    item.isOpaque(),
                    item.types().toArray(new DataType[0]));
        }
    }

    @Override
    public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
        open(bucket);
        Run run = new Run();
        while (rows.hasNext()) {
            Row row = rows.next();
            int tag = row.getInt(TAG);
            if (tag < 0) {
                run.results.add(passed(row));
            } else {
                byte[] key = (byte[]) row.get(KEY);
                long at = row.getLong(AT);
                long since = sinceAt < 0 || row.isNullAt(sinceAt) ? at : row.getLong(sinceAt);
                run.record(tag, key, at, since, shelves.get(tag).parts(key, row), (byte[]) row.get(HEADERS));
            }
        }
        run.finish();
        return CollectionConverters.asScala(run.results);
    }

    /** Gives the shelves the rows of a bucket that are in memory. */
    private void open(int bucket) {
        for (int tag = 0; retained != null && tag < shelves.size(); tag++) {
            int parts = plan.items.get(tag).types().size();
            shelves.get(tag).with(plan.isRetained(tag) ? retained.rows(tag, bucket, parts) : null);
        }
    }

    /** A row of the output, with what has been computed for it in the meantime. */
    private Row row(Object[] result) {
        for (int i = OWN; i < result.length && program != null; i++) {
            if (result[i] instanceof Folded folded) {
                result[i] = folded.bytes();
            }
        }
        return RowFactory.create(result);
    }

    private Object[] passed(Row row) {
        Object[] passed = new Object[output.size()];
        passed[0] = row.getInt(TAG);
        passed[5] = row.getLong(AT);
        passed[passed.length - 1] = row.getAs(PASSED);
        return passed;
    }

    @Override
    public void handleInitialState(Integer bucket, Row kept, TimerValues timers) {
        open(bucket);
        int tag = kept.getInt(TAG);
        Run run = new Run();
        Core core = run.core(tag);
        for (Row entry : kept.<Row>getList(2)) {
            core.restore((byte[]) entry.get(0), shelves.get(tag).window(entry, plan.place(tag) + 4));
        }
        run.finish();
    }

    /** Handles the rows of a bucket in one micro-batch. */
    private final class Run {
        private final PackedResults results = new PackedResults(output.size(), Operator.this::row);
        private final Core[] cores = new Core[plan.items.size()];
        private final Pairs[] pairs = new Pairs[plan.items.size()];
        private final Lookup[] lookups = new Lookup[plan.items.size()];
        private final Results[] emitted = new Results[plan.items.size()];
        /** The headers of the record at hand. */
        private byte[] atHand;
        /** For each item, those of its last record. */
        private final byte[][] last = new byte[plan.items.size()][];

        void record(int tag, byte[] key, long at, long since, Object[] parts, byte[] headers) {
            Plan.Item item = plan.items.get(tag);
            atHand = headers;
            last[tag] = headers;
            switch (item.core()) {
                case "lookup" -> lookup(tag).record(key, at, parts);
                case "references" -> {
                    if (key == null) { // there is no such row, and never will be
                        results(tag).match(null, at, parts, null);
                    } else {
                        references(tag).record(key, at, parts);
                    }
                }
                case "records" -> {
                    for (int join : plan.over(tag)) {
                        pairs(join).record(plan.items.get(join).link("left") == tag, key, at, parts);
                    }
                }
                case "latest" -> ((Latest) core(tag)).record(key, at, since, parts, isBare[tag] ? null : headers);
                default -> core(tag).record(key, at, parts, isBare[tag] ? null : headers);
            }
        }

        private Results results(int tag) {
            if (emitted[tag] == null) {
                emitted[tag] = new Results(tag, this);
            }
            return emitted[tag];
        }

        private TableView table(int tag) {
            return (TableView) core(tag);
        }

        private Lookup lookup(int tag) {
            if (lookups[tag] == null) {
                Plan.Item item = plan.items.get(tag);
                boolean isLeft = item.setting("alone") != 0;
                int table = item.link("table");
                lookups[tag] = new Lookup(() -> table(table), isLeft, results(tag));
            }
            return lookups[tag];
        }

        Core core(int tag) {
            if (cores[tag] == null && plan.items.get(tag).core().equals("waiting")) {
                cores[tag] = shelves.get(tag).open(lookup(tag));
            } else if (cores[tag] == null) {
                Output all = results(tag);
                for (int other : plan.over(tag)) {
                    all = over(other, tag, all);
                }
                cores[tag] = shelves.get(tag).open(all, plan.capacity(tag));
            }
            return cores[tag];
        }

        /** The receiver of an aggregation's changes, in addition to others. */
        private Output over(int tag, int below, Output others) {
            Plan.Item item = plan.items.get(tag);
            return switch (item.core()) {
                case "suppress" -> ((Suppress) core(tag)).of(others);
                case "table_join" -> {
                    int left = item.link("left");
                    int right = item.link("right");
                    TableJoin join = new TableJoin(() -> table(left), () -> table(right), results(tag));
                    Output side = join.of(others, below == left);
                    yield item.isOfOne() ? join.of(side, false) : side;
                }
                case "references" -> references(tag).of(others);
                default -> others;
            };
        }

        private References references(int tag) {
            if (cores[tag] == null) {
                int table = plan.items.get(tag).link("table");
                cores[tag] = shelves.get(tag).open(() -> table(table), results(tag));
            }
            return (References) cores[tag];
        }

        private Pairs pairs(int tag) {
            if (pairs[tag] == null) {
                Plan.Item item = plan.items.get(tag);
                Records left = (Records) core(item.link("left"));
                Records right = (Records) core(item.link("right"));
                pairs[tag] = shelves.get(tag).open(left, right, results(tag));
            }
            return pairs[tag];
        }

        void finish() {
            // All changes of joined tables are emitted before any table empties its cache.
            for (int tag = 0; tag < cores.length; tag++) {
                if (cores[tag] != null && plan.isJoined(tag)) {
                    cores[tag].emit();
                }
            }
            // Items that depend on others come after them.
            for (int tag = 0; tag < cores.length; tag++) {
                if (cores[tag] != null) {
                    cores[tag].finish();
                    shelves.get(tag).close();
                } else if (pairs[tag] != null) {
                    pairs[tag].finish();
                    shelves.get(tag).close();
                }
            }
        }
    }

    /** Turns changes into rows. */
    private final class Results implements Output, Matches {
        private final int tag;
        private final Run run;
        private final PackedResults rows;
        private final Plan.Item item;
        private final boolean isSilent;
        private final boolean isOfOne;
        private final boolean isHeldBack;
        /** Whether records wait for their rows: they carry their headers among their parts. */
        private final boolean isWaiting;
        /** The items whose parts a join has; on the left its own, if it is a join with a table. */
        private final int onLeft;

        private final int onRight;

        Results(int tag, Run run) {
            this.tag = tag;
            this.run = run;
            this.rows = run.results;
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
            Object[] row = row(Constants.KIND_GONE, key, window.start, window.end, window.at);
            row[HEADERS_OUT] = window.headers;
            put(row, tag, window.before, true);
            rows.add(row);
        }

        @Override
        public void closed(byte[] key, Window window) {
            // What is held back has its own headers; a window that closes, those of the record that closed it.
            byte[] headers = isHeldBack ? window.headers : run.last[tag];
            if (window.gone) {
                Object[] row = row(Constants.KIND_CLOSED_GONE, key, window.start, window.end, window.at);
                row[HEADERS_OUT] = headers;
                rows.add(row);
            } else {
                emit(Constants.KIND_CLOSED, key, window, headers);
            }
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            Object[] row = row(Constants.KIND_LATE, key, start, end, at);
            row[TIME] = streamTime;
            rows.add(row);
        }

        private void emit(int kind, byte[] key, Window window, byte[] headers) {
            Object[] row = row(kind, key, window.start, window.end, window.at);
            row[HEADERS_OUT] = headers;
            int of = item.of() < 0 ? tag : item.of();
            put(row, of, window.parts, false);
            put(row, of, window.before, true);
            if (window.isPast) {
                row[TIME] = window.end;
            }
            rows.add(row);
        }

        @Override
        public void match(byte[] key, long at, Object[] left, Object[] right) {
            Object[] row = row(Constants.KIND_UPDATE, key, 0, 0, at);
            row[HEADERS_OUT] = isWaiting ? null : run.atHand;
            put(row, onLeft, left, false);
            put(row, onRight, right, false);
            rows.add(row);
        }

        @Override
        public void change(byte[] key, long at, long since, boolean isLeft, Window left, Window right) {
            Object[] row = row(Constants.KIND_UPDATE, key, since, 0, at);
            row[TIME] = (long) (isLeft ? Constants.SIDE_LEFT : Constants.SIDE_RIGHT);
            row[HEADERS_OUT] = (isLeft ? left : right).headers;
            put(row, onLeft, left, isLeft || isOfOne);
            if (!isOfOne) {
                put(row, onRight, right, !isLeft);
            }
            rows.add(row);
        }

        private void put(Object[] row, int of, Window window, boolean changed) {
            if (window != null) {
                put(row, of, window.parts, false);
                put(row, of, changed ? window.before : window.parts, true);
            }
        }

        private void put(Object[] row, int of, Object[] parts, boolean old) {
            Columns columns = columnsOf[of];
            if (parts == null || old && !columns.remembers) {
                return;
            }
            int first = old ? columns.firstOld : columns.first;
            for (int i = 0; i < parts.length; i++) {
                row[first + i] = parts[i] instanceof Folded folded
                        ? folded.share() // computed later, with others
                        : columns.isOpaque ? parts[i] : Values.write(parts[i], columns.types[i]);
            }
        }

        private Object[] row(int kind, byte[] key, long start, long end, long at) {
            Object[] row = new Object[output.size()];
            row[0] = tag;
            row[1] = kind;
            row[2] = key;
            row[3] = start;
            row[4] = end;
            row[5] = at;
            return row;
        }
    }
}
