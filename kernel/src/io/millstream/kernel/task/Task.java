package io.millstream.kernel.task;

import io.millstream.kernel.FailPoint;
import io.millstream.kernel.sink.Delivery;
import io.millstream.kernel.sink.RecordRefusedException;
import io.millstream.kernel.sink.Rows;
import io.millstream.kernel.sink.Sender;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.spark.sql.catalyst.InternalRow;
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
final class Task extends RunningTask {
    private static final Logger LOG = LoggerFactory.getLogger(Task.class);
    private static final long CLOSING_MS = 2_000;
    private static final long REFRESH = TimeUnit.DAYS.toNanos(1);
    /** How long one partition's records are waited for at a time while others have some. */
    private static final long AWAITED_MS = 10;
    /** How long a directory is waited for that a standby has: at a time, and how often. */
    private static final long WAIT_MS = 20;

    private static final int MOST_WAITS = 500;
    /** Settings that outputs may have, and transactions have their own of. */
    private static final Set<String> OF_OUTPUTS = Set.of(
            ProducerConfig.ACKS_CONFIG,
            ProducerConfig.ENABLE_IDEMPOTENCE_CONFIG,
            ProducerConfig.RETRIES_CONFIG,
            ProducerConfig.MAX_IN_FLIGHT_REQUESTS_PER_CONNECTION);

    private final String name;
    private final Watch watch;
    private final Calls calls;
    private final ConsumerGroupMetadata group;
    private final Map<String, UTF8String> topics = new HashMap<>();
    private final RecordRow row = new RecordRow();
    private final List<AutoCloseable> opened = new ArrayList<>();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private final CountDownLatch closed = new CountDownLatch(1);
    private Producer<byte[], byte[]> committer;
    /** The same as the committer if outputs are part of the transaction. */
    private Producer<byte[], byte[]> producer;
    private final Delivery delivery;

    private volatile Map<String, Uuid> topicIds = Map.of();
    private volatile Restore restore;
    private List<TopicPartition> sources;
    private volatile Sources reading;
    private Heads heads;
    /** Null if nothing that follows from what was restored is missing. */
    private Replay replay;
    /** Up to where it reads topics again, and has: so far are stores complete whose changelogs they are. */
    private Map<TopicPartition, Long> ends;

    private Map<TopicPartition, Long> followed = Map.of();
    private OffsetNotes notes;
    private volatile Map<TopicPartition, OffsetAndMetadata> committed = new HashMap<>();
    /** Sources that are other topics than those whose offsets were committed. */
    private final Set<TopicPartition> anew = new HashSet<>();

    private boolean isOpen;
    private boolean isDirty;
    private boolean isAsking;
    private long lastCommit = System.nanoTime();
    /** Since when it has worked, without waiting for records or for a commit. */
    private long working = System.nanoTime();

    private volatile boolean isHurried;
    private volatile long records;
    /** When all offsets were committed, by the nano time; 0 if they were not. */
    private long refreshed;

    Task(TaskPlan plan, int partition, Watch watch) {
        super(plan, partition);
        this.watch = watch;
        this.name = plan.name(partition);
        this.group = new ConsumerGroupMetadata(plan.application());
        this.calls = new Calls(name, plan);
        this.delivery = new Delivery(plan.options(), new Outputs(), why -> calls.fail(why.get()));
    }

    // --- opening ---------------------------------------------------------------------------------------

    @Override
    @SuppressWarnings("resource") // it is all in `opened`
    void open() {
        try {
            Topics now = watch.topics();
            committer = opened(producer(transactionalId()));
            // Fences an earlier owner, and settles what it has left.
            calls.retried("take over", committer::initTransactions);
            FailPoint.reach(name + ".opening");
            producer = plan.isExactlyOnce() ? committer : opened(producer(null));
            sources = sources(now);
            boolean hasVersions;
            try (Consumer<byte[], byte[]> reader = Consumers.of(plan, true)) {
                calls.retried("read committed offsets", () -> readCommitted(reader));
                notes = OffsetNotes.read(metadata());
                openState(now);
                Memory.taskOpened();
                opened.add(0, Memory::taskClosed);
                restore = new Restore(plan, partition, watch, state, reader, committed);
                restore.run(calls);
                restore = null;
                Map<TopicPartition, Long> versioned = versioned();
                hasVersions = !versioned.isEmpty();
                ends = Replay.ends(plan, partition, state, committed, versioned);
            }
            begin(now);
            if (ends != null) {
                // What is aborted was read at least once, but is in no changelog.
                Consumer<byte[], byte[]> reader = Consumers.of(plan, plan.isExactlyOnce() || hasVersions);
                replay = opened(new Replay(name, reader, ends, Times.clock(plan.times())));
                calls.retried("find the beginnings of its tables", replay::begin);
            }
            watch.add(this);
        } catch (RuntimeException error) {
            close();
            throw calls.meant(error);
        } catch (Error error) {
            close();
            throw error;
        }
    }

    /** Its state as a standby has left it, or as it is on the disk. */
    private void openState(Topics now) {
        for (int waits = 0; !takeStandby(now) && !openDirectory(now, waits); waits++) {
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(WAIT_MS));
            calls.check();
        }
    }

    /** Whether a standby here had its state. */
    @SuppressWarnings("resource") // it is in `opened`
    private boolean takeStandby(Topics now) {
        State kept = Standbys.take(plan, partition, now);
        if (kept == null) {
            return false;
        }
        opened(kept);
        checkTopics(now, kept.directory());
        if (kept.directory() != null && !kept.directory().fits(plan, now)) {
            opened.remove(kept);
            kept.close();
            return false;
        }
        claim(kept.directory(), now);
        LOG.info("task {}: its state is that of its standby here", name);
        state = kept;
        return true;
    }

    /** Whether its directory was free; not if a standby is being opened or closed, which takes a moment. */
    @SuppressWarnings("resource") // it is in `opened`
    private boolean openDirectory(Topics now, int waits) {
        TaskDirectory directory;
        try {
            directory = directory();
        } catch (IllegalStateException inUse) {
            boolean isFreeSoon = Standbys.isHeld(plan.directory(partition)) || waits == 0; // or since a moment ago
            if (!isFreeSoon || waits == MOST_WAITS) {
                throw inUse;
            }
            return false;
        }
        checkTopics(now, directory);
        claim(directory, now);
        state = opened(new State(plan.stores(), directory));
        opened.remove(directory); // the state closes it
        return true;
    }

    /** The ends of the changelogs of stores with versions that come from these. */
    private Map<TopicPartition, Long> versioned() {
        List<TopicPartition> changelogs = plan.stores().stream()
                .filter(store -> store.isVersioned() && store.isDerived())
                .map(store -> new TopicPartition(store.changelog(), partition))
                .toList();
        Map<TopicPartition, Long> found = new HashMap<>();
        calls.retried("find the ends of changelogs", () -> found.putAll(watch.ends(changelogs)));
        return found;
    }

    private List<TopicPartition> sources(Topics now) {
        List<TopicPartition> there = new ArrayList<>();
        for (String topic : plan.topics().keySet()) {
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
        return plan.isOnDisk() ? opened(TaskDirectory.of(plan, plan.directory(partition))) : null;
    }

    private void claim(TaskDirectory directory, Topics now) {
        if (directory != null) {
            directory.claim(plan, now);
        }
    }

    /**
     * A topic must be the one whose offsets are committed. With a topic Kafka deletes the offsets that are committed
     * of it, so that the directory, or other topics' offsets, tell.
     */
    private void checkTopics(Topics now, TaskDirectory directory) {
        now.ids().forEach((topic, id) -> {
            Uuid before = notes.id(topic);
            TopicPartition source = new TopicPartition(topic, partition);
            boolean isUnread = topics.containsKey(topic) && !committed.containsKey(source);
            if (before == null && isUnread && directory != null && directory.isOf(plan, now)) {
                before = directory.id(topic);
            }
            // Of a pattern's topics, one that was made anew is a new one.
            if (before != null && !before.equals(id) && !plan.isByPattern(topic)) {
                TopicLostException lost = new TopicLostException(topic, before, id);
                if (!plan.readsLostAnew() || !topics.containsKey(topic)) {
                    throw lost;
                }
                LOG.warn("task {}: {}; it is read from its beginning, and the state stays", name, lost.getMessage());
                committed.remove(source);
                anew.add(source);
            }
        });
        topicIds = now.ids();
    }

    /** From here on it reads. */
    @SuppressWarnings("resource") // it is in `opened`
    private void begin(Topics now) {
        notes.know(now.ids());
        Consumer<byte[], byte[]> reader = opened(Consumers.of(plan, plan.isExactlyOnce()));
        reading = new Sources(plan, name, sources, notes.times, reader, this::checkIds);
        checkOffsets();
        reading.begin(committed, anew);
        figures.begun(reading.positions());
        heads = reading.heads();
    }

    private void checkIds() {
        TopicLostException lost = watch.lost(topicIds);
        if (lost != null) {
            throw lost;
        }
    }

    /** Without any offset there must be no state either: it would be counted again. */
    private void checkOffsets() {
        if (!committed.isEmpty() || !anew.isEmpty() || sources.isEmpty()) {
            return;
        }
        for (int i = 0; i < plan.stores().size(); i++) {
            if (plan.stores().get(i).isLogged() && !state.isEmpty(i)) {
                throw new NoOffsetException("task " + name + ": store '"
                        + plan.stores().get(i).name() + "' has entries, but group '"
                        + plan.application() + "' has no committed offset of " + sources
                        + ": the source topics were deleted and made anew, or the offsets have expired or "
                        + "were deleted. Reset the application "
                        + "with its changelogs (kafka-streams-application-reset), or say where "
                        + "to go on with the state as it is (kafka-consumer-groups --reset-offsets)");
            }
        }
    }

    private <T extends AutoCloseable> T opened(T one) {
        opened.add(0, one);
        return one;
    }

    private String transactionalId() {
        return plan.application() + "-" + plan.subtopology() + "-" + partition;
    }

    /** Loads the classes of the clients that tasks have. */
    static void rehearse(TaskPlan plan) {
        try (Consumer<byte[], byte[]> consumer = Consumers.of(plan, true)) {
            plan.topics().keySet().stream().limit(1).forEach(consumer::partitionsFor);
        }
        try (Producer<byte[], byte[]> producer = producer(plan, null)) {
            plan.topics().keySet().stream().limit(1).forEach(producer::partitionsFor);
        }
    }

    private Producer<byte[], byte[]> producer(String transactionalId) {
        return producer(plan, transactionalId);
    }

    private static Producer<byte[], byte[]> producer(TaskPlan plan, String transactionalId) {
        Map<String, Object> settings = new HashMap<>(plan.producer());
        settings.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        settings.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        if (transactionalId != null) {
            settings.keySet().removeAll(OF_OUTPUTS);
            settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, transactionalId);
            // To take a task over, a producer asks several times in any case: it waits once to be connected.
            settings.putIfAbsent(ProducerConfig.RETRY_BACKOFF_MS_CONFIG, "10");
        }
        return new KafkaProducer<>(settings);
    }

    // --- reading ---------------------------------------------------------------------------------------

    @Override
    RecordRow poll(long timeoutMs, boolean isEnding) {
        long until = 0;
        while (true) {
            calls.check();
            if (isAsking) {
                throw new IllegalStateException("task " + name + ": its commit has not reached the sink");
            }
            long now = System.nanoTime();
            isDirty |= isRefreshDue(now) && !committed.isEmpty();
            if (isDirty && (isEnding || isCommitDue(now))) {
                isAsking = true;
                takeHeld();
                return row.of(COMMIT);
            }
            if (isEnding) {
                return null;
            }
            if (replay != null) {
                RecordRow found = replayed();
                if (found != null) {
                    return found;
                }
            } else if (isTickDue()) {
                ticked();
                return row.of(TICK);
            } else if (heads.isReady(now)) {
                ConsumerRecord<byte[], byte[]> record = heads.next();
                isDirty = true;
                records++;
                return row.of(record, heads.topic(), heads.time());
            }
            if (isHeld()) {
                fetch(0);
                if (!heads.isReady(System.nanoTime()) && takeHeld()) {
                    return row.of(FLUSH);
                }
                continue;
            }
            until = until == 0 ? now + TimeUnit.MILLISECONDS.toNanos(timeoutMs) : until;
            long left = TimeUnit.NANOSECONDS.toMillis(until - now);
            if (left <= 0) {
                return null;
            }
            long wait = Math.min(left, longestWait(now));
            if (replay == null) {
                fetch(wait);
            } else {
                replay.fetch(wait);
            }
        }
    }

    /** Waits for records; what comes before it is work. */
    private void fetch(long timeoutMs) {
        long begun = worked();
        reading.fetch(timeoutMs);
        working = System.nanoTime();
        figures.took("poll", working - begun);
        if (!isDirty) {
            figures.committed(reading.positions()); // what is no record needs no commit
        }
    }

    /** Tells of the work until now. */
    private long worked() {
        long now = System.nanoTime();
        figures.took("process", now - working);
        for (Heads.Queue queue : heads.queues()) {
            long bytes = queue.takeBytes();
            if (bytes > 0) {
                figures.read(queue.partition, bytes);
            }
        }
        return now;
    }

    @Override
    void beginBatch() {
        lastCommit = System.nanoTime();
    }

    /** The next row of what is read again; null if none is at hand. */
    private RecordRow replayed() {
        if (replay.isOver()) {
            replay.close();
            opened.remove(replay);
            replay = null;
            isDirty = true;
            return row.of(DERIVE);
        }
        ConsumerRecord<byte[], byte[]> record = replay.next();
        if (record == null) {
            return null;
        }
        isDirty = true;
        UTF8String topic = topics.computeIfAbsent(record.topic(), UTF8String::fromString);
        return row.of(record, topic, replay.time(), RESTORED);
    }

    @Override
    void derived() {
        super.derived();
        followed = ends;
    }

    /** So that nothing that is due waits for a record. */
    private long longestWait(long now) {
        long wait = isDirty ? Math.max(1, leftToCommit(now)) : Long.MAX_VALUE;
        wait = Math.min(wait, Math.max(1, due() - now()));
        return heads.isEmpty() ? wait : Math.min(wait, Math.max(1, Math.min(plan.idleMs(), AWAITED_MS)));
    }

    private long leftToCommit(long now) {
        return plan.commitMs() - TimeUnit.NANOSECONDS.toMillis(now - lastCommit);
    }

    private boolean isCommitDue(long now) {
        return leftToCommit(now) <= 0 || isHurried || state.changedBytes() > Memory.changes();
    }

    /** Brokers forget offsets that were committed long ago, also of a partition in which nothing has come since. */
    private boolean isRefreshDue(long now) {
        return refreshed == 0 || now - refreshed > REFRESH;
    }

    @Override
    Restore.Progress restoring() {
        Restore now = restore;
        return now == null ? null : now.progress();
    }

    @Override
    Map<TopicPartition, Long> positions() {
        Sources now = reading;
        return now == null ? Map.of() : now.positions();
    }

    @Override
    Map<TopicPartition, Long> ends() {
        Sources now = reading;
        return now == null ? Map.of() : now.ends();
    }

    /** The greatest timestamp of the records so far; -1 if there was none. */
    long streamTime() {
        return heads.streamTime();
    }

    @Override
    byte[] clock(int operator) {
        return notes.clocks.get(operator);
    }

    /** Notes something of an operator, which is committed with the offsets: some bytes, such as times. */
    void clock(int operator, byte[] noted) {
        notes.clocks.put(operator, noted);
    }

    @Override
    void touch() {
        isDirty = true;
    }

    @Override
    long now() {
        return System.currentTimeMillis();
    }

    // --- writing ---------------------------------------------------------------------------------------

    @Override
    void send(InternalRow computed, Rows output) {
        isDirty = true;
        try {
            delivery.write(computed, output);
        } catch (KafkaException error) {
            throw calls.meant(error);
        }
    }

    @Override
    void attend(boolean isIdle) {
        if (delivery.isDue(isIdle)) {
            try {
                delivery.settle();
            } catch (KafkaException error) {
                throw calls.meant(error);
            }
        }
    }

    /**
     * Its producers, as what delivers its outputs sees them. What only tasks read is part of the transaction also at
     * least once, so that no store has a record twice.
     */
    private final class Outputs implements Sender {
        @Override
        public boolean isTransaction() {
            return plan.isExactlyOnce();
        }

        @Override
        public boolean isRepeated() {
            return plan.isExactlyOnce() || !plan.internal().isEmpty();
        }

        @Override
        public void send(ProducerRecord<byte[], byte[]> record, Callback callback) {
            if (producer == committer || plan.internal().contains(record.topic())) {
                begin();
                committer.send(record, callback);
            } else {
                producer.send(record, callback);
            }
        }

        @Override
        public int partitions(String topic) {
            return producer.partitionsFor(topic).size();
        }

        @Override
        public void flush() {
            producer.flush();
            if (isOpen && producer != committer) {
                committer.flush();
            }
        }

        @Override
        public void restart() {
            if (isOpen) {
                calls.retried("abort", committer::abortTransaction);
                isOpen = false;
            }
        }

        @Override
        public RuntimeException lost(Throwable cause) {
            return calls.meant(cause instanceof RuntimeException error ? error : new KafkaException(cause));
        }
    }

    private void begin() {
        if (!isOpen) {
            FailPoint.reach(name + ".sending");
            committer.beginTransaction();
            isOpen = true;
        }
    }

    private void sent(ProducerRecord<byte[], byte[]> record, Exception error) {
        if (error != null) {
            calls.fail(RecordRefusedException.ofChangelog(record, error));
        }
    }

    /** What it is asked next fails with this; any thread may call it. */
    void fail(RuntimeException why) {
        calls.fail(why);
    }

    /** The ids of the topics that it reads and writes. */
    Map<String, Uuid> topicIds() {
        return topicIds;
    }

    /** After an error it does nothing more. */
    @Override
    void commit() {
        isAsking = false;
        boolean wasFirst = refreshed == 0;
        long begun = worked();
        try {
            tryToCommit();
        } catch (RuntimeException error) {
            calls.fail(error);
            calls.check();
        }
        working = System.nanoTime();
        if (!wasFirst || records > 0 || replay != null) { // of the first record the result is to be seen at once
            lastCommit = working;
        }
        figures.took("commit", working - begun);
        isDirty = false;
        isHurried = false;
    }

    private void tryToCommit() {
        FailPoint.reach(name + ".committing");
        long[] logged = new long[plan.stores().size()];
        for (int i = 0; i < logged.length; i++) {
            TopicPartition changelog = new TopicPartition(plan.stores().get(i).changelog(), partition);
            logged[i] = followed.getOrDefault(changelog, 0L);
        }
        if (producer != committer || delivery.keeps()) {
            delivery.settle();
        } else {
            delivery.askAll();
        }
        calls.check();
        begin();
        state.changes((store, key, value, at) -> {
            var record = Logged.record(plan.stores().get(store), partition, key, value, at);
            committer.send(record, (metadata, error) -> {
                if (error == null) {
                    logged[store] = Math.max(logged[store], metadata.offset() + 1);
                }
                sent(record, error);
            });
        });
        FailPoint.reach(name + ".logged");
        operators.forEach((number, operator) -> notes.clocks.put(number, operator.clock()));
        Map<TopicPartition, OffsetAndMetadata> offsets = offsets();
        Map<TopicPartition, OffsetAndMetadata> changed = new HashMap<>(offsets);
        if (!isRefreshDue(System.nanoTime())) {
            changed.entrySet().removeIf(each -> each.getValue().equals(committed.get(each.getKey())));
        } else {
            refreshed = System.nanoTime();
        }
        if (!changed.isEmpty()) {
            calls.retried("add offsets", () -> committer.sendOffsetsToTransaction(changed, group));
        }
        FailPoint.reach(name + ".offsets");
        calls.check();
        calls.retried("commit", committer::commitTransaction);
        isOpen = false;
        committed = offsets;
        figures.committed(reading.positions());
        figures.wrote(delivery.settled());
        Replay.note(plan, state, offsets);
        FailPoint.reach(name + ".committed");
        for (int i = 0; i < logged.length; i++) {
            OffsetAndMetadata source = offsets.get(new TopicPartition(plan.stores().get(i).source(), partition));
            logged[i] = source == null ? logged[i] : source.offset();
        }
        state.committed(logged);
    }

    /** Behind the last records that were taken, with notes. */
    private Map<TopicPartition, OffsetAndMetadata> offsets() {
        for (Heads.Queue queue : heads.queues()) {
            notes.times.put(queue.partition, queue.time());
        }
        Map<TopicPartition, String> texts = notes.write(sources, plan.metadataBytes());
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        reading.positions()
                .forEach((source, next) -> offsets.put(source, new OffsetAndMetadata(next, texts.get(source))));
        return offsets;
    }

    /** Up to where the topics are committed that only tasks like this one read. */
    Map<TopicPartition, Long> done() {
        Map<TopicPartition, Long> found = new HashMap<>();
        committed.forEach((source, at) -> {
            if (plan.purged().contains(source.topic())) {
                found.put(source, at.offset());
            }
        });
        return found;
    }

    @Override
    void hurry() {
        isHurried = true;
    }

    @Override
    long records() {
        return records;
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

    @Override
    void startToClose() {
        if (!isClosed.compareAndSet(false, true)) {
            return;
        }
        watch.remove(this);
        figures.reached(positions());
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
                } else {
                    each.close();
                }
            } catch (Exception error) {
                LOG.debug("while task {} is closed", name, error);
            }
        }
        closeOperators();
        closed.countDown();
    }
}
