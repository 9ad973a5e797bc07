package io.millstream.kernel.task;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InterruptException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Sees to it that the topics of a run's tasks stay what they are (KIP-516): all tasks of a JVM ask once, and it looks
 * again every so often on a thread of its own. A topic that is deleted, or made anew, fails the tasks.
 *
 * <p>Records of repartition topics are deleted once they are committed. Source: StreamsPartitionAssignor,
 * TaskManager.maybePurgeCommittedRecords.
 */
final class Watch implements AutoCloseable {
    private static final Logger LOG = LoggerFactory.getLogger(Watch.class);
    private static final long MOST_MS = 10_000;
    private static final long FRESH_MS = 1_000;
    /** How long a topic that was just made may take to be known to all brokers. */
    private static final long PATIENCE_MS = 2_000;

    private static final long PAUSE_MS = 50;

    private final TaskPlan plan;
    private final Set<String> names;
    private final Admin admin;
    private final Set<Task> tasks = ConcurrentHashMap.newKeySet();
    private final ReentrantLock asking = new ReentrantLock();
    private final Thread thread;
    private final long everyMs;
    /** Up to where records are deleted. */
    private final Map<TopicPartition, Long> deleted = new HashMap<>();

    private long purged = System.nanoTime();
    private volatile boolean isClosed;
    private Topics known;
    private long asked;

    Watch(TaskPlan plan) {
        this.plan = plan;
        this.names = Topics.names(plan);
        this.admin = Topics.admin(plan);
        String age = plan.consumer().get(ConsumerConfig.METADATA_MAX_AGE_CONFIG);
        long mostMs = plan.purged().isEmpty() ? MOST_MS : Math.min(MOST_MS, plan.purgeMs());
        this.everyMs = Math.max(PAUSE_MS, age == null ? mostMs : Math.min(mostMs, Long.parseLong(age)));
        this.thread = new Thread(this::look, "millstream-topics-" + plan.application() + "-" + plan.subtopology());
        thread.setDaemon(true);
        thread.start();
    }

    /** All topics as they are; an answer may be a second old. */
    Topics topics() {
        try {
            asking.lockInterruptibly();
        } catch (InterruptedException interrupted) {
            throw new InterruptException(interrupted);
        }
        try {
            return ask();
        } finally {
            asking.unlock();
        }
    }

    private Topics ask() {
        if (known != null && System.nanoTime() - asked < TimeUnit.MILLISECONDS.toNanos(FRESH_MS)) {
            return known;
        }
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(PATIENCE_MS);
        while (true) {
            Topics found = Topics.of(names, admin);
            String missing = names.stream()
                    .filter(name -> !found.ids().containsKey(name))
                    .findFirst()
                    .orElse(null);
            if (missing == null) {
                known = found;
                asked = System.nanoTime();
                return found;
            }
            if (System.nanoTime() - until > 0) {
                throw new TopicLostException(missing, null, null);
            }
            try {
                Thread.sleep(PAUSE_MS);
            } catch (InterruptedException interrupted) {
                throw new InterruptException(interrupted);
            }
        }
    }

    void add(Task task) {
        tasks.add(task);
    }

    void remove(Task task) {
        tasks.remove(task);
    }

    /** What has become of these topics; null if they are what they were. */
    TopicLostException lost(Map<String, Uuid> before) {
        Topics now = Topics.of(before.keySet(), admin);
        for (Map.Entry<String, Uuid> each : before.entrySet()) {
            Uuid id = now.ids().get(each.getKey());
            if (!each.getValue().equals(id)) {
                return new TopicLostException(each.getKey(), each.getValue(), id);
            }
        }
        return null;
    }

    /** The ends of changelogs. */
    Map<TopicPartition, Long> ends(Collection<TopicPartition> changelogs) {
        return Topics.ends(changelogs, admin);
    }

    /** For how long a changelog keeps deletions at least. */
    long deletionsKeptMs(String topic) {
        return Topics.deletionsKeptMs(topic, admin);
    }

    private void look() {
        try {
            while (!isClosed) {
                Thread.sleep(everyMs);
                Map<String, Uuid> before = new HashMap<>();
                tasks.forEach(task -> before.putAll(task.topicIds()));
                if (!before.isEmpty()) {
                    look(before);
                }
                if (System.nanoTime() - purged >= TimeUnit.MILLISECONDS.toNanos(plan.purgeMs())) {
                    purged = System.nanoTime();
                    purge();
                }
            }
        } catch (@SuppressWarnings("unused") InterruptedException | InterruptException closed) {
            Thread.interrupted();
        }
    }

    private void look(Map<String, Uuid> before) {
        try {
            TopicLostException lost = lost(before);
            if (lost != null) {
                tasks.forEach(task -> task.fail(lost));
            }
        } catch (InterruptException closed) {
            throw closed;
        } catch (KafkaException error) {
            LOG.debug("topics of {} cannot be looked at now", plan.application(), error);
        }
    }

    private void purge() {
        Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
        tasks.forEach(task -> task.done().forEach((source, offset) -> {
            if (offset > deleted.getOrDefault(source, 0L)) {
                before.put(source, RecordsToDelete.beforeOffset(offset));
            }
        }));
        admin.deleteRecords(before).lowWatermarks().forEach((source, answer) -> {
            try {
                deleted.put(source, answer.get().lowWatermark());
            } catch (InterruptedException closed) {
                throw new InterruptException(closed);
            } catch (ExecutionException error) {
                LOG.warn("records of {} that are committed cannot be deleted", source, error.getCause());
            }
        });
    }

    @Override
    public void close() {
        isClosed = true;
        thread.interrupt();
        admin.close(Duration.ZERO);
    }
}
