package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.millstream.kernel.Constants;
import io.millstream.kernel.sink.Written;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;

/**
 * What the tasks of a run have read, written and dropped since that was last asked for. Any thread may call it. It
 * outlives the tasks, because the last of it is asked for when they have ended.
 */
final class Figures implements Serializable {
    private static final long serialVersionUID = 1;
    private static final Map<String, Figures> RUNS = new ConcurrentHashMap<>();
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<TopicPartition, Long> starts = new ConcurrentHashMap<>();
    private final Map<TopicPartition, Long> ends = new ConcurrentHashMap<>();
    private final Map<TopicPartition, Long> committed = new ConcurrentHashMap<>();
    private final Map<String, Long> dropped = new TreeMap<>();
    /** From which partitions that was. */
    private final Map<String, Set<String>> places = new TreeMap<>();
    /** The last of those that were late, by the stream time. */
    private final Map<String, long[]> latest = new TreeMap<>();

    /** Of the records that were read, as Kafka Streams counts them. */
    private final Map<TopicPartition, Long> bytes = new HashMap<>();
    /** How often tasks did something, and how long that took: in sum, at least and at most, in ns. */
    private final Map<String, long[]> spans = new TreeMap<>();

    private Written written = new Written();
    private long records;

    static void begin(String run) {
        RUNS.put(run, new Figures());
    }

    static void end(String run) {
        RUNS.remove(run);
    }

    /** Those of a run; of one that has ended, some that nobody asks for. */
    static Figures of(String run) {
        return RUNS.getOrDefault(run, new Figures());
    }

    /** Partitions are read from there. */
    void begun(Map<TopicPartition, Long> at) {
        at.forEach(starts::putIfAbsent);
        committed.putAll(at);
    }

    /** Partitions are committed up to there. */
    void committed(Map<TopicPartition, Long> at) {
        reached(at);
        committed.putAll(at);
    }

    /** Partitions were read up to there. */
    void reached(Map<TopicPartition, Long> at) {
        at.forEach((each, next) -> ends.merge(each, next, Math::max));
    }

    /** So many records were read that are from no topic. */
    synchronized void read(long count) {
        records += count;
    }

    /** Records with so many bytes were read. */
    synchronized void read(TopicPartition from, long count) {
        bytes.merge(from, count, Long::sum);
    }

    synchronized void wrote(Written more) {
        written.add(more);
    }

    /** A task did something for so long. */
    void took(String what, long ns) {
        took(what, new long[] {1, ns, ns, ns});
    }

    private synchronized void took(String what, long[] more) {
        spans.merge(what, more, (one, other) -> new long[] {
            one[0] + other[0], one[1] + other[1], Math.min(one[2], other[2]), Math.max(one[3], other[3])
        });
    }

    /** A record was dropped; `from` may be null. */
    synchronized void dropped(String what, String from) {
        dropped.merge(what, 1L, Long::sum);
        if (from != null) {
            places.computeIfAbsent(what, key -> new TreeSet<>()).add(from);
        }
    }

    /** A record was late; `how` are the fields of Python's LateRecord, with the stream time first. */
    synchronized void late(String what, long[] how) {
        dropped.merge(what, 1L, Long::sum);
        noteLatest(what, how);
    }

    private void noteLatest(String what, long[] how) {
        latest.merge(what, how, (one, other) -> Arrays.compare(one, other) < 0 ? other : one);
    }

    /** Those of an executor, which has handed them over. */
    void add(Figures more) {
        more.starts.forEach(starts::putIfAbsent);
        reached(more.ends);
        more.committed.forEach((each, next) -> committed.merge(each, next, Math::max));
        addCounts(more);
    }

    private synchronized void addCounts(Figures more) {
        records += more.records;
        written.add(more.written);
        more.dropped.forEach((what, count) -> dropped.merge(what, count, Long::sum));
        more.places.forEach((what, from) ->
                places.computeIfAbsent(what, key -> new TreeSet<>()).addAll(from));
        more.latest.forEach(this::noteLatest);
        more.spans.forEach(this::took);
        more.bytes.forEach(this::read);
    }

    /** All of it, but for what was counted before. */
    synchronized Figures handOver() {
        Figures all = new Figures();
        all.add(this);
        clear();
        return all;
    }

    private void clear() {
        written = new Written();
        records = 0;
        dropped.clear();
        places.clear();
        latest.clear();
        spans.clear();
        bytes.clear();
    }

    /** Another client reads these partitions now. */
    void forget(int partition) {
        for (Map<TopicPartition, Long> each : List.of(starts, ends, committed)) {
            each.keySet().removeIf(at -> at.partition() == partition);
        }
    }

    private static void put(ObjectNode offsets, TopicPartition at, long offset) {
        offsets.withObjectProperty(at.topic()).put(String.valueOf(at.partition()), offset);
    }

    /** The committed offsets, by topic-partition. */
    Map<String, Long> committed() {
        Map<String, Long> all = new TreeMap<>();
        committed.forEach((each, next) -> all.put(each.toString(), next));
        return all;
    }

    /** What was read and is not committed, as offsets of Spark: those committed, and those reached. */
    String[] unfinished() {
        ObjectNode start = JSON.createObjectNode();
        ObjectNode end = JSON.createObjectNode();
        committed.forEach((each, next) -> {
            put(start, each, next);
            put(end, each, Math.max(next, ends.getOrDefault(each, next)));
        });
        return new String[] {start.toString(), end.toString()};
    }

    /**
     * All of it, in JSON, in the form of a progress report of Spark (millstream/spark/run/dropped.py); and `tasks`, how
     * often they did what, and the ms that it took: in sum, at least, at most.
     *
     * @param batch the number that its batch is to have
     */
    synchronized String take(long batch) {
        ObjectNode all = JSON.createObjectNode();
        all.put("batchId", batch).put("numInputRows", records);
        ObjectNode source = all.putArray("sources").addObject();
        ObjectNode start = source.putObject("startOffset");
        ObjectNode end = source.putObject("endOffset");
        ends.forEach((each, next) -> {
            put(start, each, starts.getOrDefault(each, next));
            put(end, each, next);
            starts.put(each, next);
        });
        ObjectNode sizes = JSON.createObjectNode();
        bytes.forEach((each, count) -> put(sizes, each, count));
        source.putObject("metrics").put(Constants.METRIC_BYTES, sizes.toString());
        ObjectNode observed = all.putObject("observedMetrics").putObject("millstream.dropped.tasks");
        dropped.forEach(observed::put);
        places.forEach((what, from) -> from.forEach(observed.withArrayProperty(what + ":in")::add));
        latest.forEach((what, how) -> Arrays.stream(how).forEach(observed.withArrayProperty(what + ":latest")::add));
        ObjectNode times = all.putObject("tasks");
        spans.forEach((what, span) -> {
            ArrayNode found = times.putArray(what).add(span[0]);
            for (int i = 1; i < span.length; i++) {
                found.add(span[i] / 1e6);
            }
        });
        ObjectNode metrics = all.putObject("sink").putObject("metrics");
        written.metrics(batch).forEach(metrics::put);
        clear();
        return all.toString();
    }
}
