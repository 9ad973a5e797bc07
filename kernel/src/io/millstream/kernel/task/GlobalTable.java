package io.millstream.kernel.task;

import io.millstream.kernel.python.Processing;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.Function;
import java.util.function.UnaryOperator;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The last value of each key of a topic, of all its partitions: tasks of this JVM look them up. Sources:
 * GlobalStreamThread, GlobalStateManagerImpl.
 *
 * <p>One consumer reads the topic, up to its end before the first task looks anything up, and then on a thread of its
 * own. All tasks of a JVM share the table, and what it has stays in its directory, with the offsets up to which it is
 * complete. If a user's processor fills it, it has what that puts.
 */
final class GlobalTable {
    private static final Logger LOG = LoggerFactory.getLogger(GlobalTable.class);
    private static final Map<Path, GlobalTable> OPEN = new HashMap<>();
    private static final Duration SOON = Duration.ofMillis(100);
    private static final long CLOSING_MS = 10_000;
    private static final long API_TIMEOUT_MS = 60_000;
    private static final int ROWS = 0;
    private static final int OFFSETS = 1;

    private final TaskPlan plan;
    private final TaskPlan.Global global;
    private final Path place;
    /** Rows are not looked up while some change. */
    private final ReentrantReadWriteLock lock = new ReentrantReadWriteLock();
    /** Those who wait until everything is read that is there when they ask. */
    private final ConcurrentLinkedQueue<CompletableFuture<Void>> waiting = new ConcurrentLinkedQueue<>();
    /** What was read of a change that is not there as a whole. */
    private final List<ConsumerRecord<byte[], byte[]>> held = new ArrayList<>();
    /** Null if it has the rows of its topic as they are. */
    private Filling filling;

    private int users;
    private State state;
    private Thread thread;
    private Consumer<byte[], byte[]> consumer;
    private volatile boolean isClosing;
    private volatile RuntimeException failure;

    private GlobalTable(TaskPlan plan, TaskPlan.Global global, Path place) {
        this.plan = plan;
        this.global = global;
        this.place = place;
    }

    /** The table as it is now, read up to its end; each who takes it closes it. */
    static GlobalTable of(TaskPlan plan, TaskPlan.Global global) {
        String name = plan.isInMemory() ? plan.run() : "global";
        Path place = Path.of(plan.directory(), name, global.topic());
        GlobalTable table;
        synchronized (OPEN) {
            table = OPEN.computeIfAbsent(place, path -> new GlobalTable(plan, global, path));
            table.users++;
        }
        try {
            table.open();
        } catch (RuntimeException | Error error) {
            table.close();
            throw error;
        }
        return table;
    }

    /** Done when all tables of a topic in this JVM have what the topic has now, but for those that read no more. */
    static CompletableFuture<Void> upToDate(String topic) {
        synchronized (OPEN) {
            return CompletableFuture.allOf(OPEN.values().stream()
                    .filter(each -> each.global.topic().equals(topic))
                    .map(GlobalTable::asked)
                    .toArray(CompletableFuture[]::new));
        }
    }

    private CompletableFuture<Void> asked() {
        CompletableFuture<Void> one = new CompletableFuture<>();
        waiting.add(one);
        if (isClosing || failure != null) {
            answer(Integer.MAX_VALUE);
        }
        return one;
    }

    private void answer(int most) {
        for (int i = 0; i < most && !waiting.isEmpty(); i++) {
            CompletableFuture<Void> one = waiting.poll();
            if (one != null) {
                one.complete(null);
            }
        }
    }

    // --- opening and closing ---------------------------------------------------------------------------

    @SuppressWarnings("resource") // the state closes its directory
    private synchronized void open() {
        if (state != null && failure == null) {
            return;
        }
        release();
        isClosing = false;
        failure = null;
        filling = global.filling() == null ? null : new Filling(global, this);
        try {
            if (plan.isInMemory()) {
                state = new State(stores(), null);
                return;
            }
            Topics now = topics();
            state = new State(stores(), directory(now));
            begin(now.partitions().get(global.topic()));
        } catch (RuntimeException | Error error) {
            release();
            throw error;
        }
        thread = new Thread(this::follow, "millstream-global-" + plan.application() + "-" + global.topic());
        thread.setDaemon(true);
        thread.start();
    }

    private List<TaskPlan.Store> stores() {
        boolean isInMemory = plan.isInMemory();
        String rows = global.filling() == null ? "stamped rows" : "processed rows";
        return List.of(new TaskPlan.Store(rows, "", isInMemory), new TaskPlan.Store("offsets", "", isInMemory));
    }

    private Topics topics() {
        try (Admin admin = Topics.admin(plan)) {
            Topics now = Topics.of(Set.of(global.topic()), admin);
            if (!now.ids().containsKey(global.topic())) {
                throw new TopicLostException(global.topic(), null, null);
            }
            return now;
        }
    }

    private TaskDirectory directory(Topics now) {
        TaskDirectory directory = TaskDirectory.of(plan, place);
        directory.claim(plan.application(), stores(), now);
        return directory;
    }

    private void begin(int partitions) {
        Map<String, Object> settings = new HashMap<>(global.consumer());
        settings.remove(ConsumerConfig.GROUP_ID_CONFIG);
        settings.put(ConsumerConfig.ENABLE_AUTO_COMMIT_CONFIG, "false");
        settings.put(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, ByteArrayDeserializer.class);
        settings.put(ConsumerConfig.ALLOW_AUTO_CREATE_TOPICS_CONFIG, "false");
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "none");
        if (global.isWhole()) {
            settings.put(ConsumerConfig.ISOLATION_LEVEL_CONFIG, "read_committed");
        }
        consumer = new KafkaConsumer<>(settings);
        List<TopicPartition> all = new ArrayList<>();
        for (int i = 0; i < partitions; i++) {
            all.add(new TopicPartition(global.topic(), i));
        }
        consumer.assign(all);
        Calls calls = new Calls("global table of " + global.topic(), plan);
        Map<TopicPartition, Long> begins = new HashMap<>();
        Map<TopicPartition, Long> ends = new HashMap<>();
        calls.retried("find its ends", () -> {
            begins.putAll(consumer.beginningOffsets(all));
            ends.putAll(consumer.endOffsets(all));
        });
        for (TopicPartition each : all) {
            long position = position(each);
            if (position > ends.get(each) || position > 0 && position < begins.get(each)) {
                state.wipe("it is at offset " + position + " of " + each + ", which has those from "
                        + begins.get(each) + " to " + ends.get(each));
                break;
            }
        }
        all.forEach(each -> consumer.seek(each, Math.max(position(each), begins.get(each))));
        read(ends);
    }

    private long position(TopicPartition partition) {
        byte[] kept = state.get(OFFSETS, number(partition.partition()));
        return kept == null ? 0 : ByteBuffer.wrap(kept).getLong();
    }

    private static byte[] number(int partition) {
        return ByteBuffer.allocate(Integer.BYTES).putInt(partition).array();
    }

    /** The last one who has taken it ends it. */
    void close() {
        synchronized (OPEN) {
            users--;
        }
        synchronized (this) { // so that who takes it meanwhile opens it anew
            if (!isUsed()) {
                release();
            }
        }
        synchronized (OPEN) {
            if (!isUsed()) {
                OPEN.remove(place, this);
            }
        }
    }

    private boolean isUsed() {
        synchronized (OPEN) {
            return users > 0;
        }
    }

    private void release() {
        isClosing = true;
        if (thread != null) {
            consumer.wakeup();
            try {
                thread.join(CLOSING_MS);
            } catch (@SuppressWarnings("unused") InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
            thread = null;
        } else if (consumer != null) {
            consumer.close(Duration.ofMillis(CLOSING_MS));
        }
        consumer = null;
        answer(Integer.MAX_VALUE);
        held.clear();
        if (filling != null) {
            filling.end();
        }
        lock.writeLock().lock();
        try {
            if (state != null) {
                state.close();
                state = null;
            }
        } finally {
            lock.writeLock().unlock();
        }
    }

    // --- reading ---------------------------------------------------------------------------------------

    private void follow() {
        try (Consumer<byte[], byte[]> reader = consumer) {
            while (!isClosing) {
                keep(reader.poll(SOON), global.isWhole());
                int asked = waiting.size();
                if (asked > 0) {
                    read(reader.endOffsets(reader.assignment()));
                    answer(asked);
                }
            }
        } catch (WakeupException | InterruptException error) {
            if (!isClosing) {
                fail(error);
            }
        } catch (RuntimeException error) {
            fail(error);
        }
    }

    private void fail(RuntimeException error) {
        LOG.error("the global table of topic '{}' cannot be read on", global.topic(), error);
        failure = error;
        answer(Integer.MAX_VALUE);
    }

    /** Reads up to these offsets. */
    private void read(Map<TopicPartition, Long> ends) {
        long last = System.nanoTime();
        while (!isClosing && isBefore(ends)) {
            if (keep(consumer.poll(SOON), false)) {
                last = System.nanoTime();
            } else if (System.nanoTime() - last > TimeUnit.MILLISECONDS.toNanos(API_TIMEOUT_MS)) {
                throw new TimeoutException(
                        said("has made no progress for " + API_TIMEOUT_MS + " ms, and is not at " + ends));
            }
        }
        keep(ConsumerRecords.empty(), false);
    }

    private boolean isBefore(Map<TopicPartition, Long> ends) {
        return ends.entrySet().stream().anyMatch(end -> consumer.position(end.getKey()) < end.getValue());
    }

    private String said(String what) {
        return "the global table of topic '" + global.topic() + "' " + what;
    }

    /**
     * Keeps what was read; whether anything was.
     *
     * @param isWhole only if there is nothing more, so that all changes of a transaction are seen at once
     */
    private boolean keep(ConsumerRecords<byte[], byte[]> found, boolean isWhole) {
        found.forEach(held::add);
        boolean isMore = isWhole
                && consumer.assignment().stream()
                        .anyMatch(each -> consumer.currentLag(each).orElse(1) > 0);
        boolean isMoved = consumer.assignment().stream().anyMatch(each -> consumer.position(each) != position(each));
        if (!isMore && isMoved) {
            Map<Integer, Long> next = new HashMap<>();
            consumer.assignment().forEach(each -> next.put(each.partition(), consumer.position(each)));
            put(held, next);
            held.clear();
        }
        return isMoved;
    }

    /** Takes these records. */
    void put(List<ConsumerRecord<byte[], byte[]>> records, Map<Integer, Long> next) {
        List<Processing.Put> changes = filling == null ? rows(records) : filling.changes(records);
        lock.writeLock().lock();
        try {
            changes.forEach(each -> state.put(ROWS, each.key(), each.value()));
            next.forEach((partition, offset) -> state.put(
                    OFFSETS,
                    number(partition),
                    ByteBuffer.allocate(Long.BYTES).putLong(offset).array()));
            state.committed(new long[2]);
        } finally {
            lock.writeLock().unlock();
        }
    }

    /** Those without keys are nothing of a table. */
    private static List<Processing.Put> rows(List<ConsumerRecord<byte[], byte[]>> records) {
        List<Processing.Put> rows = new ArrayList<>(records.size());
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.key() != null) {
                byte[] value = record.value();
                byte[] stamped = value == null ? null : new Entry(record.timestamp(), null, value).stamped();
                rows.add(new Processing.Put(ROWS, record.key(), stamped, 0));
            }
        }
        return rows;
    }

    // --- what it has: the timestamp, 8 bytes, and the value, of each key. Any thread may ask -----------

    /** The row of a key; null if there is none. */
    byte[] get(byte[] key) {
        return read(lock.readLock(), rows -> rows.get(ROWS, key));
    }

    /** As {@link Processing.Stores#range}. */
    List<byte[]> range(byte[] from, byte[] end, boolean isReverse, int limit) {
        return read(lock.writeLock(), rows -> { // the state has one cursor at a time
            try (Cursor entries = rows.range(ROWS, from, end, isReverse)) {
                return entries.page(limit, UnaryOperator.identity());
            }
        });
    }

    /** How many rows there are, about. */
    long count() {
        return read(lock.readLock(), rows -> rows.count(ROWS));
    }

    private <T> T read(Lock access, Function<State, T> what) {
        RuntimeException why = failure;
        if (why != null) {
            throw new IllegalStateException(said("cannot be read on"), why);
        }
        access.lock();
        try {
            if (state == null) {
                throw new IllegalStateException(said("is closed"));
            }
            return what.apply(state);
        } finally {
            access.unlock();
        }
    }
}
