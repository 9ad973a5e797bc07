package io.millstream.kernel.task;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.TaskContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The tasks of a run in one JVM: what stays open between two batches of a query. In the driver's also what it wants
 * of them, here and in executors, which tell it what they have done.
 */
@SuppressWarnings("resource") // tasks are closed when their run ends
public final class Tasks {
    private static final Logger LOG = LoggerFactory.getLogger(Tasks.class);
    private static final Map<String, Tasks> RUNS = new ConcurrentHashMap<>();
    /** Names of runs that are over: a late task must not begin one anew. */
    private static final Deque<String> OVER = new ArrayDeque<>();

    private static final int MOST_OVER = 1_000;
    /** Those in use of all runs. */
    private static final Map<Long, RunningTask> CURRENT = new ConcurrentHashMap<>();

    /** The open tasks that are not in use, by the number of the partition. */
    private final Map<Integer, RunningTask> idle = new HashMap<>();
    /** Those in use, by the number of Spark's attempt. */
    private final Map<Long, RunningTask> used = new ConcurrentHashMap<>();
    private final Set<RunningTask> opening = ConcurrentHashMap.newKeySet();
    private final String run;
    /** Those in executors, if this is the driver. */
    final Remote remote = new Remote();
    /** Tells the driver; null if this is it. */
    private final Reporting reporting;
    /** The driver's questions that were asked here, and those that are answered. */
    private final Set<Long> asked = ConcurrentHashMap.newKeySet();

    private final Set<Long> answered = ConcurrentHashMap.newKeySet();

    /** The partitions of this run; written with the lock of `idle`. */
    private volatile Lot lot = Lot.NONE;

    /** Those of them that a reader of the running batch has, and how many further readers it has; likewise. */
    private final Set<Integer> bound = new TreeSet<>();

    private int free;
    /** How many of these wait; likewise. */
    private int waiting;
    /** How many readers wait for partitions that come, in batches that last; the driver's. */
    volatile int spares;

    /** Those that are being closed, as they are not in it any more. */
    private final Set<RunningTask> closing = ConcurrentHashMap.newKeySet();

    private volatile boolean isEnding;
    private volatile boolean isOver;
    private volatile int batch;
    private volatile int news;
    private volatile int hurries;
    /** How many records those have read that are closed. */
    private volatile long read;
    private Watch watch;
    /** Held while they are opened, which takes as long as they are read. */
    private final Object opensGlobals = new Object();

    private Globals globals;
    private final CountDownLatch settled = new CountDownLatch(1);

    private Tasks(String run) {
        this.run = run;
        Figures.begin(run);
        reporting = Endpoint.isExecutor() ? new Reporting(run, this) : null;
    }

    static Tasks of(String run) {
        synchronized (OVER) {
            if (OVER.contains(run)) {
                throw new IllegalStateException("run " + run + " has ended");
            }
            return RUNS.computeIfAbsent(run, Tasks::new);
        }
    }

    /** The task whose rows the calling thread has. */
    static RunningTask current() {
        RunningTask task = CURRENT.get(TaskContext.get().taskAttemptId());
        if (task == null) {
            throw new IllegalStateException("no task is here; these rows come from another source");
        }
        return task;
    }

    /** Those of a run that has begun here; null if it is over. */
    static Tasks here(String run) {
        return RUNS.get(run);
    }

    /** All that are open here. */
    private List<RunningTask> all() {
        synchronized (idle) {
            List<RunningTask> all = new ArrayList<>(idle.values());
            all.addAll(used.values());
            return all;
        }
    }

    /** The partitions whose tasks are open, with their state restored. */
    Set<Integer> open() {
        Set<Integer> all = new TreeSet<>(remote.open());
        all().forEach(task -> all.add(task.partition));
        return all;
    }

    /** The next offset of each partition that is read, by topic-partition. */
    Map<String, Long> positions() {
        return offsets(RunningTask::positions, remote.positions());
    }

    /** Where these partitions end, as far as that is known. */
    Map<String, Long> ends() {
        return offsets(RunningTask::ends, remote.ends());
    }

    private Map<String, Long> offsets(
            Function<RunningTask, Map<TopicPartition, Long>> here, Map<String, Long> elsewhere) {
        Map<String, Long> all = new TreeMap<>(elsewhere);
        all().forEach(task -> here.apply(task).forEach((at, offset) -> all.put(at.toString(), offset)));
        return all;
    }

    /** How many records were read in this run. */
    long records() {
        return read + remote.records() + all().stream().mapToLong(RunningTask::records).sum();
    }

    /** Those of the run, with what was read up to now. */
    Figures figures() {
        Figures figures = Figures.of(run);
        all().forEach(task -> figures.reached(task.positions()));
        return figures;
    }

    /** Have everything that was read committed soon. */
    void hurry() {
        hurries++;
        all().forEach(RunningTask::hurry);
        remote.send(wishes());
    }

    /**
     * Have everything that was read committed, and nothing more read. The query then waits to be stopped.
     *
     * @return whether that was done within the time
     */
    public static boolean end(String run, long patienceMs) throws InterruptedException {
        Tasks tasks = RUNS.get(run);
        if (tasks == null) {
            return false;
        }
        tasks.isEnding = true;
        tasks.told();
        tasks.remote.send(tasks.wishes());
        return tasks.settled.await(patienceMs, TimeUnit.MILLISECONDS);
    }

    /** Release everything of a run that has ended. */
    public static void close(String run) {
        Tasks tasks;
        synchronized (OVER) {
            OVER.add(run);
            if (OVER.size() > MOST_OVER) {
                OVER.remove();
            }
            tasks = RUNS.remove(run);
        }
        if (tasks == null) {
            return;
        }
        tasks.remote.send(Wishes.over(run));
        List<RunningTask> left;
        synchronized (tasks.idle) {
            tasks.isOver = true;
            left = List.copyOf(tasks.idle.values());
            tasks.idle.clear();
            if (tasks.watch != null) {
                tasks.watch.close();
            }
        }
        left.forEach(RunningTask::startToClose);
        left.forEach(RunningTask::close);
        tasks.told();
        synchronized (tasks.opensGlobals) {
            if (tasks.globals != null) {
                tasks.globals.close();
            }
        }
        if (tasks.reporting != null) {
            Figures.end(run);
        }
    }

    /** How many records are left to restore of the tasks that are being opened here, as far as that is known. */
    long left() {
        return opening.stream()
                .map(RunningTask::restoring)
                .filter(Objects::nonNull)
                .mapToLong(each -> each.end() - each.position())
                .sum();
    }

    boolean isEnding() {
        return isEnding;
    }

    /** Whether a partition is not to be read any more, or not in this batch. */
    boolean isEnding(int partition, int ofBatch) {
        Lot now = lot;
        return isEnding || ofBatch <= now.ended() || !now.has(partition);
    }

    Lot lot() {
        return lot;
    }

    /** Another one may be known already. */
    void know(Lot other) {
        synchronized (idle) {
            lot = lot.later(other);
        }
    }

    /**
     * The partitions of this run from now on.
     *
     * @return whether no other one is open any more, here or in an executor
     */
    boolean assign(Collection<Integer> partitions, long patienceMs) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        synchronized (idle) {
            bound.retainAll(partitions);
            long more = partitions.stream().filter(each -> !bound.contains(each)).count();
            lot = lot.next(partitions, more > free ? batch : 0);
            idle.notifyAll();
        }
        release();
        remote.send(wishes());
        synchronized (idle) {
            while (holdsOthers()) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0 || isOver) {
                    return !holdsOthers();
                }
                idle.wait(left);
            }
        }
        return true;
    }

    private boolean holdsOthers() {
        return Stream.of(idle.values(), used.values(), opening, closing)
                        .flatMap(Collection::stream)
                        .anyMatch(task -> !lot.has(task.partition))
                || remote.epochs().keySet().stream().anyMatch(partition -> !lot.has(partition));
    }

    /** Close the tasks that are not in use and another client's. */
    private void release() {
        List<RunningTask> left = new ArrayList<>();
        synchronized (idle) {
            idle.values().removeIf(task -> !lot.has(task.partition) && left.add(task));
            closing.addAll(left);
        }
        left.forEach(RunningTask::startToClose);
        left.forEach(this::close);
    }

    private void told() {
        synchronized (idle) {
            idle.notifyAll();
        }
    }

    /** All tasks have ended: called on the driver, before the next batch. */
    void settle() {
        settled.countDown();
    }

    /** Whether a task has had a record in this batch, or in a later one. */
    boolean hasNews(int ofBatch) {
        return news >= ofBatch;
    }

    void news(int ofBatch) {
        if (ofBatch > news) {
            news = ofBatch;
            if (reporting != null) {
                reporting.soon();
            }
        }
    }

    int batch() {
        return batch;
    }

    /** A batch begins: which partitions it has. */
    Lot begin(TaskPlan plan) {
        synchronized (idle) {
            batch++;
            bound.clear();
            bound.addAll(lot.partitions());
            free = Math.min(spares, plan.count());
            return lot;
        }
    }

    /** How many readers of the running batch have no partition yet. */
    int free() {
        synchronized (idle) {
            return free;
        }
    }

    /**
     * A partition that has come since the batch began, for one of its spare readers, which waits for it; SPARE if there
     * is none, because the batch ends or the time is up.
     */
    int claim(int ofBatch, long patienceMs) {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        synchronized (idle) {
            waiting++;
            idle.notifyAll();
            while (!isOver && !isEnding && ofBatch > lot.ended()) {
                for (int each : lot.partitions()) {
                    if (!bound.contains(each) && !isHeld(each)) {
                        bound.add(each);
                        free--;
                        return each;
                    }
                }
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    break;
                }
                try {
                    idle.wait(left);
                } catch (@SuppressWarnings("unused") InterruptedException stopped) {
                    Thread.currentThread().interrupt();
                    return TaskReader.SPARE;
                }
            }
            return TaskReader.SPARE;
        }
    }

    /** Waits until a reader waits for a partition to come: before, Spark plans its batch. Whether one does. */
    boolean awaitReader(long patienceMs) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        synchronized (idle) {
            while (waiting == 0 && !isOver) {
                long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
                if (left <= 0) {
                    return false;
                }
                idle.wait(left);
            }
            return waiting > 0;
        }
    }

    /** Whether another reader has not given it up yet. */
    private boolean isHeld(int partition) {
        return Stream.of(used.values(), opening, closing)
                .flatMap(Collection::stream)
                .anyMatch(task -> task.partition == partition);
    }

    /** Waits while there is nothing to read, and no reader could wait for it. */
    void awaitWork() throws InterruptedException {
        synchronized (idle) {
            while (!isOver && !isEnding && lot.partitions().isEmpty() && spares == 0) {
                idle.wait();
            }
        }
    }

    /**
     * A task that is open here, or is opened; null if it is not of this run any more.
     *
     * @param epoch that of its owner, as far as the driver knows
     */
    @SuppressWarnings("resource") // `leave` or `close` closes it
    RunningTask take(TaskPlan plan, int partition, long epoch) {
        long attempt = TaskContext.get().taskAttemptId();
        RunningTask task;
        RunningTask fresh;
        synchronized (idle) {
            if (isOver) {
                throw ended();
            }
            if (!lot.has(partition)) {
                return null;
            }
            task = idle.remove(partition);
            if (task != null && task.epoch >= epoch) {
                use(attempt, task);
                return task;
            }
            fresh = plan.isInMemory() ? new MemoryTask(plan) : new Task(plan, partition, watch(plan));
            fresh.epoch = attempt;
            opening.add(fresh);
        }
        try {
            if (task != null) {
                close(task); // it has moved
            }
            open(fresh);
            use(attempt, fresh);
        } finally {
            opening.remove(fresh);
            told();
        }
        return fresh;
    }

    private void use(long attempt, RunningTask task) {
        used.put(attempt, task);
        CURRENT.put(attempt, task);
    }

    private IllegalStateException ended() {
        return new IllegalStateException("run " + run + " has ended");
    }

    private Globals globals(TaskPlan plan) {
        synchronized (opensGlobals) {
            if (isOver) {
                throw ended();
            }
            if (globals == null) {
                globals = new Globals(plan);
            }
            return globals;
        }
    }

    private Watch watch(TaskPlan plan) {
        synchronized (idle) {
            if (isOver) {
                throw ended();
            }
            if (watch == null) {
                watch = new Watch(plan);
            }
            return watch;
        }
    }

    /** Opens what the tasks to come need, on a thread of its own: the first one would take half a second longer. */
    void beReady(TaskPlan plan) {
        Runnable all = () -> {
            try {
                watch(plan).topics();
                globals(plan);
                Task.rehearse(plan);
            } catch (RuntimeException error) { // the first task meets the same
                LOG.debug("what tasks of {} need is not ready", plan.application(), error);
            }
        };
        Thread thread = new Thread(all, "millstream-ready-" + plan.application() + "-" + plan.subtopology());
        thread.setDaemon(true);
        thread.start();
    }

    private void open(RunningTask task) {
        if (reporting != null) {
            reporting.now(); // before the former owner is fenced
        }
        task.globals = globals(task.plan);
        task.open();
    }

    /** A task of Spark has ended. */
    @SuppressWarnings("resource") // it goes on with the next batch
    void leave(RunningTask task, boolean isHealthy) {
        CURRENT.values().remove(task);
        boolean isKept;
        synchronized (idle) {
            used.values().remove(task);
            isKept = isHealthy && !isOver && lot.has(task.partition);
            if (isKept) {
                idle.put(task.partition, task);
            } else {
                closing.add(task);
            }
        }
        if (!isKept) {
            close(task);
        }
        if (reporting != null) {
            reporting.tell();
        }
    }

    private void close(RunningTask task) {
        noteClosed(task);
        try {
            task.close();
        } finally {
            closing.remove(task);
            if (!lot.has(task.partition)) {
                Figures.of(run).forget(task.partition);
            }
            told();
            if (reporting != null) {
                reporting.soon();
            }
        }
    }

    private void noteClosed(RunningTask task) {
        synchronized (idle) {
            read += task.records();
        }
    }

    // --- in an executor ----------------------------------------------------------------------------------

    /** What is new in its figures, which count it no more. */
    Figures newFigures() {
        return figures().handOver();
    }

    /** What the tasks here have done. */
    Report report(long number, Figures figures) {
        HashMap<Integer, Long> epochs = new HashMap<>();
        List<RunningTask> every = all();
        every.addAll(opening);
        every.addAll(closing);
        every.forEach(task -> epochs.merge(task.partition, task.epoch, Math::max));
        return new Report(
                run,
                number,
                Endpoint.location(),
                epochs,
                new HashSet<>(open()),
                new HashMap<>(positions()),
                new HashMap<>(ends()),
                records(),
                news,
                new HashSet<>(answered),
                figures);
    }

    /** What the driver wants. */
    void hear(Wishes wishes) {
        know(wishes.lot());
        release();
        isEnding |= wishes.isEnding();
        news = Math.max(news, wishes.news());
        if (wishes.hurries() > hurries) {
            hurries = wishes.hurries();
            all().forEach(RunningTask::hurry);
        }
        synchronized (idle) {
            isOver |= wishes.isOver();
            idle.values().removeIf(task -> {
                boolean hasMoved = task.epoch < wishes.epochs().getOrDefault(task.partition, 0L);
                if (hasMoved) {
                    noteClosed(task);
                    task.startToClose();
                }
                return hasMoved;
            });
        }
        answer(wishes.questions());
        if (wishes.isOver()) {
            reporting.end();
        }
    }

    private void answer(Map<Long, String> questions) {
        asked.retainAll(questions.keySet());
        answered.retainAll(questions.keySet());
        questions.forEach((number, topic) -> {
            if (asked.add(number)) {
                GlobalTable.upToDate(topic).thenRun(() -> {
                    answered.add(number);
                    reporting.soon();
                });
            }
        });
    }

    // --- on the driver -----------------------------------------------------------------------------------

    private Wishes wishes() {
        return new Wishes(run, false, lot, isEnding, hurries, news, remote.epochs(), remote.questions());
    }

    /** An executor has said something; what is wanted of it. */
    static Wishes told(String from, Consumer<Wishes> wanted, Report report) {
        Tasks tasks = RUNS.get(report.run());
        return tasks == null ? Wishes.over(report.run()) : tasks.told(report, from, wanted);
    }

    private Wishes told(Report report, String from, Consumer<Wishes> wanted) {
        Wishes before = wishes();
        if (remote.take(from, wanted, report)) {
            Figures.of(run).add(report.figures());
        }
        told();
        news = Math.max(news, report.news());
        Wishes now = wishes();
        if (!now.equals(before)) {
            remote.send(now);
        }
        return now;
    }

    /** An executor is gone. */
    static void lost(String address) {
        RUNS.values().forEach(tasks -> {
            tasks.remote.lost(address);
            tasks.told();
        });
    }

    /** Has executors read global tables of a topic up to their ends; done when they have. */
    CompletableFuture<Void> ask(String topic, long patienceMs) {
        CompletableFuture<Void> done = remote.ask(topic, patienceMs);
        remote.send(wishes());
        return done;
    }
}
