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
public final class Tasks {
    private static final Map<String, Tasks> RUNS = new ConcurrentHashMap<>();
    /** Names of runs that are over: a late task must not begin one anew. */
    private static final Deque<String> OVER = new ArrayDeque<>();

    private static final int MOST_OVER = 1_000;

    /** The open tasks that are not in use, by the number of the partition. */
    private final Map<Integer, Task> idle = new HashMap<>();
    /** Those in use, by the number of Spark's task. */
    private final Map<Integer, Task> used = new ConcurrentHashMap<>();
    private final Set<Task> opening = ConcurrentHashMap.newKeySet();

    private volatile boolean isEnding;
    private volatile boolean isOver;
    private volatile int batch;
    private Watch watch;
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

    /** The task whose rows the calling thread has: Spark's tasks are numbered as the source has planned them. */
    static Task current(String run) {
        Task task = of(run).used.get(TaskContext.getPartitionId());
        if (task == null) {
            throw new IllegalStateException("no task of run " + run + " is here; its rows come from another source");
        }
        return task;
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
        List<Task> left;
        synchronized (tasks.idle) {
            tasks.isOver = true;
            left = List.copyOf(tasks.idle.values());
            tasks.idle.clear();
            if (tasks.watch != null) {
                tasks.watch.close();
            }
        }
        left.forEach(Task::startToClose);
        left.forEach(Task::close);
    }

    /** What is being restored now. */
    public static List<Restore.Progress> restoring(String run) {
        Tasks tasks = RUNS.get(run);
        List<Restore.Progress> found = new ArrayList<>();
        if (tasks != null) {
            for (Task task : tasks.opening) {
                Restore.Progress each = task.restoring();
                if (each != null) {
                    found.add(each);
                }
            }
        }
        return found;
    }

    /** How many records were read, and how often was committed. */
    public static String counts(String run) {
        Tasks tasks = RUNS.get(run);
        long records = 0;
        long commits = 0;
        if (tasks != null) {
            for (Task task : tasks.used.values()) {
                records += task.records();
                commits += task.commits();
            }
        }
        return records + " " + commits;
    }

    boolean isEnding() {
        return isEnding;
    }

    /** All tasks have ended: called on the driver, before the next batch. */
    void settle() {
        settled.countDown();
    }

    int batch() {
        return batch;
    }

    void begin() {
        batch++;
    }

    @SuppressWarnings("resource") // `leave` or `close` closes it
    Task take(TaskPlan plan, int partition, int number) {
        Task task;
        Watch watching;
        synchronized (idle) {
            if (isOver) {
                throw new IllegalStateException("run " + plan.run() + " has ended");
            }
            if (watch == null) {
                watch = new Watch(plan);
            }
            watching = watch;
            task = idle.remove(partition);
        }
        if (task == null) {
            task = new Task(plan, partition, watching);
            open(task);
        }
        used.put(number, task);
        return task;
    }

    private void open(Task task) {
        opening.add(task);
        try {
            task.open();
        } finally {
            opening.remove(task);
        }
    }

    /** A task of Spark has ended. */
    @SuppressWarnings("resource") // it goes on with the next batch
    void leave(Task task, int number, boolean isHealthy) {
        used.remove(number, task);
        synchronized (idle) {
            if (isHealthy && !isOver) {
                idle.put(task.partition, task);
                return;
            }
        }
        task.close();
    }
}
