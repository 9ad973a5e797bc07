package io.millstream.kernel.task;

import io.millstream.kernel.FailPoint;
import java.nio.file.Path;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ConcurrentTransactionsException;
import org.apache.kafka.common.errors.CoordinatorLoadInProgressException;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
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
final class Task implements AutoCloseable {
    /** The value of `control` in a row that is a record. */
    static final int RECORD = 0;
    /** In a row behind which everything is to be committed. */
    static final int COMMIT = 1;

    private static final Logger LOG = LoggerFactory.getLogger(Task.class);
    private static final Duration SOON = Duration.ofMillis(100);
    private static final long CLOSING_MS = 2_000;
    private static final long API_TIMEOUT_MS = 60_000;
    /** A changelog keeps deletions for longer. */
    private static final long RECENT_MS = Long.getLong("millstream.kernel.recent.ms", 3_600_000);

    private static final String BY_DURATION = "by_duration:";
    /** How long one partition's records are waited for at a time while others have some. */
    private static final long AWAITED_MS = 10;

    final TaskPlan plan;
    final int partition;
    /** What its operators keep from one batch of Spark to the next, by their numbers. */
    final Map<Integer, Object> operations = new HashMap<>();

    State state;

    private final String name;
    private final Watch watch;
    private final ConsumerGroupMetadata group;
    private final Map<String, UTF8String> topics = new HashMap<>();
    private final RecordRow row = new RecordRow();
    private final Set<TopicPartition> paused = new HashSet<>();
    private final List<AutoCloseable> opened = new ArrayList<>();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private final CountDownLatch closed = new CountDownLatch(1);
    private Consumer<byte[], byte[]> consumer;
    private Producer<byte[], byte[]> committer;
    /** The same as the committer if outputs are part of the transaction. */
    private Producer<byte[], byte[]> producer;

    private volatile Map<String, Uuid> topicIds = Map.of();
    private volatile Restoring restoring;
    private volatile RuntimeException failure;
    private final Object calls = new Object();
    /** The thread that waits for a client; null if none does. */
    private Thread calling;
    /** Whether it was interrupted because of a failure. */
    private boolean isCut;
    private List<TopicPartition> sources;
    /** Where each was read from first. */
    private final Map<TopicPartition, Long> begins = new HashMap<>();
    private Heads heads;
    private OffsetNotes notes;
    private Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();
    private boolean isOpen;
    private boolean isDirty;
    private boolean isAsking;
    private long lastCommit = System.nanoTime();
    private volatile long records;
    private volatile long commits;

    /**
     * How far a store is restored.
     *
     * @param position the next offset of its changelog
     * @param end the offset up to which it is read
     */
    public record Restoring(String task, String store, long position, long end) {}

    Task(TaskPlan plan, int partition, Watch watch) {
        this.plan = plan;
        this.partition = partition;
        this.watch = watch;
        this.name = plan.name(partition);
        this.group = new ConsumerGroupMetadata(plan.application());
    }

    // --- opening ---------------------------------------------------------------------------------------

    /** Makes it the owner of its partition, with the state as it was committed. If it fails, nothing stays open. */
    @SuppressWarnings("resource") // it is all in `opened`
    void open() {
        try {
            Topics now = watch.topics();
            committer = opened(producer(transactionalId()));
            // Fences an earlier owner, and settles what it has left.
            retried("take over", committer::initTransactions);
            FailPoint.reach(name + ".opening");
            producer = plan.isExactlyOnce() ? committer : opened(producer(null));
            sources = sources(now);
            try (Consumer<byte[], byte[]> reader = new KafkaConsumer<>(consumerSettings(true))) {
                retried("read committed offsets", () -> readCommitted(reader));
                notes = OffsetNotes.read(metadata());
                TaskDirectory directory = directory();
                checkTopics(now, directory);
                state = opened(new State(plan.stores(), claimed(directory, now)));
                Memory.taskOpened();
                opened.add(0, Memory::taskClosed);
                restore(reader);
            }
            begin(now);
            watch.add(this);
        } catch (RuntimeException error) {
            close();
            throw meant(error);
        } catch (Error error) {
            close();
            throw error;
        }
    }

    private List<TopicPartition> sources(Topics now) {
        List<TopicPartition> there = new ArrayList<>();
        for (String topic : plan.topics()) {
            if (now.has(topic, partition)) {
                topics.put(topic, UTF8String.fromString(topic));
                there.add(new TopicPartition(topic, partition));
            }
        }
        for (TaskPlan.Store store : plan.stores()) {
            if (store.isLogged() && !now.has(store.changelog(), partition)) {
                throw new IllegalStateException("task " + name + ": its changelog '" + store.changelog() + "' has "
                        + now.partitions().get(store.changelog()) + " partitions");
            }
        }
        return OffsetNotes.ordered(there);
    }

    private void readCommitted(Consumer<byte[], byte[]> reader) {
        reader.committed(new HashSet<>(sources)).forEach((source, at) -> {
            if (at != null) {
                committed.put(source, at);
            }
        });
    }

    private Map<TopicPartition, String> metadata() {
        Map<TopicPartition, String> texts = new HashMap<>();
        committed.forEach((source, at) -> {
            if (!at.metadata().isEmpty()) {
                texts.put(source, at.metadata());
            }
        });
        return texts;
    }

    /** Where stores are kept; null if none is on disk. It is taken, and nothing in it is changed. */
    @SuppressWarnings("resource") // it is in `opened`
    private TaskDirectory directory() {
        return plan.stores().stream().allMatch(TaskPlan.Store::isInMemory)
                ? null
                : opened(new TaskDirectory(Path.of(plan.directory(), name)));
    }

    private TaskDirectory claimed(TaskDirectory directory, Topics now) {
        if (directory != null) {
            directory.claim(plan, now);
            opened.remove(directory); // the state closes it
        }
        return directory;
    }

    /**
     * A topic must be the one whose offsets are committed. With a topic Kafka deletes the offsets that are committed
     * of it, so that the directory, or other topics' offsets, tell.
     */
    private void checkTopics(Topics now, TaskDirectory directory) {
        now.ids().forEach((topic, id) -> {
            Uuid before = notes.id(topic);
            boolean isUnread = topics.containsKey(topic) && !committed.containsKey(new TopicPartition(topic, partition));
            if (before == null && isUnread && directory != null && directory.isOf(plan, now)) {
                before = directory.id(topic);
            }
            if (before != null && !before.equals(id)) {
                throw new TopicLostException(topic, before, id);
            }
        });
        topicIds = now.ids();
    }

    /** From here on it reads. */
    @SuppressWarnings("resource") // it is in `opened`
    private void begin(Topics now) {
        notes.know(now.ids());
        consumer = opened(new KafkaConsumer<>(consumerSettings(plan.isExactlyOnce())));
        consumer.assign(sources);
        Set<TopicPartition> others = new HashSet<>();
        for (TopicPartition source : sources) {
            OffsetAndMetadata at = committed.get(source);
            if (at == null) {
                others.add(source);
            } else {
                begins.put(source, at.offset());
                consumer.seek(source, at.offset());
            }
        }
        if (!others.isEmpty()) {
            checkOffsets();
            reset(others, null);
        }
        heads = new Heads(sources, notes.times, plan.idleMs(), consumer::currentLag);
    }

    /** Without any offset there must be no state either: it would be counted again. */
    private void checkOffsets() {
        if (!committed.isEmpty()) {
            return;
        }
        for (int i = 0; i < plan.stores().size(); i++) {
            if (plan.stores().get(i).isLogged() && !state.isEmpty(i)) {
                throw new NoOffsetException("task " + name + ": store '"
                        + plan.stores().get(i).name() + "' has entries, but group '"
                        + plan.application() + "' has no committed offset of " + sources
                        + ": the source topics were deleted and made anew, or the offsets have expired or were deleted. "
                        + "Reset the application with its changelogs (kafka-streams-application-reset), or say where "
                        + "to go on with the state as it is (kafka-consumer-groups --reset-offsets)");
            }
        }
    }

    /** Reads these from where auto.offset.reset says. */
    private void reset(Set<TopicPartition> which, RuntimeException cause) {
        for (TopicPartition source : which) {
            String policy = plan.resets().getOrDefault(
                    source.topic(), plan.consumer().getOrDefault(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest"));
            if (cause != null) {
                LOG.warn("task {}: {}; auto.offset.reset is {}", name, cause.getMessage(), policy);
            }
            long at = offset(source, policy, cause);
            begins.put(source, at);
            consumer.seek(source, at);
        }
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
        String why = cause == null ? "group '" + plan.application() + "' has no committed offset of it" : cause.getMessage();
        throw new NoOffsetException("task " + name + ": where to read " + source + " is not known: " + why
                + ", and auto.offset.reset is " + policy + "; set it to earliest or latest, or set the offset with "
                + "kafka-consumer-groups --reset-offsets", cause);
    }

    private <T extends AutoCloseable> T opened(T one) {
        opened.add(0, one);
        return one;
    }

    private String transactionalId() {
        return plan.application() + "-" + plan.subtopology() + "-" + partition;
    }

    private Map<String, Object> consumerSettings(boolean isCommitted) {
        Map<String, Object> settings = new HashMap<>(plan.consumer());
        settings.put(ConsumerConfig.GROUP_ID_CONFIG, plan.application());
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none"); // there is a policy for each topic
        if (isCommitted) {
            settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        }
        return settings;
    }

    private Producer<byte[], byte[]> producer(String transactionalId) {
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
    private void restore(Consumer<byte[], byte[]> reader) {
        Map<TopicPartition, Integer> stores = new HashMap<>();
        for (int i = 0; i < plan.stores().size(); i++) {
            if (plan.stores().get(i).isLogged()) {
                stores.put(new TopicPartition(plan.stores().get(i).changelog(), partition), i);
            }
        }
        if (stores.isEmpty()) {
            return;
        }
        reader.assign(stores.keySet());
        Map<TopicPartition, Long> firsts = new HashMap<>();
        Map<TopicPartition, Long> ends = new HashMap<>();
        retried("find the ends of its changelogs", () -> {
            firsts.putAll(reader.beginningOffsets(stores.keySet()));
            ends.putAll(reader.endOffsets(stores.keySet()));
        });
        String wrong = misplaced(stores, firsts, ends);
        if (wrong != null) {
            state.wipe(wrong);
        }
        Set<TopicPartition> left = new HashSet<>();
        stores.forEach((changelog, store) -> {
            reader.seek(changelog, Math.max(state.position(store), firsts.get(changelog)));
            if (state.position(store) < ends.get(changelog)) {
                left.add(changelog);
            }
        });
        long restored = 0;
        long progress = System.nanoTime();
        while (!left.isEmpty()) {
            reader.resume(left);
            ConsumerRecords<byte[], byte[]> found = reader.poll(SOON);
            restored += found.count();
            if (keep(reader, stores, found, left, ends)) {
                progress = System.nanoTime();
            } else if (System.nanoTime() - progress > TimeUnit.MILLISECONDS.toNanos(apiTimeoutMs())) {
                throw new TimeoutException("task " + name + ": " + restoring + " has made no progress for "
                        + apiTimeoutMs() + " ms");
            }
            FailPoint.reach(name + ".restoring");
        }
        restoring = null;
        if (restored > 0) {
            LOG.info("task {}: {} records restored", name, restored);
        }
    }

    /** What is wrong with the positions on disk; null if nothing is. */
    private String misplaced(
            Map<TopicPartition, Integer> stores, Map<TopicPartition, Long> firsts, Map<TopicPartition, Long> ends) {
        for (Map.Entry<TopicPartition, Integer> each : stores.entrySet()) {
            long position = state.position(each.getValue());
            long begin = firsts.get(each.getKey());
            long end = ends.get(each.getKey());
            if (position > end || position > 0 && position < begin) {
                return "store '" + plan.stores().get(each.getValue()).name() + "' is at offset " + position + " of "
                        + each.getKey() + ", which has those from " + begin + " to " + end;
            }
            long age = state.age(each.getValue());
            boolean isBehind = position > 0 && end > position + 1; // 1: the end of the transaction
            if (isBehind && age > RECENT_MS && age > watch.deletionsKeptMs(each.getKey().topic())) {
                return "store '" + plan.stores().get(each.getValue()).name() + "' was written " + age / 1_000
                        + " s ago, and its changelog does not keep deletions for so long";
            }
        }
        return null;
    }

    /** Keeps what was found; whether anything has moved on. */
    private boolean keep(
            Consumer<byte[], byte[]> reader,
            Map<TopicPartition, Integer> stores,
            ConsumerRecords<byte[], byte[]> found,
            Set<TopicPartition> left,
            Map<TopicPartition, Long> ends) {
        boolean isFurther = false;
        for (TopicPartition changelog : List.copyOf(left)) {
            int store = stores.get(changelog);
            long position = reader.position(changelog);
            if (position != state.position(store)) {
                isFurther = true;
                List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
                for (ConsumerRecord<byte[], byte[]> record : found.records(changelog)) {
                    entries.add(new AbstractMap.SimpleImmutableEntry<>(record.key(), record.value()));
                }
                state.restored(store, entries, position);
            }
            restoring = new Restoring(name, plan.stores().get(store).name(), position, ends.get(changelog));
            if (position >= ends.get(changelog)) {
                left.remove(changelog);
                reader.pause(List.of(changelog));
            }
        }
        return isFurther;
    }

    private long apiTimeoutMs() {
        String set = plan.consumer().get(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG);
        return set == null ? API_TIMEOUT_MS : Long.parseLong(set);
    }

    /** What it is restoring; null if it is not. */
    Restoring restoring() {
        return restoring;
    }

    // --- reading ---------------------------------------------------------------------------------------

    /**
     * The next row: a record, or a control; null if there is none within this time.
     *
     * @param isEnding whether nothing more is to be read: what is not committed is to be, and then there is no row
     */
    RecordRow poll(long timeoutMs, boolean isEnding) {
        long until = 0;
        while (true) {
            if (failure != null) {
                throw failure;
            }
            if (isAsking) {
                throw new IllegalStateException("task " + name + ": its commit has not reached the sink");
            }
            long now = System.nanoTime();
            if (isDirty && (isEnding || isCommitDue(now))) {
                return control();
            }
            if (isEnding) {
                return null;
            }
            if (heads.isReady(now)) {
                ConsumerRecord<byte[], byte[]> record = heads.next();
                isDirty = true;
                records++;
                return row.of(record, topics.get(record.topic()));
            }
            until = until == 0 ? now + TimeUnit.MILLISECONDS.toNanos(timeoutMs) : until;
            long left = TimeUnit.NANOSECONDS.toMillis(until - now);
            if (left <= 0) {
                return null;
            }
            fetch(Math.min(left, longestWait(now)));
        }
    }

    /** So that nothing that is due waits for a record. */
    private long longestWait(long now) {
        long wait = isDirty ? Math.max(1, leftToCommit(now)) : Long.MAX_VALUE;
        return heads.isEmpty() ? wait : Math.min(wait, Math.max(1, Math.min(plan.idleMs(), AWAITED_MS)));
    }

    private long leftToCommit(long now) {
        return plan.commitMs() - TimeUnit.NANOSECONDS.toMillis(now - lastCommit);
    }

    private boolean isCommitDue(long now) {
        return leftToCommit(now) <= 0 || state.changedBytes() > Memory.changes();
    }

    private RecordRow control() {
        isAsking = true;
        return row.of(COMMIT);
    }

    private void fetch(long timeoutMs) {
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
            TopicLostException lost = watch.lost(topicIds);
            if (lost != null) {
                throw lost;
            }
            reset(error.partitions(), error);
            return;
        }
        for (TopicPartition source : found.partitions()) {
            heads.add(source, found.records(source));
        }
    }

    /** The next offset of each source partition that is not processed. */
    Map<TopicPartition, Long> positions() {
        Map<TopicPartition, Long> positions = new HashMap<>(begins);
        for (Heads.Queue queue : heads.queues()) {
            if (queue.next() >= 0) {
                positions.put(queue.partition, queue.next());
            }
        }
        return positions;
    }

    /** The greatest timestamp of the records so far; -1 if there was none. */
    long streamTime() {
        return heads.streamTime();
    }

    /** What an operator has noted with the last commit; null if it has noted nothing. */
    byte[] clock(int operator) {
        return notes.clocks.get(operator);
    }

    /** Notes something of an operator, which is committed with the offsets: some bytes, such as times. */
    void clock(int operator, byte[] noted) {
        notes.clocks.put(operator, noted);
    }

    /** There is something to commit although no record was read. */
    void touch() {
        isDirty = true;
    }

    // --- writing ---------------------------------------------------------------------------------------

    /** Send a record of an output topic. */
    void send(ProducerRecord<byte[], byte[]> record) {
        isDirty = true;
        try {
            if (producer == committer) {
                begin();
            }
            producer.send(record, this::sent);
        } catch (KafkaException error) {
            throw meant(error);
        }
    }

    private void begin() {
        if (!isOpen) {
            FailPoint.reach(name + ".sending");
            committer.beginTransaction();
            isOpen = true;
        }
    }

    private void sent(@SuppressWarnings("unused") RecordMetadata metadata, Exception error) {
        if (error != null) {
            fail(error instanceof RuntimeException known ? meant(known) : new IllegalStateException(error));
        }
    }

    /** What it is asked next fails with this, and what it waits for now; any thread may call it. */
    void fail(RuntimeException why) {
        synchronized (calls) {
            if (failure == null) {
                failure = why;
            }
            if (calling != null && !isCut) {
                // The client does not end a call by itself that waits behind one that has failed for good.
                isCut = true;
                calling.interrupt();
            }
        }
    }

    /** The ids of the topics that it reads and writes. */
    Map<String, Uuid> topicIds() {
        return topicIds;
    }

    /** The number of a topic's partitions. */
    int partitions(String topic) {
        Collection<PartitionInfo> all = producer.partitionsFor(topic);
        return all.size();
    }

    /** Everything that was read before the control is with the sink: commit it. After an error it does nothing more. */
    void commit() {
        isAsking = false;
        try {
            tryToCommit();
        } catch (RuntimeException error) {
            fail(meant(error));
            throw failure;
        }
        lastCommit = System.nanoTime();
        isDirty = false;
        commits++;
    }

    private void tryToCommit() {
        FailPoint.reach(name + ".committing");
        long[] ends = new long[plan.stores().size()];
        if (producer != committer) {
            producer.flush();
        }
        check();
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
        Map<TopicPartition, OffsetAndMetadata> offsets = offsets();
        Map<TopicPartition, OffsetAndMetadata> changed = new HashMap<>(offsets);
        changed.entrySet().removeIf(each -> each.getValue().equals(committed.get(each.getKey())));
        if (!changed.isEmpty()) {
            retried("add offsets", () -> committer.sendOffsetsToTransaction(changed, group));
        }
        FailPoint.reach(name + ".offsets");
        check();
        retried("commit", committer::commitTransaction);
        isOpen = false;
        committed = offsets;
        FailPoint.reach(name + ".committed");
        state.committed(ends);
    }

    /** Behind the last records that were taken, with notes. */
    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        for (Heads.Queue queue : heads.queues()) {
            notes.times.put(queue.partition, queue.time());
        }
        Map<TopicPartition, String> texts = notes.write(sources, plan.metadataBytes());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        positions().forEach((source, next) -> offsets.put(source, new OffsetAndMetadata(next, texts.get(source))));
        return offsets;
    }

    private void check() {
        if (failure != null) {
            throw failure;
        }
    }

    /** Does something again as long as it times out; Kafka's clients allow it. */
    private void retried(String what, Runnable action) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(plan.timeoutMs());
        while (true) {
            try {
                call(action);
                return;
            } catch (TimeoutException | CoordinatorLoadInProgressException | ConcurrentTransactionsException error) {
                if (System.nanoTime() - until > 0) {
                    throw new TimeoutException("task " + name + ": cannot " + what + " within " + plan.timeoutMs()
                            + " ms: " + error.getMessage(), error);
                }
                LOG.warn("task {}: cannot {} yet, and tries again: {}", name, what, error.getMessage());
            }
        }
    }

    private void call(Runnable action) {
        check();
        synchronized (calls) {
            calling = Thread.currentThread();
        }
        try {
            action.run();
        } catch (InterruptException interrupted) {
            check();
            throw interrupted;
        } finally {
            synchronized (calls) {
                calling = null;
                if (isCut) {
                    isCut = false;
                    Thread.interrupted();
                }
            }
        }
    }

    /** An error of Kafka's clients as one of ours, if it has a meaning here. */
    private RuntimeException meant(RuntimeException error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof TaskMovedException) {
                return error;
            }
            if (each instanceof ProducerFencedException
                    || each instanceof InvalidProducerEpochException
                    || each instanceof InvalidPidMappingException
                    || each instanceof FencedInstanceIdException
                    || each instanceof CommitFailedException) {
                return new TaskMovedException("task " + name + " of '" + plan.application()
                        + "' has moved: another process has taken it over, or its transaction has timed out", error);
            }
        }
        return error;
    }

    long records() {
        return records;
    }

    long commits() {
        return commits;
    }

    /** Forget what is not committed, and release everything; what takes longer than 2 s goes on by itself. */
    @Override
    public void close() {
        startToClose();
        boolean wasInterrupted = Thread.interrupted();
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(CLOSING_MS);
        boolean isDone = false;
        while (!isDone && System.nanoTime() - until < 0) {
            try {
                isDone = closed.await(until - System.nanoTime(), TimeUnit.NANOSECONDS);
            } catch (@SuppressWarnings("unused") InterruptedException interrupted) {
                wasInterrupted = true;
            }
        }
        if (!isDone) {
            LOG.warn("task {}: closing it takes longer than {} ms, and goes on in the background", name, CLOSING_MS);
        }
        if (wasInterrupted) {
            Thread.currentThread().interrupt();
        }
    }

    /** The same, without waiting. */
    void startToClose() {
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        watch.remove(this);
        // On a thread of its own, because the calling one may be interrupted, and the clients may wait for a broker.
        Thread thread = new Thread(this::release, "millstream-close-" + plan.application() + "-" + name);
        thread.setDaemon(true);
        thread.start();
    }

    private void release() {
        if (state != null) {
            opened.remove(state);
            opened.add(0, state); // first, so that the next owner can have the directory
        }
        for (AutoCloseable each : opened) {
            try {
                if (each instanceof Producer<?, ?> one) {
                    one.close(one == committer ? Duration.ofMillis(CLOSING_MS) : Duration.ZERO);
                } else if (each instanceof Consumer<?, ?> one) {
                    one.close(Duration.ofMillis(CLOSING_MS));
                } else {
                    each.close();
                }
            } catch (Exception error) {
                LOG.debug("while task {} is closed", name, error);
            }
        }
        closed.countDown();
    }
}
