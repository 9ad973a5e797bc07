package io.millstream.kernel.task;

import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.errors.WakeupException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The states of tasks that other clients run: kept as they are committed, from their changelogs, so that such a task
 * can begin here without a restore. One thread for each plan. Source: DefaultStateUpdater.
 *
 * <p>A task that begins takes its state as it is, open. One that is not wanted any more stays open for a while, because
 * it is often about to begin.
 */
final class Standbys {
    private static final Logger LOG = LoggerFactory.getLogger(Standbys.class);
    private static final Map<String, Standbys> RUNS = new ConcurrentHashMap<>();
    /** The directories that are open here, or are being opened or closed. */
    private static final Set<Path> HELD = ConcurrentHashMap.newKeySet();

    private static final Duration SOON = Duration.ofMillis(500);
    private static final long LINGER_MS = 10_000;
    private static final long AGAIN_MS = 100;
    private static final long AFTER_FAILURE_MS = 5_000;

    private final TaskPlan plan;
    private final Thread thread;
    /** By the numbers of their partitions; guarded by itself. */
    private final Map<Integer, Standby> open = new TreeMap<>();

    /** Those that cannot be opened, with the nano time when it is tried again. */
    private final Map<Integer, Long> later = new HashMap<>();

    private volatile Set<Integer> wanted = Set.of();
    private volatile boolean isClosed;
    /** Counts what its thread is woken for. */
    private int news;
    /** That of the thread; null if it has none. */
    private volatile Consumer<byte[], byte[]> reader;

    private Standbys(TaskPlan plan) {
        this.plan = plan;
        String name = plan.application() + "-" + plan.subtopology();
        this.thread = new Thread(this::run, "millstream-standbys-" + name);
        thread.setDaemon(true);
    }

    /** The standbys of a plan, from now on. */
    static void follow(TaskPlan plan, Collection<Integer> partitions) {
        RUNS.computeIfAbsent(plan.run(), run -> {
                    Standbys made = new Standbys(plan);
                    made.thread.start();
                    return made;
                })
                .follow(partitions);
    }

    /** Those of them that have had all that their changelogs had when they were opened. */
    static Set<Integer> caughtUp(String run) {
        Standbys all = RUNS.get(run);
        Set<Integer> found = new TreeSet<>();
        if (all != null) {
            synchronized (all.open) {
                all.open.forEach((partition, standby) -> {
                    if (standby.hasCaughtUp && all.wanted.contains(partition)) {
                        found.add(partition);
                    }
                });
            }
        }
        return found;
    }

    /** Whether a directory is open here, or is being opened or closed: then it is free soon, or to be taken. */
    static boolean isHeld(Path path) {
        return HELD.contains(path);
    }

    /** Closes all of a plan, soon. */
    static void close(String run) {
        Standbys all = RUNS.remove(run);
        if (all != null) {
            all.isClosed = true;
            all.wake();
        }
    }

    /** The state of a task that begins, still open; null if there is none that is still right. */
    static State take(TaskPlan plan, int partition, Topics now) {
        Path path = plan.directory(partition);
        for (Standbys each : RUNS.values()) {
            Standby found = each.given(path);
            if (found != null) {
                each.wake(); // it is not to be read any more
                if (found.fits(plan, now)) {
                    HELD.remove(path);
                    return found.state;
                }
                found.close();
            }
        }
        return null;
    }

    private Standby given(Path path) {
        Standby found = null;
        synchronized (open) {
            for (Standby each : open.values()) {
                found = each.path.equals(path) ? each : found;
            }
            if (found != null) {
                open.remove(found.partition);
                Set<Integer> left = new TreeSet<>(wanted);
                left.remove(found.partition);
                wanted = left;
            }
        }
        if (found != null) {
            synchronized (found) { // what is being kept in it is kept
                found.isTaken = true;
            }
        }
        return found;
    }

    private void follow(Collection<Integer> partitions) {
        synchronized (open) {
            Set<Integer> now = Set.copyOf(partitions);
            if (now.equals(wanted)) {
                return;
            }
            wanted = now;
        }
        wake();
    }

    private void wake() {
        synchronized (this) {
            news++;
            notifyAll();
        }
        Consumer<byte[], byte[]> now = reader;
        if (now != null) {
            now.wakeup();
        }
    }

    // --- its thread --------------------------------------------------------------------------------------

    private void run() {
        try {
            while (!isClosed) {
                try (Consumer<byte[], byte[]> made = Consumers.of(plan, true);
                        Admin admin = Topics.admin(plan)) {
                    reader = made;
                    while (!isClosed) {
                        turn(made, admin);
                    }
                } catch (@SuppressWarnings("unused") InterruptException closed) {
                    return;
                } catch (RuntimeException error) {
                    LOG.warn("standbys of {}: they are opened again", plan.application(), error);
                    closeAll();
                    pause(AFTER_FAILURE_MS, news());
                } finally {
                    reader = null;
                }
            }
        } finally {
            closeAll();
        }
    }

    private void turn(Consumer<byte[], byte[]> from, Admin admin) {
        int before = news();
        boolean isAnyMissing = arrange(admin);
        List<Standby> followed = followed();
        assign(from, followed);
        if (from.assignment().isEmpty()) { // also if tasks have no changelogs
            pause(isAnyMissing ? AGAIN_MS : LINGER_MS, before);
            return;
        }
        ConsumerRecords<byte[], byte[]> found;
        Map<TopicPartition, Long> positions = new HashMap<>();
        try {
            found = from.poll(isAnyMissing ? Duration.ofMillis(AGAIN_MS) : SOON);
            from.assignment().forEach(each -> positions.put(each, from.position(each, SOON)));
        } catch (@SuppressWarnings("unused") WakeupException | TimeoutException nothing) {
            followed.forEach(each -> each.isPlaced = false); // what was found is read again
            return;
        } catch (InvalidOffsetException error) {
            anew(error);
            return;
        }
        followed.forEach(each -> each.keep(found, positions, from));
    }

    private synchronized int news() {
        return news;
    }

    /** Opens what is wanted, and closes what has not been for a while; whether something could not be opened yet. */
    private boolean arrange(Admin admin) {
        List<Standby> over = new ArrayList<>();
        Set<Integer> missing;
        synchronized (open) {
            missing = new TreeSet<>(wanted);
            missing.removeAll(open.keySet());
            open.values().removeIf(each -> each.isOver(wanted.contains(each.partition)) && over.add(each));
        }
        over.forEach(Standby::close);
        later.keySet().retainAll(missing);
        Topics now = null;
        for (int partition : missing) {
            if (isClosed || !wanted.contains(partition) || System.nanoTime() - later.getOrDefault(partition, 0L) < 0) {
                continue;
            }
            now = now == null ? Topics.of(Set.copyOf(plan.changelogs()), admin) : now;
            tryToOpen(partition, now, admin);
        }
        synchronized (open) {
            return !open.keySet().containsAll(wanted);
        }
    }

    private void tryToOpen(int partition, Topics now, Admin admin) {
        Path path = plan.directory(partition);
        HELD.add(path);
        try {
            open(partition, now, admin);
            later.remove(partition);
        } catch (InterruptException closed) {
            HELD.remove(path);
            throw closed;
        } catch (RuntimeException error) {
            HELD.remove(path);
            boolean isInUse = error instanceof IllegalStateException && error.getCause() == null;
            long waitMs = isInUse ? AGAIN_MS : AFTER_FAILURE_MS;
            boolean isNew = later.put(partition, System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(waitMs)) == null;
            if (isNew && isInUse) {
                LOG.info("task {} cannot be followed yet: {}", plan.name(partition), error.getMessage());
            } else if (isNew) {
                LOG.warn("task {} cannot be followed, and is tried again", plan.name(partition), error);
            }
        }
    }

    @SuppressWarnings("resource") // it is in `open`
    private void open(int partition, Topics now, Admin admin) {
        TaskDirectory directory = plan.isOnDisk() ? new TaskDirectory(plan.directory(partition)) : null;
        State state = state(directory, now);
        try {
            Standby made = new Standby(partition, now, state);
            made.begin(admin);
            synchronized (open) {
                open.put(partition, made);
            }
        } catch (RuntimeException error) {
            state.close();
            throw error;
        }
    }

    private State state(TaskDirectory directory, Topics now) {
        if (directory == null) {
            return new State(plan.stores(), null);
        }
        try {
            Map<String, Uuid> ids = new TreeMap<>();
            if (directory.isOf(plan, now)) {
                ids.putAll(directory.ids()); // those of what only the task itself reads stay
            }
            ids.putAll(now.ids());
            directory.claim(plan.application(), plan.stores(), new Topics(now.cluster(), ids, now.partitions()));
            return new State(plan.stores(), directory);
        } catch (RuntimeException error) {
            directory.close();
            throw error;
        }
    }

    private List<Standby> followed() {
        synchronized (open) {
            return open.values().stream()
                    .filter(each -> wanted.contains(each.partition))
                    .toList();
        }
    }

    private static void assign(Consumer<byte[], byte[]> from, List<Standby> followed) {
        Set<TopicPartition> all = new HashSet<>();
        followed.forEach(each -> all.addAll(each.stores.keySet()));
        if (!all.equals(from.assignment())) {
            from.assign(all);
        }
        for (Standby each : followed) {
            if (!each.isPlaced) {
                each.isPlaced = true;
                each.stores.forEach((changelog, store) ->
                        from.seek(changelog, Math.max(each.state.position(store), each.begins.get(changelog))));
            }
        }
    }

    /** What has lost records is read from its beginning. */
    private void anew(InvalidOffsetException error) {
        List<Standby> lost = new ArrayList<>();
        synchronized (open) {
            open.values().removeIf(each -> error.partitions().stream().anyMatch(each.stores::containsKey)
                    && lost.add(each));
        }
        lost.forEach(each -> {
            each.state.wipe(error.getMessage());
            each.close();
        });
    }

    private void closeAll() {
        List<Standby> all;
        synchronized (open) {
            all = List.copyOf(open.values());
            open.clear();
        }
        all.forEach(Standby::close);
    }

    /** Waits, but not for what has come since. */
    private synchronized void pause(long ms, int before) {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ms);
        try {
            while (!isClosed && news == before) {
                long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
                if (left <= 0) {
                    return;
                }
                wait(left);
            }
        } catch (InterruptedException closed) {
            throw new InterruptException(closed);
        }
    }

    /** One of them. What its thread does with its state, it does with its lock. */
    private final class Standby {
        final int partition;
        final Path path;
        final State state;
        final Map<TopicPartition, Integer> stores = new HashMap<>();
        final Map<TopicPartition, Long> begins = new HashMap<>();
        private final Map<TopicPartition, Long> ends = new HashMap<>();
        private final Topics topics;
        private final Restored restored;
        /** Since when it has not been wanted, by the nano time; 0 if it is. */
        private long unwanted;

        private boolean isTaken;
        /** Whether the consumer goes on from where the state is. */
        boolean isPlaced;

        volatile boolean hasCaughtUp;

        Standby(int partition, Topics topics, State state) {
            this.partition = partition;
            this.path = plan.directory(partition);
            this.topics = topics;
            this.state = state;
            this.restored = new Restored(plan, state);
            for (int i = 0; i < plan.stores().size(); i++) {
                TaskPlan.Store store = plan.stores().get(i);
                if (store.isRestored()) {
                    stores.put(new TopicPartition(store.changelog(), partition), i);
                }
            }
        }

        /** Sees to it that it can go on from where it is. */
        void begin(Admin admin) {
            begins.putAll(Topics.begins(stores.keySet(), admin));
            ends.putAll(Topics.ends(stores.keySet(), admin));
            restored.check(stores, begins, ends, topic -> Topics.deletionsKeptMs(topic, admin));
            note();
        }

        private void note() {
            hasCaughtUp |= stores.entrySet().stream()
                    .allMatch(each -> state.position(each.getValue()) >= ends.get(each.getKey()));
        }

        boolean isOver(boolean isWanted) {
            long now = System.nanoTime();
            unwanted = isWanted ? 0 : unwanted == 0 ? now : unwanted;
            isPlaced &= isWanted;
            return !isWanted && now - unwanted > TimeUnit.MILLISECONDS.toNanos(LINGER_MS);
        }

        void close() {
            state.close();
            HELD.remove(path);
        }

        synchronized void keep(
                ConsumerRecords<byte[], byte[]> found,
                Map<TopicPartition, Long> positions,
                Consumer<byte[], byte[]> from) {
            if (isTaken) {
                return;
            }
            stores.forEach((changelog, store) -> {
                boolean isAtEnd = from.currentLag(changelog).orElse(1) == 0;
                if (isAtEnd) {
                    state.isCurrent(store);
                }
                long position = positions.get(changelog);
                if (position != state.position(store)) {
                    restored.keep(store, found.records(changelog), position, true);
                }
            });
            if (!hasCaughtUp) {
                note();
            }
        }

        /** Whether the state is what a task with this plan has. */
        boolean fits(TaskPlan other, Topics now) {
            return plan.stores().equals(other.stores())
                    && topics.ids().entrySet().stream()
                            .allMatch(each -> each.getValue().equals(now.ids().get(each.getKey())));
        }
    }
}
