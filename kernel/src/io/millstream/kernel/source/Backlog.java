package io.millstream.kernel.source;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;

/**
 * What the sources of one query have not read yet, and how much of it the next batch reads: one limit for all of them.
 *
 * <p>With a limit for each source, a small topic would run ahead of a large one, and records of the large one would be
 * late. Spark asks one source after the other; the first one's question is answered for all. What comes out is written
 * to Spark's offset log before the batch begins, so a batch that is repeated does not come here.
 */
public final class Backlog {
    private static final Map<String, Backlog> RUNS = new ConcurrentHashMap<>();
    private static final ObjectMapper JSON = new ObjectMapper();

    /** One source. `start` is where its next batch begins; null if that is not known yet. */
    private static final class Source {
        private final MicroBatchStream stream;
        private Offset start;

        Source(MicroBatchStream stream, Offset start) {
            this.stream = stream;
            this.start = start;
        }
    }

    private final long least;
    private final long most;
    private final double pause;
    private final List<String> log;
    private final Map<Integer, Source> sources = new TreeMap<>();
    private final Map<Integer, Optional<Offset>> planned = new HashMap<>();
    private final BatchEnds chosen = new BatchEnds();
    private Map<String, Object> client;
    private boolean isByTime = true;
    private long limit;
    /** When the last batch was planned, by the nano time, if it left something unread; or else 0. */
    private long fullSince;

    private volatile Admin admin;
    private volatile boolean isForgotten;
    /** How many batches were planned, with the one that is repeated; and what was unread before the first of them. */
    private volatile int batches;

    private volatile long unreadAtFirst = -1;

    private Backlog(long least, long most, double pause, List<String> log, boolean isRepeating) {
        this.least = least;
        this.most = most;
        this.pause = pause;
        this.log = log;
        limit = least;
        batches = isRepeating ? 1 : 0;
    }

    /**
     * Called on the driver when a query of this name is about to start.
     *
     * @param least about how many records the first batch reads at most
     * @param most and later ones, if they take only seconds
     * @param pause the shortest time between two batches, in seconds
     * @param log the lines of the newest file of Spark's offset log, one for each source; none if there is no file
     * @param isRepeating whether the batch of that file is not done, so that it comes first
     * @return until it is forgotten
     */
    public static Backlog begin(
            String run, long least, long most, double pause, List<String> log, boolean isRepeating) {
        Backlog backlog = new Backlog(least, most, pause, List.copyOf(log), isRepeating);
        RUNS.put(run, backlog);
        return backlog;
    }

    /** The query has ended. A newer one of the same name is left alone. */
    public static void forget(String run, Backlog begun) {
        RUNS.remove(run, begun);
        begun.isForgotten = true;
        begun.close();
    }

    /**
     * Whether the first batch is still to come or to end: how many records were unread before it, -1 if that is not
     * known; null if it has ended, or if there was nothing to read. Does not wait.
     */
    public Long unfinished() {
        boolean isDone = batches > 1 || batches == 1 && unreadAtFirst == 0;
        return isDone ? null : Long.valueOf(unreadAtFirst);
    }

    static Backlog of(String run) {
        return run == null ? null : RUNS.get(run);
    }

    /**
     * A source of the query, before its first batch.
     *
     * @param number the source's number in the query
     * @param settings those of its Kafka client
     * @param hasTimes whether the time of a record is the one that Kafka keeps
     */
    synchronized void add(int number, MicroBatchStream stream, Map<String, Object> settings, boolean hasTimes) {
        String line = number < log.size() ? log.get(number) : "-";
        sources.put(number, new Source(stream, line.equals("-") ? null : stream.deserializeOffset(line)));
        client = settings;
        isByTime &= hasTimes;
    }

    /** Where the source's next batch ends, which begins at `start`; null if it has no partitions. */
    synchronized Offset end(int number, Offset start) {
        Source source = sources.get(number);
        if (!planned.containsKey(number)) {
            source.start = start;
            plan();
        }
        Offset end = planned.remove(number).orElse(null);
        if (end != null && !start.equals(source.start)) { // the log was not as expected, so that was a guess
            Map<TopicPartition, Long> known = positions(start);
            Map<TopicPartition, Long> ends = positions(end);
            ends.replaceAll((at, last) -> Math.max(last, known.getOrDefault(at, last)));
            end = source.stream.deserializeOffset(json(ends));
        }
        source.start = end == null ? start : end;
        return end;
    }

    private void plan() {
        Map<Integer, Optional<Offset>> latest = new HashMap<>();
        Map<Integer, Map<TopicPartition, Long>> starts = new HashMap<>();
        Map<TopicPartition, long[]> unread = new TreeMap<>(
                Comparator.comparing(TopicPartition::topic).thenComparing(TopicPartition::partition));
        for (Map.Entry<Integer, Source> each : sources.entrySet()) {
            Source source = each.getValue();
            if (source.start == null) {
                source.start = source.stream.initialOffset();
            }
            Offset newest = ((SupportsAdmissionControl) source.stream)
                    .latestOffset(source.start, ReadLimit.allAvailable());
            Map<TopicPartition, Long> lasts = positions(newest);
            Map<TopicPartition, Long> firsts = started(positions(source.start), lasts);
            latest.put(each.getKey(), Optional.ofNullable(newest));
            starts.put(each.getKey(), firsts);
            lasts.forEach((at, last) -> {
                // A topic that several sources read counts once.
                long[] range = unread.computeIfAbsent(at, any -> new long[] {Long.MAX_VALUE, 0});
                range[0] = Math.min(range[0], firsts.get(at));
                range[1] = Math.max(range[1], last);
            });
        }
        Map<TopicPartition, Long> ends = ends(unread);
        latest.forEach((number, newest) -> planned.put(number, newest.map(offset -> {
            Map<TopicPartition, Long> of = positions(offset);
            of.replaceAll((at, last) -> {
                long first = starts.get(number).get(at);
                // Of a topic that was made anew or cut, Spark is given the end before the start, and refuses it.
                return last < first ? last : Long.valueOf(Math.max(first, Math.min(last, ends.get(at))));
            });
            return sources.get(number).stream.deserializeOffset(json(of));
        })));
    }

    /** The ends of the partitions of which these offsets, from and to, are unread. */
    private Map<TopicPartition, Long> ends(Map<TopicPartition, long[]> unread) {
        TopicPartition[] places = unread.keySet().toArray(TopicPartition[]::new);
        long[] from = unread.values().stream().mapToLong(range -> range[0]).toArray();
        long[] to = unread.values().stream().mapToLong(range -> range[1]).toArray();
        long now = System.nanoTime();
        if (fullSince != 0) {
            limit = BatchEnds.next(limit, least, most, (now - fullSince) / 1e9, pause);
        }
        long[] found =
                chosen.of(from, to, limit, isByTime ? time -> at(places, time) : null, System.currentTimeMillis());
        fullSince = Arrays.equals(found, to) ? 0 : now;
        if (batches == 0) {
            unreadAtFirst = BatchEnds.total(from, to);
        }
        batches = Math.min(batches + 1, 2);
        Map<TopicPartition, Long> ends = new HashMap<>();
        for (int each = 0; each < places.length; each++) {
            ends.put(places[each], found[each]);
        }
        return ends;
    }

    /** Where each partition begins; one that is new since the last batch, with its first record. */
    private Map<TopicPartition, Long> started(Map<TopicPartition, Long> start, Map<TopicPartition, Long> all) {
        TopicPartition[] added =
                all.keySet().stream().filter(at -> !start.containsKey(at)).toArray(TopicPartition[]::new);
        long[] first = added.length == 0 ? new long[0] : looked(added, OffsetSpec.earliest());
        for (int each = 0; each < added.length; each++) {
            start.put(added[each], first[each]);
        }
        return start;
    }

    private long[] at(TopicPartition[] places, long time) {
        long[] found = looked(places, OffsetSpec.forTimestamp(time));
        for (int each = 0; each < found.length; each++) {
            found[each] = found[each] < 0 ? Long.MAX_VALUE : found[each];
        }
        return found;
    }

    private long[] looked(TopicPartition[] places, OffsetSpec what) {
        if (admin == null) {
            admin = Admin.create(client);
            if (isForgotten) {
                close(); // by whom it was forgotten, it was not seen
            }
        }
        ListOffsetsOptions options = new ListOffsetsOptions(
                "read_committed".equals(client.get("isolation.level"))
                        ? IsolationLevel.READ_COMMITTED
                        : IsolationLevel.READ_UNCOMMITTED);
        try {
            Map<TopicPartition, ListOffsetsResultInfo> found = admin.listOffsets(
                            Arrays.stream(places).collect(Collectors.toMap(at -> at, at -> what)), options)
                    .all()
                    .get();
            return Arrays.stream(places).mapToLong(at -> found.get(at).offset()).toArray();
        } catch (ExecutionException failed) {
            throw failed.getCause() instanceof KafkaException cause ? cause : new KafkaException(failed.getCause());
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            InterruptedIOException wanted = new InterruptedIOException("the query is being stopped");
            wanted.initCause(stopped);
            throw new UncheckedIOException(wanted); // in this form, Spark knows that the end is intended
        }
    }

    /** Does not wait for a thread that is asking. */
    private void close() {
        Admin asked = admin;
        if (asked != null) {
            asked.close(Duration.ZERO);
        }
    }

    /** Offsets as the source writes them: {@code {"topic":{"0":12}}}. */
    private static Map<TopicPartition, Long> positions(Offset offset) {
        Map<TopicPartition, Long> found = new HashMap<>();
        if (offset == null) {
            return found;
        }
        try {
            for (Map.Entry<String, JsonNode> topic : JSON.readTree(offset.json()).properties()) {
                for (Map.Entry<String, JsonNode> each : topic.getValue().properties()) {
                    int partition = Integer.parseInt(each.getKey());
                    found.put(new TopicPartition(topic.getKey(), partition), each.getValue().asLong());
                }
            }
        } catch (JsonProcessingException unknown) {
            throw new IllegalStateException("an offset of Spark's Kafka source is not JSON", unknown);
        }
        return found;
    }

    private static String json(Map<TopicPartition, Long> positions) {
        ObjectNode topics = JSON.createObjectNode();
        positions.forEach((at, offset) ->
                topics.withObjectProperty(at.topic()).put(String.valueOf(at.partition()), offset.longValue()));
        return topics.toString();
    }
}
