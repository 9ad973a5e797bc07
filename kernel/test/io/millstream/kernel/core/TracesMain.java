package io.millstream.kernel.core;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Runs the programs of traces (tests/snapshots/traces.py) on cores, and prints a line for each: its steps.
 *
 * <p>A line of the input has "program" and "records"; "batches", how many records each micro-batch has, which is 1
 * unless it is there; "at_once", whether each change is told; and "capacity", of the cache. A step is what a
 * micro-batch led to; "kept" in it says how many slices there are afterwards.
 */
public final class TracesMain {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final JsonNode asked;
    private final ArrayNode steps = MAPPER.createArrayNode();
    private JsonNode windows;
    private JsonNode fold;
    private Memory memory;
    private Parts parts;

    private TracesMain(JsonNode asked) {
        this.asked = asked;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(MAPPER.writeValueAsString(new TracesMain(MAPPER.readTree(line)).run()));
        }
    }

    private ArrayNode run() {
        for (JsonNode op : asked.get("program")) {
            switch (op.get("op").asText()) {
                case "windowed_by" -> windows = op;
                case "count", "reduce", "aggregate" -> fold = op;
                case "stream", "group_by_key", "to_stream" -> {
                    // Nothing that a core does.
                }
                default -> throw new IllegalArgumentException("no operation " + op);
            }
        }
        parts = new Parts(List.of(rule()));
        memory = new Memory(parts);
        int from = 0;
        if (asked.has("batches")) {
            for (JsonNode size : asked.get("batches")) {
                batch(from, from + size.asInt());
                from += size.asInt();
            }
        }
        for (; from < asked.get("records").size(); from++) {
            batch(from, from + 1);
        }
        return steps;
    }

    private String function() {
        return fold.path("function").asText("count");
    }

    private Parts.Rule rule() {
        return switch (function()) {
            case "count", "sum" -> Rules.of("sum", "bigint");
            case "concat" -> (one, other) -> (String) one + other;
            default -> Rules.of(function(), "bigint");
        };
    }

    private void batch(int from, int to) {
        ObjectNode step = MAPPER.createObjectNode();
        Told told = new Steps(step);
        Table table = new Table(
                memory, told, asked.path("at_once").asBoolean(true), asked.path("capacity").asInt(Table.CAPACITY));
        Due due = new Due(memory.due, memory.due.counts, asked.path("span").asLong(4), false);
        Due closing = isOnClose()
                ? new Due(memory.closing, memory.closing.counts, asked.path("span").asLong(4), true) : null;
        Core core = core(new Task(parts, table, told, memory.clock, due, closing));
        for (int i = from; i < to; i++) {
            JsonNode record = asked.get("records").get(i);
            boolean needsValue = windows == null || windows.get("windows").asText().equals("sliding");
            if (record.get(0).isNull() || needsValue && record.get(1).isNull()) {
                step.put("dropped", step.path("dropped").asInt() + 1);
                continue;
            }
            byte[] key = record.get(0).asText().getBytes(StandardCharsets.UTF_8);
            core.record(key, record.get(2).asLong(), new Object[] {part(record.get(1))});
        }
        core.finish();
        step.put("kept", memory.slices.size());
        steps.add(step);
    }

    private boolean isOnClose() {
        return fold.path("emit").asText().equals("close");
    }

    private Object part(JsonNode value) {
        return switch (function()) {
            case "count" -> (Object) 1L;
            case "concat" -> value.isNull() ? "_" : value.asText();
            default -> value.isNull() ? null : value.isTextual() ? value.asText() : (Object) value.asLong();
        };
    }

    private Core core(Task task) {
        if (windows == null) {
            return new WholeTime(task);
        }
        long grace = windows.get("grace").asLong();
        switch (windows.get("windows").asText()) {
            case "time":
                return new FixedWindows(task, windows.get("size").asLong(), windows.get("advance").asLong(), grace);
            case "sliding":
                long size = windows.get("difference").asLong();
                return new SlidingWindows(task, size, grace, retention(2 * size + grace));
            default:
                long gap = windows.get("gap").asLong();
                return new SessionWindows(task, gap, grace, retention(gap + grace));
        }
    }

    private long retention(long otherwise) {
        return fold.path("retention").asLong(otherwise);
    }

    /** Writes what is told. */
    private final class Steps implements Told {
        private final ObjectNode step;

        Steps(ObjectNode step) {
            this.step = step;
        }

        @Override
        public void update(byte[] key, Window window) {
            row(isOnClose() ? "updates" : "out", key, window, window.parts[0]);
        }

        @Override
        public void gone(byte[] key, Window window) {
            row(isOnClose() ? "updates" : "out", key, window, null);
        }

        @Override
        public void closed(byte[] key, Window window) {
            row("out", key, window, window.parts[0]);
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            step.put("dropped", step.path("dropped").asInt() + 1);
        }

        private void row(String lane, byte[] key, Window window, Object value) {
            ArrayNode row = step.withArray(lane).addArray();
            row.add(new String(key, StandardCharsets.UTF_8)).addPOJO(value).add(window.at);
            if (windows != null) {
                row.add(window.start).add(window.end);
            }
        }
    }
}
