package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;

/**
 * How long a record takes in an operator of a task with its state on disk, without Spark and Kafka: prints a line for
 * each round, and how long it takes to restore what was kept. Arguments: the core, how many rounds of 500,000 records
 * of 10,000 keys, and how many records are committed together.
 */
public final class OperationSpeedMain {
    private static final int RECORDS = 500_000;
    private static final int KEYS = 10_000;
    /** Of this thread: what else the machine does counts for little. */
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();

    private static long count;

    private OperationSpeedMain() {}

    public static void main(String[] arguments) {
        String core = arguments[0];
        int every = Integer.parseInt(arguments[2]);
        byte[][] keys = new byte[KEYS][];
        for (int i = 0; i < KEYS; i++) {
            keys[i] = String.format("word%05d", i).getBytes(StandardCharsets.UTF_8);
        }
        ObjectNode asked = TaskWorld.object();
        asked.put("rocksdb", true).put("seed", 0);
        Random chance = new Random(1);
        try (TaskWorld world = new TaskWorld(asked)) {
            TaskWorld.Operator operator = operator(world, core);
            world.open();
            boolean isJoin = core.equals("pairs") || core.equals("lookup") || core.equals("tables");
            long at = 0;
            for (int round = 0; round < Integer.parseInt(arguments[1]); round++) {
                long before = count;
                long began = CLOCK.getCurrentThreadCpuTime();
                for (int i = 0; i < RECORDS; i++) {
                    at += i % 2; // 20 s for all keys on average
                    byte[] key = keys[chance.nextInt(KEYS)].clone(); // as Spark's rows have them
                    Object part = isJoin ? (Object) key : (Object) 1L;
                    operator.send(isJoin ? i & 1 : 0, key, at, at, null, part);
                    if (i % every == every - 1) {
                        world.commit();
                    }
                }
                double nanos = CLOCK.getCurrentThreadCpuTime() - began;
                System.out.printf(
                        "%s: %,.0f ns a record, %,d emitted, %,d logged, %,d kept%n",
                        core, nanos / RECORDS, count - before, world.logged(), world.size());
            }
            world.commit();
            int logged = world.logged();
            for (boolean isTold : new boolean[] {true, false}) {
                long began = CLOCK.getCurrentThreadCpuTime();
                world.restore(isTold);
                double nanos = CLOCK.getCurrentThreadCpuTime() - began;
                System.out.printf(
                        "%s: restored%s, %,.0f ns of each of %,d logged, %,d kept%n",
                        core, isTold ? "" : " and derived", nanos / logged, logged, world.size());
            }
        }
    }

    private static ObjectNode item(String core, Object... settings) {
        ObjectNode item = TaskWorld.object();
        item.put("core", core).put("at_once", false);
        ObjectNode into = item.putObject("settings");
        for (int i = 0; i < settings.length; i += 2) {
            into.put((String) settings[i], (Integer) settings[i + 1]);
        }
        return item;
    }

    private static TaskWorld.Operator operator(TaskWorld world, String core) {
        int onClose = core.endsWith("-close") ? 1 : 0;
        DataType[] number = {DataTypes.LongType};
        DataType[] bytes = {DataTypes.BinaryType};
        List<ObjectNode> items = new ArrayList<>();
        List<DataType[]> types = new ArrayList<>();
        switch (core.replace("-close", "")) {
            case "whole" -> items.add(item("whole"));
            case "tumbling" ->
                items.add(item("fixed", "size", 60_000, "advance", 60_000, "grace", 0, "on_close", onClose));
            case "hopping" ->
                items.add(item("fixed", "size", 60_000, "advance", 15_000, "grace", 0, "on_close", onClose));
            case "sliding" -> items.add(item("sliding", "difference", 30_000, "grace", 0, "on_close", onClose));
            case "sessions" -> items.add(item("sessions", "gap", 20_000, "grace", 0, "on_close", onClose));
            case "pairs" -> {
                Object[] limits = {"before", 20_000, "after", 20_000, "grace", 0, "left_outer", 1};
                items.add(item("records", limits));
                items.add(item("records", limits));
                ObjectNode pairs = item("pairs", limits);
                ((ObjectNode) pairs.get("settings")).put("left", 0).put("right", 1);
                items.add(pairs);
            }
            case "lookup" -> {
                items.add(item("latest", "silent", 1));
                items.add(item("lookup", "table", 0, "alone", 1));
            }
            case "tables" -> {
                items.add(item("latest", "silent", 1, "old", 1));
                items.add(item("latest", "silent", 1, "old", 1));
                items.add(item("table_join", "left", 0, "right", 1));
            }
            default -> throw new IllegalArgumentException(core);
        }
        for (ObjectNode item : items) {
            String name = item.get("core").asText();
            boolean isAggregation = items.size() == 1;
            item.put("rule", isAggregation ? "sum" : "last").put("at_once", !isAggregation);
            types.add(isAggregation ? number : List.of("pairs", "table_join").contains(name) ? new DataType[0] : bytes);
        }
        return world.operator(items, types, row -> count++);
    }
}
