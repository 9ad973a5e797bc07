package io.millstream.kernel.task;

import java.util.HashMap;
import java.util.Map;
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

    /** The open tasks, by the number of the partition. A null value: it is in use, or was given up. */
    private final Map<Integer, Task> idle = new HashMap<>();
    /** Those in use, by the number of Spark's task. */
    private final Map<Integer, Task> used = new ConcurrentHashMap<>();

    private volatile boolean isEnding;
    private volatile boolean isOver;
    private volatile int batch;
    private final CountDownLatch settled = new CountDownLatch(1);

    private Tasks() {}

    static Tasks of(String run) {
        return RUNS.computeIfAbsent(run, name -> new Tasks());
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
        Tasks tasks = RUNS.remove(run);
        if (tasks == null) {
            return;
        }
        synchronized (tasks.idle) {
            tasks.isOver = true;
            tasks.idle.values().forEach(Task::close);
            tasks.idle.clear();
        }
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

    Task take(TaskPlan plan, int partition, int number) {
        Task task;
        synchronized (idle) {
            if (isOver) {
                throw new IllegalStateException("run " + plan.run() + " has ended");
            }
            task = idle.remove(partition);
        }
        if (task == null) {
            task = new Task(plan, partition);
        }
        used.put(number, task);
        return task;
    }

    /** A task of Spark has ended. */
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
