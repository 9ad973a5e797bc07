package io.millstream.kernel.state;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.FixedWindows;
import io.millstream.kernel.core.Parts;
import io.millstream.kernel.core.Rules;
import io.millstream.kernel.core.SessionWindows;
import io.millstream.kernel.core.SlidingWindows;
import io.millstream.kernel.core.Task;
import io.millstream.kernel.core.WholeTime;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The aggregations of one operator, as Python describes them. */
final class Plan implements Serializable {
    private static final long serialVersionUID = 1;

    final List<Item> items = new ArrayList<>();

    /**
     * One aggregation.
     *
     * @param core which core it is
     * @param settings the numbers that the core takes
     * @param atOnce tell each change as it comes
     * @param names of its parts' columns
     * @param columns where they are in the input
     */
    record Item(
            String core,
            HashMap<String, Long> settings,
            boolean atOnce,
            ArrayList<String> names,
            ArrayList<String> rules,
            ArrayList<DataType> types,
            ArrayList<Integer> columns)
            implements Serializable {
        long setting(String name) {
            return settings.getOrDefault(name, 0L);
        }

        boolean isWindowed() {
            return !core.equals("whole");
        }

        /** Whether windows are told when they close. */
        boolean isOnClose() {
            return setting("on_close") != 0;
        }

        /** The times for which it is known together what is due: a few hundred such spans are open. */
        long span() {
            return switch (core) {
                case "fixed" -> Math.max(setting("advance"), (setting("size") + setting("grace")) / 256);
                case "sliding" -> (setting("difference") + setting("grace")) / 256;
                default -> retention() / 256;
            };
        }

        /** For how long a store has windows: as long as it has to, unless somebody wants more. */
        private long retention() {
            long least = core.equals("sliding") ? 2 * setting("difference") : setting("gap");
            return settings.getOrDefault("retention", least + setting("grace"));
        }

        Parts parts() {
            List<Parts.Rule> made = new ArrayList<>();
            for (int i = 0; i < rules.size(); i++) {
                made.add(Rules.of(rules.get(i), types.get(i).catalogString()));
            }
            return new Parts(made);
        }

        Core core(Task task) {
            return switch (core) {
                case "whole" -> new WholeTime(task);
                case "fixed" -> new FixedWindows(task, setting("size"), setting("advance"), setting("grace"));
                case "sliding" -> new SlidingWindows(task, setting("difference"), setting("grace"), retention());
                case "sessions" -> new SessionWindows(task, setting("gap"), setting("grace"), retention());
                default -> throw new IllegalArgumentException("no core '" + core + "'");
            };
        }
    }

    static Plan of(String json, StructType input) {
        Plan plan = new Plan();
        try {
            for (JsonNode node : new ObjectMapper().readTree(json)) {
                plan.items.add(item(node, input));
            }
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the description of the aggregations is no JSON", error);
        }
        return plan;
    }

    private static Item item(JsonNode node, StructType input) {
        Item item = new Item(
                node.get("core").asText(),
                new HashMap<>(),
                node.get("at_once").asBoolean(),
                new ArrayList<>(),
                new ArrayList<>(),
                new ArrayList<>(),
                new ArrayList<>());
        JsonNode settings = node.get("settings");
        settings.fieldNames().forEachRemaining(name -> item.settings.put(name, settings.get(name).asLong()));
        for (JsonNode part : node.get("parts")) {
            String name = part.get("name").asText();
            item.names.add(name);
            item.rules.add(part.get("rule").asText());
            item.columns.add(input.fieldIndex(name));
            item.types.add(input.fields()[input.fieldIndex(name)].dataType());
        }
        return item;
    }
}
