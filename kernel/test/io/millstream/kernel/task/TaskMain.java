package io.millstream.kernel.task;

import io.millstream.kernel.sink.Rows;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Runs a task as Spark would, without Spark. Arguments: a file with the plan, the number of the partition, what it
 * does, the output topic, nanoseconds to pass between two records, and `drain` if it ends at the end of its sources
 * as they are now, or a file: it is a standby until there is that file. What it does: `count` writes how many records
 * of a key there were, as it has counted them in store 0, and remembers it in every other store; `map` writes the
 * value.
 *
 * <p>Its lines: `followed`, when a standby has caught up; `opened`, the clock of operator 1 and the stream time;
 * `committed` and how many records; at the end `ended`, and for each entry `entry`, the store, the key and the value;
 * or `failed`, the class of the error, and what it says. {@code transaction} as the only thing to do prints the state
 * of a transactional.id.
 */
public final class TaskMain {
    private static final Rows OUTPUT = new Rows(0, 0);

    private TaskMain() {}

    public static void main(String[] arguments) throws Exception {
        TaskPlan plan = TaskPlan.of(Files.readString(Path.of(arguments[0])));
        if (arguments[2].equals("transaction")) {
            try (Admin admin = Topics.admin(plan)) {
                System.out.println(admin.describeTransactions(List.of(arguments[3]))
                        .description(arguments[3])
                        .get()
                        .state());
            }
            return;
        }
        int partition = Integer.parseInt(arguments[1]);
        boolean isDraining = arguments.length > 5 && arguments[5].equals("drain");
        if (arguments.length > 5 && !isDraining) {
            follow(plan, partition, Path.of(arguments[5]));
        }
        try (Watch watch = new Watch(plan);
                Task task = new Task(plan, partition, watch)) {
            run(task, arguments[2], arguments[3], Long.parseLong(arguments[4]), isDraining);
        } catch (RuntimeException error) {
            say("failed " + error.getClass().getName() + " " + error.getMessage());
            for (Throwable cause = error.getCause(); cause != null; cause = cause.getCause()) {
                say("because " + cause);
            }
            Runtime.getRuntime().halt(3);
        }
        Runtime.getRuntime().halt(0);
    }

    private static void follow(TaskPlan plan, int partition, Path until) {
        Standbys.follow(plan, List.of(partition));
        while (!Standbys.caughtUp(plan.run()).contains(partition)) {
            LockSupport.parkNanos(1_000_000);
        }
        say("followed");
        while (!Files.exists(until)) {
            LockSupport.parkNanos(1_000_000);
        }
    }

    private static void run(Task task, String what, String output, long pauseNs, boolean isDraining)
            throws Exception {
        Map<TopicPartition, Long> ends = isDraining ? ends(task.plan, task.partition) : Map.of();
        task.open();
        byte[] clock = task.clock(1);
        say("opened " + (clock == null ? "-" : text(clock)) + " " + task.streamTime());
        boolean isEnding = isDraining && isThere(task, ends);
        while (true) {
            RecordRow row = task.poll(20, isEnding);
            if (row == null && isEnding) {
                break;
            }
            if (row != null && row.getInt(0) == RunningTask.COMMIT) {
                task.commit();
                say("committed " + task.records());
            } else if (row != null && row.getInt(0) == RunningTask.RECORD) {
                process(task, what, output, row);
                if (pauseNs > 0) {
                    LockSupport.parkNanos(pauseNs);
                }
            }
            isEnding = isDraining && isThere(task, ends);
        }
        say("ended");
        for (int i = 0; i < task.plan.stores().size(); i++) {
            String store = task.plan.stores().get(i).name();
            try (Cursor entries = task.state.range(i, null, null, false)) {
                while (entries.next()) {
                    say("entry " + store + " " + text(entries.key()) + " " + text(Entry.of(entries.value()).result()));
                }
            }
        }
    }

    private static Map<TopicPartition, Long> ends(TaskPlan plan, int partition) throws Exception {
        Map<TopicPartition, Long> ends = new java.util.HashMap<>();
        try (Admin admin = Topics.admin(plan)) {
            Topics topics = Topics.of(new HashSet<>(plan.topics().keySet()), admin);
            for (String topic : plan.topics().keySet()) {
                TopicPartition source = new TopicPartition(topic, partition);
                if (topics.has(topic, partition)) {
                    ends.put(source, admin.listOffsets(Map.of(source, OffsetSpec.latest()))
                            .partitionResult(source)
                            .get()
                            .offset());
                }
            }
        }
        return ends;
    }

    private static boolean isThere(Task task, Map<TopicPartition, Long> ends) {
        Map<TopicPartition, Long> positions = task.positions();
        return ends.entrySet().stream().allMatch(each -> positions.get(each.getKey()) >= each.getValue());
    }

    private static void process(Task task, String what, String output, RecordRow row) {
        byte[] key = row.getBinary(1);
        byte[] value = row.getBinary(2);
        if (what.equals("count")) {
            byte[] before = task.state.get(0, key);
            long count = 1 + (before == null ? 0 : Long.parseLong(text(Entry.of(before).result())));
            value = Long.toString(count).getBytes(StandardCharsets.US_ASCII);
            for (int i = 0; i < task.plan.stores().size(); i++) {
                task.state.put(i, key, new Entry(0, null, value).bytes());
            }
            task.clock(1, value);
        }
        send(task, output, key, value);
    }

    static void send(Task task, String output, byte[] key, byte[] value) {
        UTF8String topic = UTF8String.fromString(output);
        task.send(new GenericInternalRow(new Object[] {topic, key, value, task.partition, null, null}), OUTPUT);
    }

    private static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.US_ASCII);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
