package io.millstream.kernel.python;

import io.millstream.kernel.Constants;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkFiles;
import org.apache.spark.TaskContext;
import org.apache.spark.util.TaskCompletionListener;

/**
 * A Python process that runs programs for tasks, one at a time. Requests go to its stdin, answers come from its
 * stdout, and what functions print goes to this process's stderr.
 *
 * A task has a worker to itself from its first record to its end, and then leaves it to the next task. So there are as
 * many workers as tasks ran at once. One that is taken by no task of Spark stays with its owner until that releases it.
 * A worker in which a function has raised an exception is not used again. A worker ends when its pipe does, so it does
 * not outlive this process.
 */
final class Worker {
    private static final long IDLE_MS = 600_000;
    /** A worker with an owner is kept longer, because it has kept something for it. */
    private static final long OWNED_IDLE_MS = 6 * IDLE_MS;

    private static final long CLOSE_MS = 10_000;
    private static final long LOOK_MS = 100;
    /** How long its start may take, and what a program imports; that is not part of a record. */
    private static final long START_MS = 120_000;

    private static final Map<List<Object>, Deque<Worker>> IDLE = new HashMap<>();
    private static final List<Worker> ALL = new ArrayList<>();

    private final List<Object> kind;
    private final Process process;
    private final DataOutputStream out;
    private final DataInputStream in;
    private String owner;
    private Bookmark bookmark;
    /** Of Spark, which has it until it ends; null if it is free, or stays with its owner. */
    private volatile TaskContext task;

    private volatile boolean isFree;
    private volatile long patienceMs;
    private volatile long until;
    private volatile String ended;

    private Worker(List<Object> kind, Program program, String path) throws IOException {
        this.kind = kind;
        ProcessBuilder builder = new ProcessBuilder(program.command());
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().putAll(program.environment());
        builder.environment().put("PYTHONPATH", path);
        process = builder.start();
        out = new DataOutputStream(process.getOutputStream());
        in = new DataInputStream(new BufferedInputStream(process.getInputStream(), 1 << 16));
    }

    /** A worker for the running task, with this program loaded. */
    static Worker take(Program program) throws IOException {
        return take(program, null, TaskContext.get());
    }

    /**
     * The same, but with a name: its owner gets the worker that it had, as long as that lives, and nobody else does.
     *
     * @param name null for any worker without an owner
     * @param task the task of Spark that has it until it ends; null: it stays with its owner
     */
    static Worker take(Program program, String name, TaskContext task) throws IOException {
        String path = path(program);
        List<Object> kind = List.of(program.command(), program.environment(), path);
        Worker worker;
        synchronized (ALL) {
            worker = idle(IDLE.getOrDefault(kind, new ArrayDeque<>()), name);
            if (worker == null) {
                worker = new Worker(kind, program, path);
                ALL.add(worker);
                if (ALL.size() == 1) {
                    Thread watch = new Thread(Worker::watch, "millstream-python-watch");
                    watch.setDaemon(true);
                    watch.start();
                }
            }
            worker.owner = name;
            worker.until = Long.MAX_VALUE;
            worker.task = task;
            worker.isFree = false;
            worker.patienceMs = Math.max(START_MS, program.patienceMs());
        }
        Worker taken = worker;
        if (task != null) {
            task.addTaskCompletionListener((TaskCompletionListener) context -> taken.leave());
        }
        byte[][] shipped = {program.version().getBytes(StandardCharsets.UTF_8), program.pickled()};
        worker.call(new Message(Constants.MESSAGE_PROGRAM).add(shipped));
        worker.patienceMs = program.patienceMs();
        return worker;
    }

    /** Whether this task of Spark has it, or, for null, its owner: a worker leaves a task of Spark that ends. */
    boolean isTakenBy(TaskContext given) {
        return !isFree && task == given;
    }

    /** The worker that the name had, or else the last one without an owner. */
    private static Worker idle(Deque<Worker> idle, String name) {
        idle.removeIf(worker -> worker.ended != null || !worker.process.isAlive());
        Worker found = null;
        for (Worker worker : idle) {
            if (worker.owner == null ? found == null || found.owner == null : worker.owner.equals(name)) {
                found = worker;
            }
        }
        idle.remove(found);
        return found;
    }

    /** Owners whose names begin like this do not come back: their workers are notified, and become free. */
    static void release(String prefix) {
        List<Worker> released = new ArrayList<>();
        synchronized (ALL) {
            for (Worker worker : ALL) {
                if (worker.owner != null && worker.owner.startsWith(prefix)) {
                    worker.owner = null;
                    Deque<Worker> idle = IDLE.getOrDefault(worker.kind, new ArrayDeque<>());
                    if (worker.task == null && (idle.remove(worker) || !worker.isFree)) {
                        worker.patienceMs = CLOSE_MS;
                        released.add(worker);
                    }
                }
            }
        }
        for (Worker worker : released) {
            try {
                worker.call(new Message(Constants.MESSAGE_CLOSE));
                worker.leave();
            } catch (IOException | WorkerLostException | PythonException gone) {
                worker.end(gone.toString());
            }
        }
    }

    /** What the program returns for these frames. */
    Message call(Message request) throws IOException {
        return call(request, question -> {
            throw new IllegalStateException("this program must not ask questions: there are no replies");
        });
    }

    /** Where it records which record it is processing. */
    Bookmark bookmark() throws IOException {
        if (bookmark == null) {
            bookmark = new Bookmark();
        }
        return bookmark;
    }

    /** Replies to what a program asks before it answers. */
    interface Replies {
        Message to(Message question) throws IOException;
    }

    /** What the program returns for these frames. */
    Message call(Message request, Replies replies) throws IOException {
        Message answer;
        try {
            until = System.currentTimeMillis() + patienceMs;
            request.write(out);
            answer = Message.read(in);
            while (answer.kind() == Constants.MESSAGE_ALIVE || answer.kind() == Constants.MESSAGE_QUESTION) {
                if (answer.kind() == Constants.MESSAGE_QUESTION) {
                    replies.to(answer).write(out);
                } else {
                    until = System.currentTimeMillis() + patienceMs;
                }
                answer = Message.read(in);
            }
        } catch (IOException error) {
            throw gone(error);
        }
        until = Long.MAX_VALUE;
        if (answer.kind() == Constants.MESSAGE_ANSWER) {
            return answer;
        }
        end("a function raised an exception"); // it may have left anything behind
        throw new PythonException(new String(answer.bytes(0, 1)[0], StandardCharsets.UTF_8));
    }

    private RuntimeException gone(IOException error) {
        boolean hasEnded = false;
        try {
            hasEnded = process.waitFor(1, TimeUnit.SECONDS);
        } catch (InterruptedException interrupted) {
            error.addSuppressed(interrupted);
            Thread.currentThread().interrupt();
        }
        process.destroyForcibly();
        String why = ended != null ? ended : hasEnded ? "exit status " + process.exitValue() : "it is still running";
        return new WorkerLostException("Python worker exited unexpectedly: " + why, error);
    }

    /** The task has ended, so the worker is free, unless it is in the middle of something. */
    private void leave() {
        synchronized (ALL) {
            task = null;
            isFree = true;
            if (until == Long.MAX_VALUE && ended == null && process.isAlive()) {
                until = System.currentTimeMillis() + (owner == null ? IDLE_MS : OWNED_IDLE_MS);
                IDLE.computeIfAbsent(kind, key -> new ArrayDeque<>()).addLast(this);
            } else {
                process.destroyForcibly();
            }
        }
    }

    /** Ends workers that take too long, whose task was cancelled, or that were idle for too long. */
    private static void watch() {
        boolean all = true;
        while (all) {
            try {
                Thread.sleep(LOOK_MS);
                all = look();
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException("this thread must not be interrupted", interrupted);
            }
        }
    }

    private static boolean look() {
        synchronized (ALL) {
            long now = System.currentTimeMillis();
            for (Iterator<Worker> all = ALL.iterator(); all.hasNext();) {
                Worker worker = all.next();
                TaskContext task = worker.task;
                if (!worker.process.isAlive()) {
                    all.remove();
                    IDLE.getOrDefault(worker.kind, new ArrayDeque<>()).remove(worker);
                } else if (task != null && task.isInterrupted()) {
                    worker.end("its task was cancelled");
                } else if (now > worker.until) {
                    worker.end("a function did not return within " + worker.patienceMs
                            + " ms (max.poll.interval.ms), so it was ended");
                }
            }
            return !ALL.isEmpty();
        }
    }

    private void end(String why) {
        if (ended == null) {
            ended = why;
            process.destroyForcibly();
        }
    }

    /** As for Spark's own workers: Spark's Python libraries, the application's files, and the existing path. */
    private static String path(Program program) {
        List<String> path = new ArrayList<>();
        String home = System.getenv("SPARK_HOME");
        File[] archives = home == null ? null : new File(home, "python/lib").listFiles();
        for (File archive : archives == null ? new File[0] : archives) {
            if (archive.getName().endsWith(".zip")) {
                path.add(archive.getPath());
            }
        }
        if (!program.files().isEmpty()) {
            path.add(SparkFiles.getRootDirectory());
            for (String name : program.files()) {
                path.add(SparkFiles.get(name));
            }
        }
        String given = program.environment().getOrDefault("PYTHONPATH", System.getenv("PYTHONPATH"));
        if (given != null && !given.isEmpty()) {
            path.add(given);
        }
        return String.join(File.pathSeparator, path);
    }
}
