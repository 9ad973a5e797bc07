package io.millstream.kernel.task;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Fills the stores that follow from others, such as the sides of joins, after the others were restored. Kafka Streams
 * has no such stores: it reads those of their tables, and computes what is between (KTableValueGetter).
 *
 * <p>First the records of topics that are read as tables go through the plan again, up to the committed offset, as
 * {@link RunningTask#RESTORED}; and so do all records of the changelogs of stores with versions. Then a row
 * {@link RunningTask#DERIVE} does, before which each operator passes on the entries of its tables, likewise. Stores
 * that follow from them take them; nothing is logged or written.
 *
 * <p>That this is done stands in the store for what is due, and so do the offsets up to which topics were read.
 */
final class Replay implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Replay.class);
    private static final byte OFFSET = (byte) 0xFE;

    private final String task;
    private final Consumer<byte[], byte[]> reader;
    private final Map<TopicPartition, Long> ends;
    /** Those that are not at their ends. */
    private final Set<TopicPartition> left = new HashSet<>();

    private final ArrayDeque<ConsumerRecord<byte[], byte[]>> found = new ArrayDeque<>();
    private final Times.Clock clock;
    /** The greatest times of each partition's records. */
    private final Map<TopicPartition, Long> times = new HashMap<>();

    private long time;
    private long count;

    /**
     * From the beginnings of topics.
     *
     * @param ends the offsets up to which they are read
     * @param clock the times of records
     */
    Replay(String task, Consumer<byte[], byte[]> reader, Map<TopicPartition, Long> ends, Times.Clock clock) {
        this.task = task;
        this.clock = clock;
        this.reader = reader;
        this.ends = ends;
        reader.assign(ends.keySet());
    }

    /** Goes to the first records. */
    void begin() {
        reader.beginningOffsets(ends.keySet()).forEach((source, begin) -> {
            reader.seek(source, begin);
            if (begin < ends.get(source)) {
                left.add(source);
            }
        });
    }

    /**
     * The offsets up to which topics are to be read; null if nothing was restored since the stores that follow were
     * filled. Otherwise these are empty then.
     *
     * @param logged the ends of the changelogs of stores with versions
     */
    static Map<TopicPartition, Long> ends(
            TaskPlan plan,
            int partition,
            State state,
            Map<TopicPartition, OffsetAndMetadata> committed,
            Map<TopicPartition, Long> logged) {
        if (!plan.isAnyDerived()) {
            return null;
        }
        Map<TopicPartition, Long> ends = new HashMap<>(logged);
        boolean isOutdated = false;
        for (int i = 0; i < plan.stores().size(); i++) {
            Long end = logged.get(new TopicPartition(plan.stores().get(i).changelog(), partition));
            // 1: the end of the transaction
            isOutdated |= end != null && (state.position(i) > end || state.position(i) + 1 < end);
        }
        for (String topic : plan.tables()) {
            TopicPartition source = new TopicPartition(topic, partition);
            OffsetAndMetadata at = committed.get(source);
            byte[] noted = state.get(plan.local(), name(topic));
            isOutdated |= at == null ? noted != null : noted == null || ByteBuffer.wrap(noted).getLong() != at.offset();
            if (at != null) {
                ends.put(source, at.offset());
            }
        }
        if (isOutdated) {
            Derived.outdate(state, plan.local());
            state.committed(new long[plan.stores().size()]);
        } else if (!Derived.ofStores(state, plan.local()).isOutdated()) {
            return null;
        }
        for (int i = 0; i < plan.stores().size(); i++) {
            if (plan.stores().get(i).isDerived()) {
                state.clear(i);
            }
        }
        return ends;
    }

    /** Notes up to where tables' topics are read, with what is committed next. */
    static void note(TaskPlan plan, State state, Map<TopicPartition, OffsetAndMetadata> offsets) {
        if (!plan.isAnyDerived()) {
            return;
        }
        offsets.forEach((source, at) -> {
            if (plan.tables().contains(source.topic())) {
                byte[] offset = ByteBuffer.allocate(Long.BYTES).putLong(at.offset()).array();
                state.put(plan.local(), name(source.topic()), offset);
            }
        });
    }

    private static byte[] name(String topic) {
        byte[] name = topic.getBytes(StandardCharsets.UTF_8);
        return ByteBuffer.allocate(1 + name.length).put(OFFSET).put(name).array();
    }

    /** The next record; null if there is none at hand. */
    ConsumerRecord<byte[], byte[]> next() {
        ConsumerRecord<byte[], byte[]> next = found.poll();
        if (next != null) {
            count++;
            TopicPartition source = new TopicPartition(next.topic(), next.partition());
            time = clock.time(next, times.getOrDefault(source, OffsetNotes.NO_TIME));
            times.merge(source, time, Math::max);
        }
        return next;
    }

    /** That of the record that was taken last. */
    long time() {
        return time;
    }

    /** Whether all records have been taken. */
    boolean isOver() {
        return found.isEmpty() && left.isEmpty();
    }

    void fetch(long timeoutMs) {
        ConsumerRecords<byte[], byte[]> read = reader.poll(Duration.ofMillis(timeoutMs));
        for (TopicPartition source : Set.copyOf(left)) {
            long end = ends.get(source);
            read.records(source).stream().filter(record -> record.offset() < end).forEach(found::add);
            if (reader.position(source) >= end) {
                left.remove(source);
                reader.pause(Set.of(source));
            }
        }
    }

    @Override
    public void close() {
        LOG.info("task {}: {} records of tables read again", task, count);
        reader.close();
    }
}
