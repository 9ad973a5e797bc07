package io.millstream.kernel.task;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.millstream.kernel.Constants;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Runs the programs of traces with aggregations on an operator and the state of a task (see {@link TaskWorld}).
 */
final class Aggregates {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final JsonNode asked;
    private final TaskWorld world;
    private final TaskWorld.Operator operator;
    private final boolean atOnce;
    private JsonNode windows;
    private JsonNode fold = MAPPER.createObjectNode();
    private JsonNode suppress;
    private ObjectNode step;

    private Aggregates(JsonNode asked) {
        this.asked = asked;
        this.world = new TaskWorld(asked);
        this.atOnce = asked.path("at_once").asBoolean(true);
        for (JsonNode op : asked.get("program")) {
            switch (op.get("op").asText()) {
                case "windowed_by" -> windows = op;
                case "count", "reduce", "aggregate" -> fold = op;
                case "suppress" -> suppress = op;
                default -> {
                    // Nothing that a core does.
                }
            }
        }
        List<ObjectNode> items = new ArrayList<>();
        List<DataType[]> types = new ArrayList<>();
        if (fold.has("op") || suppress == null) {
            items.add(aggregation());
            types.add(new DataType[] {type()});
        }
        if (suppress != null) {
            ObjectNode held = suppress();
            if (items.isEmpty()) {
                types.add(new DataType[] {DataTypes.BinaryType});
            } else {
                held.put("of", 0);
                types.add(new DataType[0]);
            }
            items.add(held);
        }
        operator = world.operator(items, types, this::result);
    }

    static ArrayNode run(JsonNode asked) {
        Aggregates program = new Aggregates(asked);
        try (program.world) {
            return program.run();
        }
    }

    private ArrayNode run() {
        ArrayNode steps = MAPPER.createArrayNode();
        world.open();
        JsonNode records = asked.get("records");
        for (int i = 0; i < records.size(); i++) {
            step = steps.addObject();
            if (!process(records.get(i))) {
                return steps;
            }
            world.next();
            if (world.losesWork()) {
                ObjectNode last = step;
                step = TaskWorld.object();
                for (int lost = i + 1; lost < Math.min(records.size(), i + 4) && process(records.get(lost)); lost++) {
                    // What is not committed is done again.
                }
                step = last;
                world.restart();
            }
            step.put("kept", world.size());
            step.put("logged", world.logged());
            step.put("restarted", world.restarted);
        }
        if (!atOnce) {
            step = steps.addObject();
            world.commit();
        }
        return steps;
    }

    /** Whether it went well. */
    private boolean process(JsonNode record) {
        boolean needsValue = windows == null && fold.has("op")
                || windows != null && windows.get("windows").asText().equals("sliding");
        if (record.get(0).isNull() || needsValue && record.get(1).isNull()) {
            step.put("dropped", step.path("dropped").asInt() + 1);
            return true;
        }
        byte[] key = record.get(0).asText().getBytes(StandardCharsets.UTF_8);
        long at = record.get(2).asLong();
        try {
            operator.send(0, key, at, at, null, part(record.get(1)));
        } catch (IllegalStateException error) {
            step.put("error", error.getMessage());
            return false;
        }
        return true;
    }

    private String function() {
        return fold.path("function").asText("count");
    }

    private DataType type() {
        return switch (function()) {
            case "concat" -> DataTypes.createArrayType(DataTypes.StringType);
            case "first", "last" -> DataTypes.BinaryType;
            default -> DataTypes.LongType;
        };
    }

    private Object part(JsonNode value) {
        if (!fold.has("op") && suppress != null) {
            return TaskWorld.bytes(plain(value));
        }
        return switch (function()) {
            case "count" -> 1L;
            case "concat" -> new GenericArrayData(
                    new Object[] {UTF8String.fromString(value.isNull() ? "_" : value.asText())});
            case "first", "last" -> TaskWorld.bytes(plain(value));
            default -> value.isNull() ? null : value.asLong();
        };
    }

    private static Object plain(JsonNode value) {
        return value.isNull() ? null : value.isTextual() ? value.asText() : (Object) value.asLong();
    }

    private Object value(InternalRow row, int column) {
        if (row.isNullAt(column)) {
            return null;
        }
        DataType type = fold.has("op") || suppress == null ? type() : DataTypes.BinaryType;
        if (type == DataTypes.LongType) {
            return row.getLong(column);
        }
        if (type == DataTypes.BinaryType) {
            return TaskWorld.value(row.getBinary(column));
        }
        StringBuilder all = new StringBuilder();
        ArrayData array = row.getArray(column);
        for (int i = 0; i < array.numElements(); i++) {
            all.append(array.getUTF8String(i));
        }
        return all.toString();
    }

    private ObjectNode item(String core) {
        ObjectNode item = TaskWorld.object();
        item.put("core", core);
        ObjectNode settings = item.putObject("settings");
        if (asked.has("capacity")) {
            settings.set("capacity", asked.get("capacity"));
        }
        return item;
    }

    private ObjectNode aggregation() {
        ObjectNode item = item("whole");
        ObjectNode settings = (ObjectNode) item.get("settings");
        String function = function();
        item.put("rule", function.equals("count") ? "sum" : function).put("at_once", atOnce);
        if (isOnClose()) {
            settings.put("on_close", 1);
        }
        if (fold.has("retention")) {
            settings.put("retention", fold.get("retention").asLong());
        }
        if (windows == null) {
            return item;
        }
        settings.put("grace", windows.path("grace").asLong());
        switch (windows.get("windows").asText()) {
            case "time" -> {
                item.put("core", "fixed");
                settings.put("size", windows.get("size").asLong()).put("advance", windows.get("advance").asLong());
            }
            case "daily" -> {
                item.put("core", "daily " + windows.get("zone").asText());
                settings.put("hour", windows.get("hour").asLong());
                settings.put("size", 86_400_000L).put("advance", 86_400_000L);
            }
            case "unlimited" -> {
                item.put("core", "fixed");
                settings.put("size", 8_210_298_326_400_000L).put("advance", 8_210_298_326_400_000L);
                settings.put("origin", windows.path("start").asLong());
            }
            case "sliding" -> {
                item.put("core", "sliding");
                settings.put("difference", windows.get("difference").asLong());
            }
            default -> {
                item.put("core", "sessions");
                settings.put("gap", windows.get("gap").asLong());
            }
        }
        return item;
    }

    private ObjectNode suppress() {
        ObjectNode item = item("suppress");
        ObjectNode settings = (ObjectNode) item.get("settings");
        boolean untilClose = isUntilClose();
        long delay = suppress.path("ms").asLong();
        if (untilClose) {
            delay = windows.path("gap").asLong() + windows.get("grace").asLong();
        }
        settings.put("until_close", untilClose ? 1 : 0).put("delay", delay);
        for (String limit : List.of("records", "bytes")) {
            if (suppress.has(limit)) {
                settings.put(limit, suppress.get(limit).asLong());
            }
        }
        settings.put("stops", untilClose || suppress.path("full").asText().equals("stop") ? 1 : 0);
        return item.put("at_once", false);
    }

    private boolean isUntilClose() {
        return suppress.get("until").asText().equals("window closes");
    }

    private boolean isOnClose() {
        return fold.path("emit").asText().equals("close");
    }

    private void result(InternalRow row) {
        Object value = value(row, operator.column(0, 0, false));
        String updates = isOnClose() || suppress != null ? "updates" : "out";
        switch (row.getInt(1)) {
            case Constants.KIND_UPDATE -> row(updates, row, value);
            case Constants.KIND_GONE -> row(updates, row, null);
            case Constants.KIND_LATE -> step.put("dropped", step.path("dropped").asInt() + 1);
            default -> {
                if (value != null || suppress != null && !isUntilClose()) {
                    row("out", row, value);
                }
            }
        }
    }

    private void row(String lane, InternalRow from, Object value) {
        ArrayNode row = step.withArray(lane).addArray();
        row.add(new String(from.getBinary(2), StandardCharsets.UTF_8)).addPOJO(value).add(from.getLong(5));
        if (windows != null) {
            row.add(from.getLong(3)).add(from.getLong(4));
        }
    }
}
