package io.millstream.kernel.task;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.spark.TaskContext;

/**
 * The tasks of a JVM: what stays open between two batches of a query, by the name of the run.
 *
 * <p>The driver ends a run here as well. If tasks run in other JVMs, these read until their batch is over.
 */
@SuppressWarnings("resource") // tasks are closed when their run ends
public final class Tasks {
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

    private volatile boolean isEnding;
    private volatile boolean isOver;
    private volatile int batch;
    private volatile int news;
    private Watch watch;
    /** Held while they are opened, which takes as long as they are read. */
    private final Object opensGlobals = new Object();

    private Globals globals;
    private final CountDownLatch settled = new CountDownLatch(1);

    private Tasks() {}

    static Tasks of(String run) {
        synchronized (OVER) {
            if (OVER.contains(run)) {
                throw new IllegalStateException("run " + run + " has ended");
            }
            return RUNS.computeIfAbsent(run, name -> new Tasks());
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

    /** All of them. */
    List<RunningTask> all() {
        synchronized (idle) {
            List<RunningTask> all = new ArrayList<>(idle.values());
            all.addAll(used.values());
            return all;
        }
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
        synchronized (tasks.opensGlobals) {
            if (tasks.globals != null) {
                tasks.globals.close();
            }
        }
    }

    /** What is being restored now. */
    public static List<Restore.Progress> restoring(String run) {
        Tasks tasks = RUNS.get(run);
        List<Restore.Progress> found = new ArrayList<>();
        if (tasks != null) {
            for (RunningTask task : tasks.opening) {
                Restore.Progress each = task.restoring();
                if (each != null) {
                    found.add(each);
                }
            }
        }
        return found;
    }

    boolean isEnding() {
        return isEnding;
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
        news = Math.max(news, ofBatch);
    }

    int batch() {
        return batch;
    }

    void begin() {
        batch++;
    }

    @SuppressWarnings("resource") // `leave` or `close` closes it
    RunningTask take(TaskPlan plan, int partition) {
        RunningTask task;
        synchronized (idle) {
            if (isOver) {
                throw new IllegalStateException("run " + plan.run() + " has ended");
            }
            task = idle.remove(partition);
        }
        if (task == null) {
            task = plan.isInMemory() ? new MemoryTask(plan) : new Task(plan, partition, watch(plan));
            task.globals = globals(plan);
            open(task);
        }
        long attempt = TaskContext.get().taskAttemptId();
        used.put(attempt, task);
        CURRENT.put(attempt, task);
        return task;
    }

    private Globals globals(TaskPlan plan) {
        synchronized (opensGlobals) {
            if (isOver) {
                throw new IllegalStateException("run " + plan.run() + " has ended");
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
                throw new IllegalStateException("run " + plan.run() + " has ended");
            }
            if (watch == null) {
                watch = new Watch(plan);
            }
            return watch;
        }
    }

    private void open(RunningTask task) {
        opening.add(task);
        try {
            task.open();
        } finally {
            opening.remove(task);
        }
    }

    /** A task of Spark has ended. */
    @SuppressWarnings("resource") // it goes on with the next batch
    void leave(RunningTask task, boolean isHealthy) {
        used.values().remove(task);
        CURRENT.values().remove(task);
        synchronized (idle) {
            if (isHealthy && !isOver) {
                idle.put(task.partition, task);
                return;
            }
        }
        task.close();
    }
}
