package io.millstream.kernel.task;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
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
public final class Tasks {
    private static final Map<String, Tasks> RUNS = new ConcurrentHashMap<>();

    /** The open tasks, by the number of the partition. A null value: it is in use, or was given up. */
    private final Map<Integer, Task> idle = new HashMap<>();
    /** Those in use, by the number of Spark's attempt. */
    private final Map<Long, Task> used = new ConcurrentHashMap<>();

    private volatile boolean isEnding;
    private volatile boolean isOver;
    private volatile int batch;
    private volatile int news;
    private final CountDownLatch settled = new CountDownLatch(1);

    private Tasks() {}

    static Tasks of(String run) {
        return RUNS.computeIfAbsent(run, name -> new Tasks());
    }

    /** Those of all runs. */
    private static final Map<Long, Task> CURRENT = new ConcurrentHashMap<>();

    /** The task whose rows the calling thread has. */
    static Task current() {
        Task task = CURRENT.get(TaskContext.get().taskAttemptId());
        if (task == null) {
            throw new IllegalStateException("no task is here; these rows come from another source");
        }
        return task;
    }

    /** A run begins: an earlier one of the same name is over. */
    static Tasks begin(String run) {
        close(run);
        return of(run);
    }

    /** Those of a run that has begun here. */
    static Tasks here(String run) {
        return RUNS.get(run);
    }

    /** The open tasks. */
    List<Task> open() {
        synchronized (idle) {
            List<Task> all = new ArrayList<>(idle.values());
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

    Task take(TaskPlan plan, int partition) {
        Task task;
        synchronized (idle) {
            if (isOver) {
                throw new IllegalStateException("run " + plan.run() + " has ended");
            }
            task = idle.remove(partition);
        }
        if (task == null) {
            task = plan.isInMemory() ? new MemoryTask(plan) : new Task(plan, partition);
        }
        long attempt = TaskContext.get().taskAttemptId();
        used.put(attempt, task);
        CURRENT.put(attempt, task);
        return task;
    }

    /** A task of Spark has ended. */
    void leave(Task task, boolean isHealthy) {
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
