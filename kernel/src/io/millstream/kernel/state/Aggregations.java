package io.millstream.kernel.state;

import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.Folded;
import io.millstream.kernel.core.Folds;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.Told;
import io.millstream.kernel.core.Window;
import io.millstream.kernel.python.Folding;
import io.millstream.kernel.python.Program;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessorWithInitialState;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Aggregations of keyed records as one stateful operator of Spark.
 *
 * <p>Spark's grouping key is a bucket of keys, the partition that Kafka Streams would have them in. So the rows of a
 * call are what a task of Kafka Streams gets, in its order.
 */
public final class Aggregations extends StatefulProcessorWithInitialState<Integer, Row, Row, Row> {
    private static final long serialVersionUID = 1;

    /** What a row of the output is. */
    private static final int UPDATE = 0;

    private static final int GONE = 1;
    private static final int CLOSED = 2;
    private static final int LATE = 3;
    private static final int CLOSED_GONE = 4;

    private static final int TAG = 1;
    private static final int KEY = 2;
    private static final int AT = 3;
    private static final int OWN = 7;
    private static final String PASSED = "passed";

    private final Plan plan;
    private final StructType output;
    private final Program program;
    private transient List<Shelf> shelves;

    private Aggregations(Plan plan, StructType output, Program program) {
        this.plan = plan;
        this.output = output;
        this.program = program;
    }

    /**
     * The results of aggregations.
     *
     * @param rows first the bucket, an int, by which they are partitioned and sorted; the number of the
     *     aggregation, int; the key, binary; the timestamp, bigint, ms; then the parts, as they are named
     * @param description a JSON array: of each aggregation its core, settings, and parts; of what holds back the
     *     updates of one before it, that one's number as `of`, and no parts
     *     Rows whose number is negative pass as they are; they have a column `passed`, and nothing else.
     * @param kept what a new checkpoint begins with; null for nothing: the bucket, the number of the aggregation,
     *     and an array of structs: `key`, `start`, `end`, `at`, and the parts of all aggregations
     * @param program what computes those whose part is a fold, by their numbers; null if there is none
     * @return `tag` int, `kind` int, `key` binary, `start`, `end`, `at`, `time` bigint, and the parts
     */
    public static Dataset<Row> of(Dataset<Row> rows, String description, Dataset<Row> kept, Program program) {
        Plan plan = Plan.of(description, rows.schema());
        StructType output = new StructType()
                .add("tag", DataTypes.IntegerType)
                .add("kind", DataTypes.IntegerType)
                .add("key", DataTypes.BinaryType)
                .add("start", DataTypes.LongType)
                .add("end", DataTypes.LongType)
                .add("at", DataTypes.LongType)
                .add("time", DataTypes.LongType);
        for (Plan.Item item : plan.items) {
            for (int i = 0; i < item.names().size() && item.of() < 0; i++) {
                output = output.add(item.names().get(i), item.types().get(i));
            }
        }
        if (List.of(rows.columns()).contains(PASSED)) {
            output = output.add(PASSED, rows.schema().apply(PASSED).dataType());
        }
        Aggregations processor = new Aggregations(plan, output, program);
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
        Folds folds = new Folds(new Folding(program));
        for (int i = 0; i < plan.items.size(); i++) {
            shelves.add(new Shelf(getHandle(), plan.items.get(i), i, folds));
        }
    }

    @Override
    public Iterator<Row> handleInputRows(Integer bucket, Iterator<Row> rows, TimerValues timers) {
        List<Object[]> results = new ArrayList<>();
        Core[] cores = new Core[shelves.size()];
        while (rows.hasNext()) {
            Row row = rows.next();
            int tag = row.getInt(TAG);
            if (tag < 0) {
                results.add(passed(row));
                continue;
            }
            if (cores[tag] == null) {
                open(tag, cores, results);
            }
            byte[] key = (byte[]) row.get(KEY);
            cores[tag].record(key, row.getLong(AT), shelves.get(tag).parts(key, row));
        }
        // What holds updates back comes after those that have them.
        for (int tag = 0; tag < cores.length; tag++) {
            if (cores[tag] != null) {
                cores[tag].finish();
                shelves.get(tag).close();
            }
        }
        return CollectionConverters.asScala(results.stream().map(this::row).iterator());
    }

    /** A row of the output: with what has been computed for it by now. */
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
        int tag = kept.getInt(TAG);
        Core core = shelves.get(tag).open(new Results(tag, new ArrayList<>()));
        for (Row entry : kept.<Row>getList(2)) {
            core.restore((byte[]) entry.get(0), shelves.get(tag).window(entry, placeOfParts(tag) + 4));
        }
        core.finish();
        shelves.get(tag).close();
    }

    /** Where the parts of an aggregation begin, among those of all. */
    private int placeOfParts(int tag) {
        int place = 0;
        for (Plan.Item before : plan.items.subList(0, tag)) {
            place += before.of() < 0 ? before.names().size() : 0;
        }
        return place;
    }

    private Core open(int tag, Core[] cores, List<Object[]> results) {
        Told told = new Results(tag, results);
        for (int other = tag + 1; other < cores.length; other++) {
            if (plan.items.get(other).of() == tag) {
                told = ((Suppress) open(other, cores, results)).of(told);
            }
        }
        cores[tag] = shelves.get(tag).open(told);
        return cores[tag];
    }

    /** Makes rows of what is told. */
    private final class Results implements Told {
        private final int tag;
        private final List<Object[]> rows;
        private final int first;
        private final Plan.Item item;

        Results(int tag, List<Object[]> rows) {
            this.tag = tag;
            this.rows = rows;
            this.item = plan.items.get(tag);
            this.first = OWN + placeOfParts(item.of() < 0 ? tag : item.of());
        }

        @Override
        public void update(byte[] key, Window window) {
            if (window.gone) {
                gone(key, window);
            } else {
                tell(UPDATE, key, window);
            }
        }

        @Override
        public void gone(byte[] key, Window window) {
            rows.add(row(GONE, key, window.start, window.end, window.at));
        }

        @Override
        public void closed(byte[] key, Window window) {
            if (window.gone) {
                rows.add(row(CLOSED_GONE, key, window.start, window.end, window.at));
            } else {
                tell(CLOSED, key, window);
            }
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            Object[] row = row(LATE, key, start, end, at);
            row[OWN - 1] = streamTime;
            rows.add(row);
        }

        private void tell(int kind, byte[] key, Window window) {
            Object[] row = row(kind, key, window.start, window.end, window.at);
            for (int i = 0; i < window.parts.length; i++) {
                row[first + i] = window.parts[i] instanceof Folded folded
                        ? folded.share() // to be computed with others
                        : Values.write(window.parts[i], item.types().get(i));
            }
            rows.add(row);
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
