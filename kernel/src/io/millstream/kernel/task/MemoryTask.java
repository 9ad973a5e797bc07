package io.millstream.kernel.task;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.millstream.kernel.sink.DeadLetter;
import io.millstream.kernel.sink.Rows;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalLong;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** A task that gets its records from a program, and gives it what it writes, without Kafka: for tests of topologies. */
@SuppressWarnings("resource") // Spark's task closes it
public final class MemoryTask extends RunningTask {
    private static final Map<String, MemoryTask> OPEN = new ConcurrentHashMap<>();
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final HexFormat HEX = HexFormat.of();
    private static final long LOOK_EVERY_MS = 5;

    /** Records that are processed together, and committed. */
    private static final class Batch {
        private final List<String> lines;
        private final long now;
        /** Null until the task takes them. */
        private Heads records;

        private final CountDownLatch done = new CountDownLatch(1);
        private final List<String> written = new ArrayList<>();
        /** The batch of Spark in which it was committed. */
        private volatile int number;

        Batch(String lines, long now) {
            this.lines = lines.lines().toList();
            this.now = now;
        }
    }

    private final LinkedBlockingQueue<Batch> batches = new LinkedBlockingQueue<>();
    private final RecordRow row = new RecordRow();
    private final Times.Clock clock;
    /** The greatest times of each partition's records. */
    private final Map<TopicPartition, Long> times = new HashMap<>();
    private volatile Batch batch;
    private volatile boolean isClosed;
    private boolean hasTicked;
    private boolean isCommitting;
    private volatile long records;
    /** How many of them are in the figures. */
    private long counted;

    MemoryTask(TaskPlan plan) {
        super(plan, 0);
        clock = Times.clock(plan.times());
    }

    /**
     * Process records, and commit: all in one call, because for a program one takes as long as the work.
     *
     * @param lines the records, each a line in JSON
     * @param now the time of day, in ms, which comes before the records
     * @param inBatches whether to wait for the end of Spark's batch as well, with which it reports what functions print
     * @param report the number of the report of what has happened
     * @return the report in a line, and what was written, one line each; null if the query has ended
     */
    public static String process(
            String name, String lines, long now, boolean inBatches, long patienceMs, long report)
            throws InterruptedException {
        String run = TaskRuns.plan(name).run();
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        MemoryTask task = OPEN.get(run);
        while (task == null && System.nanoTime() < until) {
            Thread.sleep(LOOK_EVERY_MS);
            task = OPEN.get(run);
        }
        if (task == null) {
            return null;
        }
        Batch batch = new Batch(lines, now);
        task.batches.add(batch);
        Tasks tasks = Tasks.of(run);
        while (!batch.done.await(LOOK_EVERY_MS, TimeUnit.MILLISECONDS) || inBatches && tasks.batch() <= batch.number) {
            if (task.isClosed || System.nanoTime() > until) {
                return null;
            }
        }
        batch.written.add(0, TaskRuns.figures(run, report));
        return String.join("\n", batch.written);
    }

    /** Records of global tables come first; all others by their times. */
    private Heads heads(List<String> lines) {
        Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> found = new HashMap<>();
        List<TopicPartition> order = new ArrayList<>();
        for (String line : lines) {
            ConsumerRecord<byte[], byte[]> record = record(line);
            if (globals.take(record)) {
                continue;
            }
            TopicPartition at = new TopicPartition(record.topic(), record.partition());
            if (!found.containsKey(at)) {
                order.add(at);
            }
            found.computeIfAbsent(at, key -> new ArrayList<>()).add(record);
        }
        Heads heads = new Heads(order, times, -1, at -> OptionalLong.empty(), clock);
        order.forEach(at -> heads.add(at, found.get(at)));
        return heads;
    }

    private static ConsumerRecord<byte[], byte[]> record(String line) {
        try {
            JsonNode node = JSON.readTree(line);
            Headers headers = new RecordHeaders();
            node.path("h").forEach(each -> headers.add(each.get("key").asText(), bytes(each.get("value"))));
            byte[] key = bytes(node.get("k"));
            byte[] value = bytes(node.get("v"));
            return new ConsumerRecord<>(
                    node.get("t").asText(),
                    node.get("p").asInt(),
                    node.get("o").asLong(),
                    node.get("s").asLong(),
                    TimestampType.CREATE_TIME,
                    0,
                    0,
                    key,
                    value,
                    headers,
                    Optional.empty());
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("a record is not JSON", error);
        }
    }

    private static byte[] bytes(JsonNode text) {
        return text == null || text.isNull() ? null : HEX.parseHex(text.asText());
    }

    @Override
    void open() {
        state = new State(plan.stores(), null);
        OPEN.put(plan.run(), this);
    }

    @Override
    byte[] clock(int operator) {
        return null;
    }

    @Override
    void hurry() {
        // Each batch is committed at its end.
    }

    @Override
    void touch() {
        // likewise
    }

    @Override
    long now() {
        Batch current = batch;
        return current == null ? 0 : current.now;
    }

    @Override
    Map<TopicPartition, Long> positions() {
        return Map.of();
    }

    @Override
    Map<TopicPartition, Long> ends() {
        return Map.of();
    }

    @Override
    Restore.Progress restoring() {
        return null;
    }

    @Override
    long records() {
        return records;
    }

    @Override
    void startToClose() {
        close();
    }

    @Override
    RecordRow poll(long timeoutMs, boolean isEnding) {
        if (batch == null && !isEnding) {
            try {
                batch = batches.poll(timeoutMs, TimeUnit.MILLISECONDS);
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
                throw new IllegalStateException("interrupted", stopped);
            }
        }
        if (batch == null || isCommitting) {
            return null;
        }
        if (batch.records == null) {
            batch.records = heads(batch.lines);
        }
        if (!hasTicked) {
            hasTicked = true;
            return row.of(TICK);
        }
        ConsumerRecord<byte[], byte[]> record = batch.records.next();
        if (record == null) {
            batch.records.queues().forEach(each -> times.put(each.partition, each.time()));
            isCommitting = true;
            return row.of(COMMIT);
        }
        records++;
        return row.of(
                record,
                batch.records.topic(),
                batch.records.time());
    }

    /** A question is a line, too, with what it is about: Python asks by itself. */
    @Override
    void send(InternalRow computed, Rows output) {
        ObjectNode line = JSON.createObjectNode();
        put(line, "t", computed.getUTF8String(output.topic()));
        put(line, "k", Rows.bytes(computed, output.key()));
        put(line, "v", Rows.bytes(computed, output.value()));
        if (!computed.isNullAt(output.partition())) {
            line.put("p", computed.getInt(output.partition()));
        }
        line.put("s", output.timestampOf(computed));
        put(line, output.headersOf(computed));
        DeadLetter letter = output.letterOf(computed);
        if (letter != null && letter.asked() >= 0) {
            put(line.putObject("l"), letter);
        }
        batch.written.add(line.toString());
    }

    private static void put(ObjectNode to, DeadLetter letter) {
        to.put("asked", letter.asked()).put("topic", letter.topic()).put("place", letter.place());
        to.put("exception", letter.exception()).put("message", letter.message());
        to.put("partition", letter.partition()).put("offset", letter.offset());
        put(to, "key", letter.key());
        put(to, "value", letter.value());
        put(to, "failed_key", letter.failedKey());
        put(to, "failed_value", letter.failedValue());
    }

    private static void put(ObjectNode to, Iterable<Header> headers) {
        ArrayNode all = to.putArray("h");
        for (Header header : headers == null ? List.<Header>of() : headers) {
            ObjectNode each = all.addObject();
            each.put("key", header.key());
            put(each, "value", header.value());
        }
    }

    private static void put(ObjectNode to, String name, UTF8String text) {
        if (text != null) {
            to.put(name, text.toString());
        }
    }

    @Override
    void attend(boolean isIdle) {
        // Python asks about the records of a batch when it is complete.
    }

    private void log(ProducerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("t", record.topic());
        put(line, "k", record.key());
        put(line, "v", record.value());
        line.put("p", record.partition());
        line.put("s", record.timestamp());
        put(line, record.headers());
        batch.written.add(line.toString());
    }

    private static void put(ObjectNode to, String name, byte[] bytes) {
        if (bytes != null) {
            to.put(name, HEX.formatHex(bytes));
        }
    }

    @Override
    void beginBatch() {
        // it commits what it was given
    }

    @Override
    void commit() {
        if (batch == null) {
            return;
        }
        long[] ends = new long[plan.stores().size()];
        state.changes((store, key, value, at) ->
                log(Logged.record(plan.stores().get(store), partition, key, value, at)));
        state.committed(ends);
        figures.read(records - counted);
        counted = records;
        Batch done = batch;
        Tasks tasks = Tasks.here(plan.run());
        done.number = tasks == null ? 0 : tasks.batch();
        batch = null;
        hasTicked = false;
        isCommitting = false;
        done.done.countDown();
    }

    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            OPEN.remove(plan.run(), this);
            closeOperators();
            state.close();
        }
    }
}
