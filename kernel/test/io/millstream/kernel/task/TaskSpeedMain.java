package io.millstream.kernel.task;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Measures a task. Arguments: a file with the plan, whose source is empty or has records, and what: `commits` prints
 * the ms per commit with 1, 100 and 10,000 changes, in all and for the state's write; `polls` the ns per record that is
 * polled; `restore` the records per second.
 */
public final class TaskSpeedMain {
    private TaskSpeedMain() {}

    public static void main(String[] arguments) throws Exception {
        TaskPlan plan = TaskPlan.of(Files.readString(Path.of(arguments[0])));
        try (Watch watch = new Watch(plan);
                Task task = new Task(plan, 0, watch)) {
            long begin = System.nanoTime();
            task.open();
            double seconds = (System.nanoTime() - begin) / 1e9;
            switch (arguments[1]) {
                case "commits" -> {
                    for (int changes : new int[] {1, 100, 10_000, 1, 100, 10_000}) {
                        commits(task, changes);
                    }
                }
                case "polls" -> polls(task);
                default -> System.out.printf("opened in %.3f s, position %d%n", seconds, task.state.position(0));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private static void commits(Task task, int changes) {
        int times = Math.max(10, Math.min(200, 100_000 / changes));
        long total = 0;
        long writing = 0;
        for (int i = 0; i < times; i++) {
            put(task, i, changes);
            task.touch();
            task.poll(0, true);
            long begin = System.nanoTime();
            task.commit();
            total += System.nanoTime() - begin;
            put(task, i, changes);
            begin = System.nanoTime();
            task.state.committed(new long[task.plan.stores().size()]);
            writing += System.nanoTime() - begin;
        }
        System.out.printf("%6d changes: %.3f ms, of which the state %.3f ms%n",
                changes, total / 1e6 / times, writing / 1e6 / times);
    }

    private static void put(Task task, int round, int changes) {
        for (int i = 0; i < changes; i++) {
            byte[] key = ("key-" + (i * 7919 + round) % 100_000).getBytes(StandardCharsets.US_ASCII);
            task.state.put(0, key, new byte[32]);
        }
    }

    private static void polls(Task task) {
        for (int i = 0; i < 5; i++) {
            long begin = System.nanoTime();
            int count = 0;
            long waiting = 0;
            while (count < 200_000) {
                if (task.poll(1000, false) == null) {
                    waiting++;
                    if (waiting > 5) {
                        break;
                    }
                } else {
                    count++;
                }
            }
            double took = System.nanoTime() - begin;
            System.out.printf("%d records: %.0f ns each%n", count, took / Math.max(1, count));
        }
    }
}
