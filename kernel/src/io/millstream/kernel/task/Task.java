package io.millstream.kernel.task;

import io.millstream.kernel.FailPoint;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One partition of a subtopology: it reads, keeps its state, writes and commits. Source: StreamTask.
 *
 * <p>Spark pulls its records through the operators to the sink. When a commit is due, the source passes a row that is
 * no record, {@link #COMMIT}. Behind it, everything that was read before has passed the sink, which then commits: the
 * outputs, the changes of the state and the offsets in one transaction. What was not committed reaches no disk.
 *
 * <p>Used by one thread at a time.
 */
@SuppressWarnings("resource") // all are closed with it
final class Task implements AutoCloseable {
    /** The value of `control` in a row that is a record. */
    static final int RECORD = 0;
    /** In a row behind which everything is to be committed. */
    static final int COMMIT = 1;

    private static final Logger LOG = LoggerFactory.getLogger(Task.class);
    private static final Duration SOON = Duration.ofMillis(100);
    /** How long one partition's records are waited for at a time while others have some. */
    private static final long AWAITED_MS = 10;
    /** More changes than this are committed before the time. */
    private static final long MOST_CHANGES = 64L << 20;

    final TaskPlan plan;
    final int partition;
    final State state;
    /** What its operators keep from one batch of Spark to the next, by their numbers. */
    final Map<Integer, Object> operations = new HashMap<>();

    private final String name;
    private final Consumer<byte[], byte[]> consumer;
    private final Producer<byte[], byte[]> committer;
    /** The same as the committer if outputs are part of the transaction. */
    private final Producer<byte[], byte[]> producer;

    private final ConsumerGroupMetadata group;
    private final List<TopicPartition> sources = new ArrayList<>();
    private final Map<String, UTF8String> topics = new HashMap<>();
    private final Heads heads;
    private final Map<TopicPartition, Long> next = new HashMap<>();
    private Map<TopicPartition, OffsetAndMetadata> committing = Map.of();
    private final RecordRow row = new RecordRow();
    private final Set<TopicPartition> paused = new HashSet<>();
    private volatile RuntimeException failure;
    private boolean isOpen;
    private boolean isDirty;
    private boolean isAsking;
    private long lastCommit = System.nanoTime();
    private long records;
    private long commits;

    Task(TaskPlan plan, int partition) {
        this.plan = plan;
        this.partition = partition;
        this.name = plan.name(partition);
        this.group = new ConsumerGroupMetadata(plan.application());
        List<AutoCloseable> opened = new ArrayList<>();
        try {
            committer = opened(opened, producer(plan, transactionalId()));
            committer.initTransactions(); // fences an earlier owner, and aborts what it has left
            producer = plan.isExactlyOnce() ? committer : opened(opened, producer(plan, null));
            state = opened(opened, new State(plan.stores(), Path.of(plan.directory(), name)));
            restore();
            consumer = opened(opened, new KafkaConsumer<>(consumerSettings(plan)));
            Set<TopicPartition> there = new HashSet<>();
            for (String topic : plan.topics()) {
                topics.put(topic, UTF8String.fromString(topic));
                sources.add(new TopicPartition(topic, partition));
            }
            there.addAll(sources);
            consumer.assign(sources);
            consumer.committed(there).forEach((source, at) -> {
                if (at != null) {
                    consumer.seek(source, at.offset());
                }
            });
            heads = new Heads(sources);
        } catch (RuntimeException error) {
            for (AutoCloseable each : opened) {
                closeQuietly(each);
            }
            throw error;
        }
    }

    private static <T extends AutoCloseable> T opened(List<AutoCloseable> all, T one) {
        all.add(0, one);
        return one;
    }

    private static void closeQuietly(AutoCloseable each) {
        try {
            each.close();
        } catch (Exception error) {
            LOG.debug("while a task is given up", error);
        }
    }

    private String transactionalId() {
        return plan.application() + "-" + plan.subtopology() + "-" + partition;
    }

    private static Map<String, Object> consumerSettings(TaskPlan plan) {
        Map<String, Object> settings = new HashMap<>(plan.consumer());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, plan.application());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        return settings;
    }

    private static Producer<byte[], byte[]> producer(TaskPlan plan, String transactionalId) {
        Map<String, Object> settings = new HashMap<>(plan.producer());
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        if (transactionalId != null) {
            settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
        }
        return new KafkaProducer<>(settings);
    }

    // --- restoring -------------------------------------------------------------------------------------

    /** Reads the changelogs from where the disk is complete to their ends. */
    private void restore() {
        Map<TopicPartition, Integer> stores = new HashMap<>();
        for (int i = 0; i < plan.stores().size(); i++) {
            if (plan.stores().get(i).isLogged()) {
                stores.put(new TopicPartition(plan.stores().get(i).changelog(), partition), i);
            }
        }
        if (stores.isEmpty()) {
            return;
        }
        try (Consumer<byte[], byte[]> reader = new KafkaConsumer<>(consumerSettings(plan))) {
            reader.assign(stores.keySet());
            Map<TopicPartition, Long> ends = reader.endOffsets(stores.keySet());
            long[] positions = new long[plan.stores().size()];
            stores.forEach((changelog, store) -> {
                positions[store] = state.position(store);
                reader.seek(changelog, positions[store]);
            });
            long restored = 0;
            while (stores.entrySet().stream().anyMatch(each -> positions[each.getValue()] < ends.get(each.getKey()))) {
                ConsumerRecords<byte[], byte[]> found = reader.poll(SOON);
                for (ConsumerRecord<byte[], byte[]> record : found) {
                    state.put(stores.get(new TopicPartition(record.topic(), partition)), record.key(), record.value());
                    restored++;
                }
                stores.forEach((changelog, store) -> positions[store] = reader.position(changelog));
                state.committed(positions);
            }
            LOG.info("task {}: {} records restored", name, restored);
        }
    }

    // --- reading ---------------------------------------------------------------------------------------

    /**
     * The next row: a record, or a control; null if there is none within this time.
     *
     * @param isEnding whether nothing more is to be read: what is not committed is to be, and then there is no row
     */
    RecordRow poll(long timeoutMs, boolean isEnding) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
        while (true) {
            if (failure != null) {
                throw failure;
            }
            if (isAsking) {
                throw new IllegalStateException("task " + name + ": its commit has not reached the sink");
            }
            if (isDirty && (isEnding || isCommitDue())) {
                return control();
            }
            if (isEnding) {
                return null;
            }
            ConsumerRecord<byte[], byte[]> record = isReady() ? heads.next() : null;
            if (record != null) {
                isDirty = true;
                records++;
                TopicPartition source = new TopicPartition(record.topic(), partition);
                next.put(source, record.offset() + 1);
                return row.of(record, topics.get(record.topic()));
            }
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            if (left <= 0) {
                return null;
            }
            fetch(Math.min(left, longestWait()));
        }
    }

    /** Whether the record with the smallest timestamp can be known now. Source: PartitionGroup.readyToProcess. */
    private boolean isReady() {
        if (heads.isEmpty() || heads.areAll() || plan.idleMs() < 0) {
            return !heads.isEmpty();
        }
        long now = System.nanoTime();
        for (Heads.Queue queue : heads.queues()) {
            if (queue.isEmpty() && !isIdle(queue, now)) {
                return false;
            }
        }
        return true;
    }

    /** Whether a partition without records need not be waited for: the broker has none, and had none for a while. */
    private boolean isIdle(Heads.Queue queue, long now) {
        OptionalLong lag = consumer.currentLag(queue.partition);
        if (lag.isEmpty() || lag.getAsLong() > 0) {
            queue.emptySince = 0;
            return false;
        }
        if (queue.emptySince == 0) {
            queue.emptySince = now;
        }
        return now - queue.emptySince >= TimeUnit.MILLISECONDS.toNanos(plan.idleMs());
    }

    /** So that nothing that is due waits for a record. */
    private long longestWait() {
        long wait = isDirty ? Math.max(1, leftToCommit()) : Long.MAX_VALUE;
        return heads.isEmpty() ? wait : Math.min(wait, Math.max(1, Math.min(plan.idleMs(), AWAITED_MS)));
    }

    private long leftToCommit() {
        return plan.commitMs() - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - lastCommit);
    }

    private boolean isCommitDue() {
        return leftToCommit() <= 0 || state.changedBytes() > MOST_CHANGES;
    }

    private RecordRow control() {
        isAsking = true;
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        next.forEach((source, at) -> offsets.put(source, new OffsetAndMetadata(at)));
        committing = offsets;
        return row.of(COMMIT);
    }

    private void fetch(long timeoutMs) {
        for (Heads.Queue queue : heads.queues()) {
            if (queue.isFull() && paused.add(queue.partition)) {
                consumer.pause(List.of(queue.partition));
            } else if (!queue.isFull() && paused.remove(queue.partition)) {
                consumer.resume(List.of(queue.partition));
            }
        }
        ConsumerRecords<byte[], byte[]> found = consumer.poll(Duration.ofMillis(timeoutMs));
        for (TopicPartition source : found.partitions()) {
            heads.add(source, found.records(source));
        }
    }

    // --- writing ---------------------------------------------------------------------------------------

    /** Send a record of an output topic. */
    void send(ProducerRecord<byte[], byte[]> record) {
        if (producer == committer) {
            begin();
        }
        producer.send(record, this::sent);
    }

    private void begin() {
        if (!isOpen) {
            committer.beginTransaction();
            isOpen = true;
        }
    }

    private void sent(@SuppressWarnings("unused") RecordMetadata metadata, Exception error) {
        if (error != null && failure == null) {
            failure = error instanceof RuntimeException known ? known : new IllegalStateException(error);
        }
    }

    /** The number of a topic's partitions. */
    int partitions(String topic) {
        Collection<PartitionInfo> all = producer.partitionsFor(topic);
        return all.size();
    }

    /** Everything that was read before the control is with the sink: commit it. */
    void commit() {
        isAsking = false;
        long[] ends = new long[plan.stores().size()];
        if (producer != committer) {
            producer.flush();
            check();
        }
        begin();
        state.changes((store, key, value) -> committer.send(
                new ProducerRecord<>(plan.stores().get(store).changelog(), partition, key, value),
                (metadata, error) -> {
                    if (error == null) {
                        ends[store] = Math.max(ends[store], metadata.offset() + 1);
                    }
                    sent(metadata, error);
                }));
        FailPoint.reach(name + ".logged");
        committer.sendOffsetsToTransaction(committing, group);
        FailPoint.reach(name + ".flushed");
        committer.commitTransaction();
        isOpen = false;
        check();
        FailPoint.reach(name + ".committed");
        state.committed(ends);
        lastCommit = System.nanoTime();
        isDirty = false;
        commits++;
    }

    private void check() {
        if (failure != null) {
            throw failure;
        }
    }

    long records() {
        return records;
    }

    long commits() {
        return commits;
    }

    /** Forget what is not committed, and release everything. */
    @Override
    public void close() {
        if (isOpen) {
            closeQuietly(committer::abortTransaction);
        }
        closeQuietly(() -> committer.close(Duration.ofSeconds(2)));
        if (producer != committer) {
            closeQuietly(() -> producer.close(Duration.ofSeconds(2)));
        }
        closeQuietly(() -> consumer.close(Duration.ofSeconds(2)));
        closeQuietly(state);
    }
}
