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
 * unless it is there; "at_once", whether each change is emitted; and "capacity", of the cache. A step is what a
 * micro-batch led to; "kept" in it says how much there is afterwards.
 */
public final class TracesMain {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final JsonNode asked;
    private final ArrayNode steps = MAPPER.createArrayNode();
    private JsonNode windows;
    private JsonNode fold = MAPPER.createObjectNode();
    private JsonNode suppress;
    private Memory memory;
    private Memory heldBack;
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
                case "suppress" -> suppress = op;
                case "table", "stream", "group_by_key", "to_stream" -> {
                    // Nothing that a core does.
                }
                default -> throw new IllegalArgumentException("no operation " + op);
            }
        }
        parts = new Parts(List.of(rule()));
        memory = new Memory(parts);
        heldBack = new Memory(parts);
        int from = 0;
        if (asked.has("batches")) {
            for (JsonNode size : asked.get("batches")) {
                batch(from, from + size.asInt());
                from += size.asInt();
            }
        }
        boolean isOpen = true;
        for (; isOpen && from < asked.get("records").size(); from++) {
            isOpen = batch(from, from + 1);
        }
        return steps;
    }

    /** Of a table whose updates are held back: its values. */
    private String function() {
        return fold.path("function").asText(fold.has("op") ? "count" : "last");
    }

    private Parts.Rule rule() {
        return switch (function()) {
            case "count", "sum" -> Rules.of("sum", "bigint");
            case "concat" -> (one, other) -> (String) one + other;
            default -> Rules.of(function(), "bigint");
        };
    }

    /** Whether it went well. */
    private boolean batch(int from, int to) {
        ObjectNode step = MAPPER.createObjectNode();
        steps.add(step);
        Steps output = new Steps(step);
        List<Core> cores = cores(output);
        for (int i = from; i < to; i++) {
            JsonNode record = asked.get("records").get(i);
            boolean needsValue = windows == null && fold.has("op")
                    || windows != null && windows.get("windows").asText().equals("sliding");
            if (record.get(0).isNull() || needsValue && record.get(1).isNull()) {
                step.put("dropped", step.path("dropped").asInt() + 1);
                continue;
            }
            byte[] key = record.get(0).asText().getBytes(StandardCharsets.UTF_8);
            try {
                cores.get(0).record(key, record.get(2).asLong(), new Object[] {part(record.get(1))});
            } catch (IllegalStateException error) {
                step.put("error", error.getMessage());
                return false;
            }
        }
        cores.forEach(Core::finish);
        step.put("kept", memory.size() + heldBack.size());
        return true;
    }

    /** The one that gets the records, and what holds back its updates. */
    private List<Core> cores(Output output) {
        if (suppress == null) {
            return List.of(core(task(memory, output, isOnClose())));
        }
        Suppress last = new Suppress(task(heldBack, output, true), limits());
        return fold.has("op") ? List.of(core(task(memory, last.of(output), isOnClose())), last) : List.of(last);
    }

    private Task task(Memory kept, Output output, boolean isOnClose) {
        boolean atOnce = asked.path("at_once").asBoolean(true);
        long span = asked.path("span").asLong(4);
        Table table = new Table(kept, output, atOnce, asked.path("capacity").asInt(Table.CAPACITY));
        Due due = new LastingDue(kept.due, span, false);
        Due closing = isOnClose ? new LastingDue(kept.closing, span, true) : null;
        return new Task(parts, table, output, kept.clock, due, closing, false);
    }

    private Suppress.Limits limits() {
        boolean untilClose = suppress.get("until").asText().equals("window closes");
        long delay = suppress.path("ms").asLong();
        if (untilClose) {
            delay = windows.path("gap").asLong() + windows.get("grace").asLong();
        }
        return new Suppress.Limits(
                "suppress",
                untilClose,
                delay,
                suppress.path("records").asLong(Long.MAX_VALUE),
                suppress.path("bytes").asLong(Long.MAX_VALUE),
                untilClose || suppress.path("full").asText().equals("stop"),
                false,
                false);
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
            case "daily":
                return new DailyWindows(task, windows.get("zone").asText(), windows.get("hour").asLong(), grace);
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

    /** Writes what is emitted. */
    private final class Steps implements Output {
        private final ObjectNode step;

        Steps(ObjectNode step) {
            this.step = step;
        }

        @Override
        public void update(byte[] key, Window window) {
            row(isOnClose() || suppress != null ? "updates" : "out", key, window, window.parts[0]);
        }

        @Override
        public void gone(byte[] key, Window window) {
            row(isOnClose() || suppress != null ? "updates" : "out", key, window, null);
        }

        @Override
        public void closed(byte[] key, Window window) {
            // Without a result there is no such window: Spark knows, whose Columns make results of parts.
            if (window.parts[0] != null || suppress != null && !limits().untilClose()) {
                row("out", key, window, window.parts[0]);
            }
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
