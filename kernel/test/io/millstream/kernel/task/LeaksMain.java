package io.millstream.kernel.task;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/**
 * Opens and closes a task many times, in four ways in turn: after a commit, in the middle of a transaction, interrupted
 * while it polls, interrupted while it opens. Arguments: a file with the plan, an output topic, how many times. It
 * prints how many threads and open files there are more at the end than after the first rounds.
 */
public final class LeaksMain {
    private static final int WARM = 12;

    private LeaksMain() {}

    public static void main(String[] arguments) throws Exception {
        TaskPlan plan = TaskPlan.of(Files.readString(Path.of(arguments[0])));
        int times = Integer.parseInt(arguments[2]);
        try (Watch watch = new Watch(plan)) {
            long threads = 0;
            long files = 0;
            for (int i = 0; i < times; i++) {
                cycle(plan, watch, arguments[1], i);
                if (i == WARM) {
                    threads = threads();
                    files = files();
                }
            }
            System.out.println("threads " + settled(threads, true) + " files " + settled(files, false));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void cycle(TaskPlan plan, Watch watch, String output, int way) throws InterruptedException {
        Thread thread = new Thread(() -> {
            try (Task task = new Task(plan, 0, watch)) {
                if (way % 4 == 3) {
                    Thread.currentThread().interrupt();
                }
                task.open();
                task.state.put(0, bytes("key" + way), bytes("value"));
                TaskMain.send(task, output, bytes("key"), bytes("value"));
                if (way % 4 == 0) {
                    task.poll(0, true);
                    task.commit();
                }
                if (way % 4 == 2) {
                    Thread.currentThread().interrupt();
                    task.poll(10_000, false);
                }
            } catch (RuntimeException error) {
                if (way % 4 < 2) {
                    throw error;
                }
            }
        });
        thread.start();
        thread.join(20_000);
        if (thread.isAlive()) {
            throw new IllegalStateException("cycle " + way + " does not end");
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static long threads() {
        return Thread.getAllStackTraces().size();
    }

    private static long files() {
        try (Stream<Path> all = Files.list(Path.of("/proc/self/fd"))) {
            return all.count();
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    /** How many more there are, once what ends by itself has ended. */
    private static long settled(long before, boolean isOfThreads) throws InterruptedException {
        long more = Long.MAX_VALUE;
        for (int i = 0; i < 100 && more > 0; i++) {
            more = (isOfThreads ? threads() : files()) - before;
            Thread.sleep(100);
        }
        return more;
    }
}
