package io.millstream.kernel.task;

import io.millstream.kernel.FailPoint;
import java.time.Duration;
import java.util.AbstractMap;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings the state of a task up to the ends of its changelogs. It takes as long as it makes progress, which can be
 * looked at. Source: StoreChangelogReader.
 */
public final class Restore {
    private static final Logger LOG = LoggerFactory.getLogger(Restore.class);
    private static final Duration SOON = Duration.ofMillis(100);
    private static final long API_TIMEOUT_MS = 60_000;
    /** A changelog keeps deletions for longer. */
    private static final long RECENT_MS = Long.getLong("millstream.kernel.recent.ms", 3_600_000);

    /**
     * How far a store is restored.
     *
     * @param position the next offset of its changelog
     * @param end the offset up to which it is read
     */
    public record Progress(String task, String store, long position, long end) {}

    private final TaskPlan plan;
    private final String task;
    private final Watch watch;
    private final State state;
    private final Consumer<byte[], byte[]> reader;
    /** The numbers of the stores. */
    private final Map<TopicPartition, Integer> stores = new HashMap<>();

    private final Map<TopicPartition, Long> begins = new HashMap<>();
    private final Map<TopicPartition, Long> ends = new HashMap<>();
    /** The ends of sources. */
    private final Map<TopicPartition, Long> read = new HashMap<>();
    /** Those that are not at their ends. */
    private final Set<TopicPartition> left = new HashSet<>();

    private boolean isOutdated;
    private volatile Progress progress;

    /**
     * Of one task.
     *
     * @param reader reads what is committed, and is used for nothing else meanwhile
     * @param committed the task's offsets: what is restored from a source is up to there
     */
    Restore(
            TaskPlan plan,
            int partition,
            Watch watch,
            State state,
            Consumer<byte[], byte[]> reader,
            Map<TopicPartition, OffsetAndMetadata> committed) {
        this.plan = plan;
        this.task = plan.name(partition);
        this.watch = watch;
        this.state = state;
        this.reader = reader;
        for (int i = 0; i < plan.stores().size(); i++) {
            TaskPlan.Store store = plan.stores().get(i);
            TopicPartition source = new TopicPartition(store.source(), partition);
            if (store.isLogged() && !store.isDerived()) {
                stores.put(new TopicPartition(store.changelog(), partition), i);
            } else if (committed.containsKey(source)) {
                stores.put(source, i);
                read.put(source, committed.get(source).offset());
            }
        }
    }

    /** Null if there is nothing to tell. */
    Progress progress() {
        return progress;
    }

    /** Reads the changelogs from where the disk is complete to their ends. */
    void run(Calls calls) {
        if (stores.isEmpty()) {
            return;
        }
        reader.assign(stores.keySet());
        calls.retried("find the ends of its changelogs", () -> {
            begins.putAll(reader.beginningOffsets(stores.keySet()));
            ends.putAll(watch.ends(stores.keySet()));
            ends.putAll(read);
        });
        String wrong = misplaced();
        if (wrong != null) {
            state.wipe(wrong);
        }
        stores.forEach((changelog, store) -> {
            reader.seek(changelog, Math.max(state.position(store), begins.get(changelog)));
            if (state.position(store) < ends.get(changelog)) {
                left.add(changelog);
            }
        });
        read();
        progress = null;
    }

    private void read() {
        long restored = 0;
        long last = System.nanoTime();
        while (!left.isEmpty()) {
            reader.resume(left);
            ConsumerRecords<byte[], byte[]> found = reader.poll(SOON);
            restored += found.count();
            if (keep(found)) {
                last = System.nanoTime();
            } else if (System.nanoTime() - last > TimeUnit.MILLISECONDS.toNanos(apiTimeoutMs())) {
                throw new TimeoutException("task " + task + ": " + progress + " has made no progress for "
                        + apiTimeoutMs() + " ms");
            }
            FailPoint.reach(task + ".restoring");
        }
        if (restored > 0) {
            LOG.info("task {}: {} records restored", task, restored);
        }
    }

    /** What is wrong with the positions on disk; null if nothing is. */
    private String misplaced() {
        for (Map.Entry<TopicPartition, Integer> each : stores.entrySet()) {
            long position = state.position(each.getValue());
            long begin = begins.get(each.getKey());
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
    private boolean keep(ConsumerRecords<byte[], byte[]> found) {
        boolean isFurther = false;
        for (TopicPartition changelog : List.copyOf(left)) {
            int store = stores.get(changelog);
            long position = reader.position(changelog);
            if (position != state.position(store)) {
                isFurther = true;
                keep(store, found.records(changelog), position, !read.containsKey(changelog));
            }
            progress = new Progress(task, plan.stores().get(store).name(), position, ends.get(changelog));
            if (position >= ends.get(changelog)) {
                left.remove(changelog);
                reader.pause(List.of(changelog));
            }
        }
        return isFurther;
    }

    private void keep(int store, List<ConsumerRecord<byte[], byte[]>> records, long position, boolean isOurs) {
        LaidOut laidOut = LaidOut.of(state, store, plan.stores().get(store).layout());
        if (laidOut != null) {
            records.forEach(record -> laidOut.restore(record.key(), record.value(), record.timestamp()));
            state.restored(store, position);
            return;
        }
        if (Held.isFormOf(plan.stores().get(store))) {
            keepHeld(store, records, position);
            return;
        }
        List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            if (record.key() == null) { // of a source
                continue;
            }
            entries.add(new AbstractMap.SimpleImmutableEntry<>(record.key(), Logged.value(record, isOurs)));
        }
        boolean isOfProcessors = !plan.stores().get(store).layout().isEmpty(); // nothing follows from them
        outdate(!entries.isEmpty() && !isOfProcessors);
        state.restored(store, entries, position);
    }

    /** A deletion may not say the whole name of what is kept: then that is looked for among what came before. */
    private void keepHeld(int store, List<ConsumerRecord<byte[], byte[]>> records, long position) {
        outdate(!records.isEmpty());
        List<Map.Entry<byte[], byte[]>> entries = new ArrayList<>();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            Map.Entry<byte[], byte[]> entry = Held.entry(plan.stores().get(store), record, (key, start) -> {
                state.restored(store, entries, state.position(store));
                entries.clear();
                return find(store, key, start);
            });
            if (entry != null) {
                entries.add(entry);
            }
        }
        state.restored(store, entries, position);
    }

    /** The name of a window that is held back. */
    private byte[] find(int store, byte[] key, byte[] start) {
        byte[][] found = new byte[1][];
        state.range(store, key, State.after(key), (name, value) -> {
            boolean isSame = name.length == key.length + 2 * Long.BYTES
                    && Arrays.equals(name, name.length - start.length, name.length, start, 0, start.length);
            found[0] = isSame ? name : found[0];
        });
        return found[0];
    }

    /** Notes, before the first entries are kept, that what follows from them is missing. */
    private void outdate(boolean isChanging) {
        if (isChanging && !isOutdated && plan.local() >= 0) {
            isOutdated = true;
            Derived.outdate(state, plan.local());
            state.committed(new long[plan.stores().size()]);
        }
    }

    private long apiTimeoutMs() {
        String set = plan.consumer().get(ConsumerConfig.DEFAULT_API_TIMEOUT_MS_CONFIG);
        return set == null ? API_TIMEOUT_MS : Long.parseLong(set);
    }
}
