package io.millstream.kernel.state;

import io.millstream.kernel.core.PackedRows;
import io.millstream.kernel.core.Window;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.sql.streaming.QueryInfo;
import scala.Option;

/**
 * Tasks of one bucket that end well, fail, are run twice or two at a time, are slower than the next one, or run
 * elsewhere; and queries that start again, where the last micro-batch was not committed too. Each reads its rows as the
 * state's reads do. The arguments: whether all tasks are in this JVM, and how many micro-batches. Prints how many rows
 * were found in memory, how many were known not to be there, and how many of both were not what the state had.
 */
public final class RetainedMain {
    private static final int KEYS = 40;
    private static final long EMPTY = -1;

    /** What each micro-batch has left in the state. */
    private final Map<Long, Map<String, Long>> versions = new HashMap<>(Map.of(EMPTY, Map.of()));

    private final boolean isAlone;
    private final Random chosen = new Random(11);
    private int found;
    private int nowhere;
    private int wrong;

    private record Run(UUID getQueryId, UUID getRunId, long getBatchId) implements QueryInfo {}

    /** A task, from its start to its end. */
    private final class Attempt {
        private final TaskContextImpl context = (TaskContextImpl) TaskContext$.MODULE$.empty();
        private final Map<String, Long> state;
        private final Random content;
        private final PackedRows rows;

        Attempt(Run run) {
            state = new HashMap<>(versions.get(run.getBatchId() - 1));
            content = new Random(run.getBatchId()); // the same, however often it is run
            TaskContext$.MODULE$.setTaskContext(context);
            rows = Retained.of("operator", isAlone, run).rows(0, 0, 1);
            TaskContext$.MODULE$.unset();
        }

        Attempt handle(int records) {
            for (int i = 0; i < records; i++) {
                String name = "k" + content.nextInt(KEYS);
                byte[] key = name.getBytes(StandardCharsets.UTF_8);
                int what = content.nextInt(4);
                if (what == 0) {
                    rows.remove(key);
                    state.remove(name);
                } else if (what == 1) {
                    state.put(name, content.nextLong());
                    rows.put(key, row(state.get(name)));
                } else {
                    look(key, state.get(name));
                }
            }
            return this;
        }

        private void look(byte[] key, Long expected) {
            Window row = rows.find(key);
            if (row != null) {
                found++;
                wrong += expected != null && row.at == expected ? 0 : 1;
            } else if (rows.isWhole()) {
                nowhere++;
                wrong += expected == null ? 0 : 1;
            } else if (expected != null) {
                rows.put(key, row(expected));
            }
        }

        private Window row(long at) {
            return new Window(0, 0, at, new Object[] {null});
        }

        Map<String, Long> succeed() {
            context.markTaskCompleted(Option.empty());
            return state;
        }

        void fail() {
            context.markTaskFailed(new IllegalStateException("as it should"));
            context.markTaskCompleted(Option.empty());
        }

        void die() {
            context.markInterrupted("stopped");
            context.markTaskCompleted(Option.empty());
        }
    }

    private RetainedMain(boolean isAlone) {
        this.isAlone = isAlone;
    }

    private void run(int batches) {
        UUID query = UUID.randomUUID();
        UUID run = UUID.randomUUID();
        Attempt slow = null;
        for (long batch = 0; batch < batches; batch++) {
            Run here = new Run(query, run, batch);
            switch (chosen.nextInt(9)) {
                case 0 -> new Attempt(here).handle(chosen.nextInt(20)).fail();
                case 1 -> new Attempt(here).handle(chosen.nextInt(20)).die();
                case 2 -> new Attempt(here).handle(20).succeed(); // and it is run again
                case 3 -> { // one of two at a time is given up
                    Attempt other = new Attempt(here).handle(10);
                    versions.put(batch, new Attempt(here).handle(20).succeed());
                    other.die();
                    continue;
                }
                case 4 -> { // nothing of the micro-batch was committed, and others do it
                    new Attempt(here).handle(15).succeed();
                    run = UUID.randomUUID();
                    here = new Run(query, run, batch);
                }
                case 5 -> {
                    if (batch > 0) { // not for this bucket; or in another JVM
                        versions.put(batch, isAlone ? versions.get(batch - 1) : elsewhere(batch));
                        continue;
                    }
                }
                case 6 -> { // it is still there when the next micro-batch has begun
                    if (slow == null) {
                        slow = new Attempt(here).handle(20);
                    }
                }
                default -> {
                    // nothing goes wrong
                }
            }
            versions.put(batch, new Attempt(here).handle(20).succeed());
            if (slow != null && chosen.nextInt(3) == 0) {
                slow.succeed();
                slow = null;
            }
        }
        System.out.println(found + " " + nowhere + " " + wrong);
    }

    /** What the micro-batch leaves, without anything in this JVM. */
    private Map<String, Long> elsewhere(long batch) {
        Map<String, Long> state = new HashMap<>(versions.get(batch - 1));
        state.keySet().removeIf(name -> chosen.nextInt(5) == 0);
        state.replaceAll((name, before) -> chosen.nextInt(3) == 0 ? before + 1 : before);
        return state;
    }

    public static void main(String[] arguments) {
        new RetainedMain(Boolean.parseBoolean(arguments[0])).run(Integer.parseInt(arguments[1]));
    }
}
