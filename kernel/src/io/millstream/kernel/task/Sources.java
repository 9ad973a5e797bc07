package io.millstream.kernel.task;

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.common.TopicPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** The source partitions of a task: from where they are read, what is fetched, and how far it was taken. */
final class Sources {
    private static final Logger LOG = LoggerFactory.getLogger(Sources.class);
    private static final long LOOK_EVERY = TimeUnit.MILLISECONDS.toNanos(500);
    private static final String BY_DURATION = "by_duration:";

    private final TaskPlan plan;
    private final String name;
    private final Consumer<byte[], byte[]> consumer;
    private final Runnable check;
    private final Heads heads;
    private final Set<TopicPartition> paused = new HashSet<>();
    /** Where each was read from first. */
    private final Map<TopicPartition, Long> begins = new HashMap<>();
    /** Where each is read on: behind what was fetched, and what is no record, as the ends of transactions. */
    private volatile Map<TopicPartition, Long> fetched = Map.of();
    /** Where each ends, as far as that is known. Any thread may ask. */
    private volatile Map<TopicPartition, Long> ends = Map.of();

    private long looked;

    /**
     * Those of one task.
     *
     * @param times their stream times
     * @param check throws if a topic is not what it was
     */
    Sources(
            TaskPlan plan,
            String name,
            List<TopicPartition> all,
            Map<TopicPartition, Long> times,
            Consumer<byte[], byte[]> consumer,
            Runnable check) {
        this.plan = plan;
        this.name = name;
        this.consumer = consumer;
        this.check = check;
        this.heads = new Heads(all, times, plan.idleMs(), consumer::currentLag, Times.clock(plan.times()));
        consumer.assign(all);
    }

    /**
     * Reads each from its committed offset, or from where auto.offset.reset says.
     *
     * @param anew those that are read from their beginnings
     */
    void begin(Map<TopicPartition, OffsetAndMetadata> committed, Set<TopicPartition> anew) {
        Set<TopicPartition> others = new HashSet<>(consumer.assignment());
        consumer.beginningOffsets(anew).forEach(this::seek);
        askForEnds(anew);
        others.removeAll(anew);
        committed.forEach((source, at) -> {
            others.remove(source);
            seek(source, at.offset());
        });
        reset(others, null);
    }

    /** Reads these from where auto.offset.reset says. */
    private void reset(Set<TopicPartition> which, RuntimeException cause) {
        for (TopicPartition source : which) {
            String policy = plan.resets().getOrDefault(
                    source.topic(), plan.consumer().getOrDefault(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest"));
            if (cause != null && plan.readsLostAnew()) {
                LOG.warn("task {}: {}; it is read from its beginning", name, cause.getMessage());
                policy = "earliest";
            } else if (cause != null) {
                LOG.warn("task {}: {}; auto.offset.reset is {}", name, cause.getMessage(), policy);
            }
            seek(source, offset(source, policy, cause));
        }
        askForEnds(which);
    }

    private void seek(TopicPartition source, long offset) {
        begins.put(source, offset);
        fetched = Map.of();
        consumer.seek(source, offset);
    }

    private long offset(TopicPartition source, String policy, RuntimeException cause) {
        List<TopicPartition> one = List.of(source);
        if (policy.equals("earliest")) {
            return consumer.beginningOffsets(one).get(source);
        }
        if (policy.equals("latest")) {
            return consumer.endOffsets(one).get(source);
        }
        if (policy.startsWith(BY_DURATION)) {
            long from = System.currentTimeMillis()
                    - Duration.parse(policy.substring(BY_DURATION.length())).toMillis();
            OffsetAndTimestamp found =
                    consumer.offsetsForTimes(Map.of(source, from)).get(source);
            return found == null ? consumer.endOffsets(one).get(source) : found.offset();
        }
        String why = cause == null
                ? "group '" + plan.application() + "' has no committed offset of it"
                : cause.getMessage();
        throw new NoOffsetException("task " + name + ": where to read " + source + " is not known: " + why
                + ", and auto.offset.reset is " + policy + "; set it to earliest or latest, or set the offset with "
                + "kafka-consumer-groups --reset-offsets", cause);
    }

    /**
     * A consumer takes whatever offset of a partition it has asked for last for its end
     * (OffsetFetcherUtils.updateSubscriptionState). So after it was asked for another one it is asked for the end:
     * otherwise it believes that there is nothing to wait for.
     */
    private void askForEnds(Set<TopicPartition> which) {
        consumer.endOffsets(which);
    }

    // --- records ---------------------------------------------------------------------------------------

    Heads heads() {
        return heads;
    }

    /** Waits for records, which are then to be taken. */
    void fetch(long timeoutMs) {
        for (Heads.Queue queue : heads.queues()) {
            boolean isFull = queue.size() > plan.buffered();
            if (isFull && paused.add(queue.partition)) {
                consumer.pause(List.of(queue.partition));
            } else if (!isFull && paused.remove(queue.partition)) {
                consumer.resume(List.of(queue.partition));
            }
        }
        ConsumerRecords<byte[], byte[]> found;
        try {
            found = consumer.poll(Duration.ofMillis(timeoutMs));
        } catch (InvalidOffsetException error) {
            check.run();
            reset(error.partitions(), error);
            return;
        }
        for (TopicPartition source : found.partitions()) {
            heads.add(source, found.records(source));
        }
        Map<TopicPartition, Long> behind = new HashMap<>();
        consumer.assignment().forEach(source -> behind.put(source, consumer.position(source)));
        fetched = behind;
        if (System.nanoTime() - looked > LOOK_EVERY) {
            looked = System.nanoTime();
            ends = knownEnds();
        }
    }

    private Map<TopicPartition, Long> knownEnds() {
        Map<TopicPartition, Long> known = new HashMap<>();
        for (TopicPartition source : consumer.assignment()) {
            consumer.currentLag(source).ifPresent(lag -> known.put(source, consumer.position(source) + lag));
        }
        return known;
    }

    Map<TopicPartition, Long> ends() {
        return ends;
    }

    /**
     * The next offset of each source partition that is not processed. Behind its last record that is where it is read
     * on. Source: StreamTask.committableOffsetsAndMetadata.
     */
    Map<TopicPartition, Long> positions() {
        Map<TopicPartition, Long> positions = new HashMap<>(begins);
        Map<TopicPartition, Long> read = fetched;
        for (Heads.Queue queue : heads.queues()) {
            if (queue.next() >= 0) {
                positions.put(queue.partition, queue.next());
            }
            if (queue.isEmpty() && read.containsKey(queue.partition)) {
                positions.merge(queue.partition, read.get(queue.partition), Math::max);
            }
        }
        return positions;
    }
}
