package io.millstream.kernel.core;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * How many records a second of computing the cores take, without Spark: prints a line for each round. Arguments: the
 * core, and how many rounds of a million records of 10,000 keys.
 */
public final class SpeedMain {
    private static final int RECORDS = 1_000_000;
    private static final int KEYS = 10_000;
    private static final int BATCH = 100_000;

    /** Of this thread: what else the machine does counts for little. */
    private static final ThreadMXBean CLOCK = ManagementFactory.getThreadMXBean();

    private static long count;

    private SpeedMain() {}

    public static void main(String[] arguments) {
        byte[][] keys = new byte[KEYS][];
        for (int i = 0; i < KEYS; i++) {
            keys[i] = (String.format("word%05d", i)).getBytes(StandardCharsets.UTF_8);
        }
        Parts parts = new Parts(List.of(Rules.of("sum", "bigint")));
        InMemory kept = new InMemory();
        Memory pages = new Memory(parts);
        Clock clock = new Clock();
        Random chance = new Random(1);
        Object[] record = {1L};
        long at = 0;
        for (int round = 0; round < Integer.parseInt(arguments[1]); round++) {
            byte[][] asked = new byte[RECORDS][];
            for (int i = 0; i < RECORDS; i++) {
                asked[i] = keys[chance.nextInt(KEYS)].clone(); // as Spark's rows have them
            }
            long before = count;
            long began = CLOCK.getCurrentThreadCpuTime();
            for (int from = 0; from < RECORDS; from += BATCH) {
                Core core = core(arguments[0], parts, kept, pages, clock);
                for (int i = from; i < from + BATCH; i++) {
                    at += i % 2; // 20 s for all keys on average
                    core.record(asked[i], at, record);
                }
                core.finish();
            }
            double seconds = (CLOCK.getCurrentThreadCpuTime() - began) / 1e9;
            System.out.printf(
                    "%s: %,.0f records a second, %,d emitted, %,d slices stored%n",
                    arguments[0], RECORDS / seconds, count - before, kept.slices.size());
        }
    }

    private static Core core(String name, Parts parts, SliceState kept, Memory pages, Clock clock) {
        Table table = new Table(kept, new Counting(), false, Table.CAPACITY);
        Due due = new PagedDue(pages.due, pages.due.counts, 1_000, false);
        Due closing = name.endsWith("-close") ? new PagedDue(pages.closing, pages.closing.counts, 1_000, true) : null;
        Task task = new Task(parts, table, new Counting(), clock, due, closing, false);
        return switch (name.replace("-close", "")) {
            case "whole" -> new WholeTime(task);
            case "tumbling" -> new FixedWindows(task, 60_000, 60_000, 0);
            case "hopping" -> new FixedWindows(task, 60_000, 15_000, 0);
            case "sliding" -> new SlidingWindows(task, 30_000, 0, 60_000);
            case "sessions" -> new SessionWindows(task, 20_000, 0, 20_000);
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static final class Counting implements Output {
        @Override
        public void update(byte[] key, Window window) {
            count++;
        }

        @Override
        public void gone(byte[] key, Window window) {
            count++;
        }

        @Override
        public void closed(byte[] key, Window window) {
            count++;
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            count++;
        }
    }

    /** Keeps what it is given: only the cores are measured. */
    private static final class InMemory implements SliceState {
        final Map<SliceName, ArrayList<Window>> slices = new HashMap<>();

        @Override
        public ArrayList<Window> read(byte[] key, long slice) {
            return slices.get(name(key, slice));
        }

        @Override
        public void write(byte[] key, long slice, List<Window> windows) {
            if (windows.isEmpty()) {
                slices.remove(name(key, slice));
            } else {
                slices.put(name(key, slice), (ArrayList<Window>) windows);
            }
        }

        private static SliceName name(byte[] key, long slice) {
            SliceName name = new SliceName();
            name.set(key, slice);
            return name;
        }
    }
}
