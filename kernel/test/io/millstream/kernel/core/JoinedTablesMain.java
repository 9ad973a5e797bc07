package io.millstream.kernel.core;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/**
 * Two tables that are joined, and emit their changes once a micro-batch. The input is an object: "capacity", of
 * their caches, and "batches", lists of `[isLeft, key, value]`. For each change that is emitted, it prints a line
 * `[isLeft, key, left, right]`.
 */
public final class JoinedTablesMain implements Matches {
    private static final ObjectMapper MAPPER = new ObjectMapper();
    private static final Parts PARTS = new Parts(List.of(Rules.of("last", "string")));

    private final List<Latest> tables = new ArrayList<>();

    public static void main(String[] arguments) throws IOException {
        JsonNode asked = MAPPER.readTree(System.in);
        Memory left = new Memory(PARTS);
        Memory right = new Memory(PARTS);
        for (JsonNode batch : asked.get("batches")) {
            new JoinedTablesMain()
                    .run(
                            batch,
                            left,
                            right,
                            asked.get("capacity").asInt(),
                            asked.get("budget").asLong());
        }
    }

    private void run(JsonNode batch, Memory left, Memory right, int capacity, long budget) {
        TableJoin join = new TableJoin(() -> tables.get(0), () -> tables.get(1), this);
        tables.add(table(left, join.of(new Nothing(), true), capacity, budget));
        tables.add(table(right, join.of(new Nothing(), false), capacity, budget));
        for (JsonNode update : batch) {
            byte[] key = update.get(1).asText().getBytes(StandardCharsets.UTF_8);
            Object[] parts = {update.get(2).textValue()};
            tables.get(update.get(0).asBoolean() ? 0 : 1).record(key, 0, parts);
        }
        tables.forEach(Core::emit);
        tables.forEach(Core::finish);
    }

    private static Latest table(Memory memory, Output output, int capacity, long budget) {
        Table table = new Table(memory, output, false, capacity, () -> budget);
        return new Latest(new Task(PARTS, table, output, memory.clock, null, null, true));
    }

    @Override
    public void change(byte[] key, long at, long since, boolean isLeft, Window left, Window right) {
        ArrayNode line = MAPPER.createArrayNode().add(isLeft).add(new String(key, StandardCharsets.UTF_8));
        line.add(left == null ? null : (String) left.parts[0]).add(right == null ? null : (String) right.parts[0]);
        System.out.println(line);
    }

    @Override
    public void match(byte[] key, long at, Object[] left, Object[] right) {
        throw new IllegalStateException("these are tables");
    }

    private static final class Nothing implements Output {
        @Override
        public void update(byte[] key, Window window) {
            // Only joins hear of it.
        }

        @Override
        public void gone(byte[] key, Window window) {
            // Only joins hear of it.
        }

        @Override
        public void closed(byte[] key, Window window) {
            // Only joins hear of it.
        }

        @Override
        public void late(byte[] key, long at, long start, long end, long streamTime) {
            // Only joins hear of it.
        }
    }
}
