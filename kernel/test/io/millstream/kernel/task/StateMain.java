package io.millstream.kernel.task;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.Uuid;

/**
 * Random changes, commits and cursors of a state, compared with maps. Arguments: a directory, a seed, and how many
 * steps.
 */
public final class StateMain {
    private static final int KEYS = 40;

    /** A cursor, and what it is to give. */
    private record Reading(Cursor cursor, List<Map.Entry<String, String>> left) {}

    private StateMain() {}

    public static void main(String[] arguments) {
        List<TaskPlan.Store> stores = List.of(
                new TaskPlan.Store("disk", "", false, "", "", true, false, ""),
                new TaskPlan.Store("memory", "", true, "", "", true, false, ""));
        TaskPlan plan = new TaskPlan(
                "run", "app", 0, Map.of(), Map.of(), Map.of(), Map.of(), true, 1, 0, false, arguments[0], stores,
                List.of(), List.of(), List.of(), List.of(), 1, Map.of(), Map.of(), 1, 1, 4096, false, List.of(),
                List.of());
        Random dice = new Random(Long.parseLong(arguments[1]));
        int steps = Integer.parseInt(arguments[2]);
        List<TreeMap<String, String>> committed = List.of(new TreeMap<>(), new TreeMap<>());
        int cursors = 0;
        for (int round = 0; round < 3; round++) {
            try (State state = open(plan)) {
                committed.get(1).clear();
                cursors += run(state, committed, dice, steps);
            }
        }
        System.out.println(cursors);
    }

    @SuppressWarnings("resource") // the state closes it
    private static State open(TaskPlan plan) {
        TaskDirectory directory = new TaskDirectory(Path.of(plan.directory()));
        directory.claim(plan, new Topics("cluster", Map.of("t", Uuid.ONE_UUID), Map.of()));
        return new State(plan.stores(), directory);
    }

    private static int run(State state, List<TreeMap<String, String>> committed, Random dice, int steps) {
        List<TreeMap<String, String>> now = List.of(new TreeMap<>(committed.get(0)), new TreeMap<>(committed.get(1)));
        List<Reading> readings = new ArrayList<>();
        int cursors = 0;
        long[] ends = new long[2];
        for (int step = 0; step < steps; step++) {
            int store = dice.nextInt(2);
            String key = key(dice);
            switch (dice.nextInt(12)) {
                case 0 -> {
                    if (dice.nextInt(5) == 0) {
                        ends[0]++;
                        state.committed(ends);
                        committed.get(0).clear();
                        committed.get(1).clear();
                        committed.get(0).putAll(now.get(0));
                        committed.get(1).putAll(now.get(1));
                    } else if (dice.nextInt(5) == 0) {
                        state.abort();
                        for (int i = 0; i < 2; i++) {
                            now.get(i).clear();
                            now.get(i).putAll(committed.get(i));
                        }
                    } else if (dice.nextInt(5) == 0) {
                        state.spill();
                        for (int i = 0; i < 2; i++) {
                            committed.get(i).clear();
                            committed.get(i).putAll(now.get(i));
                        }
                    } else if (dice.nextInt(20) == 0) {
                        state.clear(store);
                        now.get(store).clear();
                        committed.get(store).clear();
                    }
                }
                case 1 -> {
                    readings.add(reading(state, store, now.get(store), dice));
                    cursors++;
                }
                case 2, 3, 4 -> {
                    if (!readings.isEmpty()) {
                        int which = dice.nextInt(readings.size());
                        if (!isRight(readings.get(which), dice.nextInt(6))) {
                            readings.remove(which);
                        }
                    }
                }
                case 5, 6 -> {
                    state.put(store, bytes(key), null);
                    now.get(store).remove(key);
                }
                case 7 -> require(now.get(store).get(key), state.get(store, bytes(key)), "get " + key);
                default -> {
                    state.put(store, bytes(key), bytes("v" + step));
                    now.get(store).put(key, "v" + step);
                }
            }
        }
        ends[0]++;
        state.committed(ends);
        for (int i = 0; i < 2; i++) {
            committed.get(i).clear();
            committed.get(i).putAll(now.get(i));
        }
        return cursors;
    }

    private static String key(Random dice) {
        return String.format("k%02d", dice.nextInt(KEYS));
    }

    @SuppressWarnings("resource") // the state closes what is left
    private static Reading reading(State state, int store, TreeMap<String, String> all, Random dice) {
        String from = dice.nextBoolean() ? key(dice) : null;
        String to = dice.nextBoolean() ? key(dice) : null;
        boolean isReverse = dice.nextBoolean();
        NavigableMap<String, String> within = all;
        within = from == null ? within : within.tailMap(from, true);
        boolean isEmpty = from != null && to != null && from.compareTo(to) >= 0;
        within = isEmpty ? new TreeMap<>() : to == null ? within : within.headMap(to, false);
        List<Map.Entry<String, String>> left = new ArrayList<>();
        (isReverse ? within.descendingMap() : within).forEach((key, value) -> left.add(Map.entry(key, value)));
        return new Reading(state.range(store, bytes(from), bytes(to), isReverse), left);
    }

    /** Steps on; whether there may be more. */
    private static boolean isRight(Reading reading, int steps) {
        for (int i = 0; i < steps; i++) {
            boolean isThere = reading.cursor.next();
            if (isThere == reading.left.isEmpty()) {
                throw new AssertionError("is there: " + isThere + ", left: " + reading.left);
            }
            if (!isThere) {
                return false;
            }
            Map.Entry<String, String> wanted = reading.left.remove(0);
            require(wanted.getKey(), reading.cursor.key(), "key");
            require(wanted.getValue(), reading.cursor.value(), "value of " + wanted.getKey());
        }
        if (steps == 0) {
            reading.cursor.close();
        }
        return steps > 0;
    }

    private static void require(String wanted, byte[] found, String what) {
        String text = found == null ? null : new String(found, StandardCharsets.US_ASCII);
        if (wanted == null ? text != null : !wanted.equals(text)) {
            throw new AssertionError(what + ": " + text + ", not " + wanted);
        }
    }

    private static byte[] bytes(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.US_ASCII);
    }
}
