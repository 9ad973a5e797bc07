package io.millstream.kernel.task;

import io.millstream.kernel.FailPoint;
import java.time.Duration;
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
    private final Restored restored;
    private final Consumer<byte[], byte[]> reader;
    /** The numbers of the stores. */
    private final Map<TopicPartition, Integer> stores = new HashMap<>();

    private final Map<TopicPartition, Long> begins = new HashMap<>();
    private final Map<TopicPartition, Long> ends = new HashMap<>();
    /** The ends of sources. */
    private final Map<TopicPartition, Long> read = new HashMap<>();
    /** Those that are not at their ends. */
    private final Set<TopicPartition> left = new HashSet<>();

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
        this.restored = new Restored(plan, state);
        this.reader = reader;
        for (int i = 0; i < plan.stores().size(); i++) {
            TaskPlan.Store store = plan.stores().get(i);
            TopicPartition source = new TopicPartition(store.source(), partition);
            if (store.isRestored()) {
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
        restored.check(stores, begins, ends, watch::deletionsKeptMs);
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
        long count = 0;
        long last = System.nanoTime();
        while (!left.isEmpty()) {
            reader.resume(left);
            ConsumerRecords<byte[], byte[]> found = reader.poll(SOON);
            count += found.count();
            if (keep(found)) {
                last = System.nanoTime();
            } else if (System.nanoTime() - last > TimeUnit.MILLISECONDS.toNanos(apiTimeoutMs())) {
                throw new TimeoutException("task " + task + ": " + progress + " has made no progress for "
                        + apiTimeoutMs() + " ms");
            }
            FailPoint.reach(task + ".restoring");
        }
        if (count > 0) {
            LOG.info("task {}: {} records restored", task, count);
        }
    }

    /** Keeps what was found; whether anything has moved on. */
    private boolean keep(ConsumerRecords<byte[], byte[]> found) {
        boolean isFurther = false;
        for (TopicPartition changelog : List.copyOf(left)) {
            int store = stores.get(changelog);
            long position = Math.min(reader.position(changelog), ends.get(changelog));
            if (position != state.position(store)) {
                isFurther = true;
                List<ConsumerRecord<byte[], byte[]>> records = found.records(changelog).stream()
                        .filter(record -> record.offset() < position) // what comes later of a source is yet to be read
                        .toList();
                restored.keep(store, records, position, !read.containsKey(changelog));
            }
            progress = new Progress(task, plan.stores().get(store).name(), position, ends.get(changelog));
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
}
