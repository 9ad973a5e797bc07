package io.millstream.kernel.task;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.millstream.kernel.core.Core;
import io.millstream.kernel.core.DailyWindows;
import io.millstream.kernel.core.FixedWindows;
import io.millstream.kernel.core.Latest;
import io.millstream.kernel.core.Pairs;
import io.millstream.kernel.core.Parts;
import io.millstream.kernel.core.Records;
import io.millstream.kernel.core.Rules;
import io.millstream.kernel.core.SessionWindows;
import io.millstream.kernel.core.SlidingWindows;
import io.millstream.kernel.core.Suppress;
import io.millstream.kernel.core.Table;
import io.millstream.kernel.core.Task;
import io.millstream.kernel.core.Versions;
import io.millstream.kernel.core.WholeTime;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** The items of one operator, as described by Python: aggregations, joins and tables. */
public final class OperatorPlan implements Serializable {
    private static final long serialVersionUID = 1;

    /** The name of a core, before that of its time zone. */
    private static final String DAILY = "daily ";

    public final List<Item> items = new ArrayList<>();

    /**
     * One aggregation.
     *
     * @param core the name of its core
     * @param settings the core's numbers
     * @param atOnce whether to emit every change, not only the last one up to a commit
     * @param names the names of its parts' columns
     * @param columns their places in the input
     * @param place its name in messages
     * @param of the number of the aggregation whose updates it holds back; -1 if it gets rows
     */
    public record Item(
            String core,
            HashMap<String, Long> settings,
            boolean atOnce,
            ArrayList<String> names,
            ArrayList<String> rules,
            ArrayList<DataType> types,
            ArrayList<Integer> columns,
            String place,
            int of)
            implements Serializable {
        public long setting(String name) {
            return settings.getOrDefault(name, 0L);
        }

        /** The number of a related item. */
        public int link(String name) {
            return (int) setting(name);
        }

        /** Whether both sides of a join of tables or streams are the same item. */
        public boolean isOfOne() {
            return settings.containsKey("left") && link("left") == link("right");
        }

        public boolean isDaily() {
            return core.startsWith(DAILY);
        }

        /** The time zone of daily windows. */
        public String zone() {
            return core.substring(DAILY.length());
        }

        /** Whether a key has slices of several windows each, instead of one value. */
        public boolean isSliced() {
            return !core.equals("whole") && !core.equals("latest");
        }

        /** Whether its slices are dropped when their time has come. */
        public boolean isWindowed() {
            return isSliced() && !core.equals("references");
        }

        /** Whether it has state. */
        public boolean hasState() {
            return !List.of("lookup", "table_join", "changes").contains(core);
        }

        /** Whether its slices are forgotten when their time has come. */
        public boolean isDue() {
            return isWindowed() && !List.of("suppress", "pairs", "waiting").contains(core);
        }

        /** Whether each change includes the previous value. */
        public boolean remembers() {
            return setting("old") != 0;
        }

        /** The prefixes of its parts' names in the output. */
        public List<String> prefixes() {
            return of >= 0 ? List.of() : remembers() ? List.of("", "old_") : List.of("");
        }

        /** Whether windows are emitted when they close, or are held back. */
        public boolean isOnClose() {
            return setting("on_close") != 0 || List.of("suppress", "pairs", "waiting").contains(core);
        }

        /** The span of time whose due entries are kept together; a few hundred such spans are open. */
        public long span() {
            return switch (isDaily() ? "fixed" : core) {
                case "fixed" -> Math.max(setting("advance"), (setting("size") + setting("grace")) / 256);
                case "sliding" -> (setting("difference") + setting("grace")) / 256;
                case "suppress" -> Math.max(1_000, setting("delay") / 256);
                case "pairs", "records" -> pairs().retention() / 256;
                case "versions" -> setting("history") / 256;
                case "waiting" -> setting("grace") / 256;
                default -> SessionWindows.span(setting("gap"), setting("grace"));
            };
        }

        /** How long a store keeps windows: as long as necessary, unless a longer time is set. */
        private long retention() {
            long least = core.equals("sliding") ? 2 * setting("difference") : setting("gap");
            return settings.getOrDefault("retention", least + setting("grace"));
        }

        public Parts parts() {
            List<Parts.Rule> made = new ArrayList<>();
            for (int i = 0; i < rules.size(); i++) {
                made.add(Rules.of(rules.get(i), types.get(i).catalogString()));
            }
            return new Parts(made);
        }

        public Core core(Task task) {
            return switch (core) {
                case "whole" -> new WholeTime(task);
                case "latest" -> new Latest(task, setting("quiet") != 0);
                case "versions" -> new Versions(task, setting("history"));
                case "records" -> new Records(
                        task, setting("before") + setting("after"), pairs().retention(), pairs().patience());
                case "fixed" -> new FixedWindows(
                        task, setting("size"), setting("advance"), setting("grace"), setting("origin"));
                case "sliding" -> new SlidingWindows(task, setting("difference"), setting("grace"), retention());
                case "sessions" -> new SessionWindows(task, setting("gap"), setting("grace"), retention());
                case "suppress" -> new Suppress(task, limits());
                default -> {
                    if (!isDaily()) {
                        throw new IllegalArgumentException("no core '" + core + "'");
                    }
                    yield new DailyWindows(task, zone(), setting("hour"), setting("grace"));
                }
            };
        }

        public Pairs.Limits pairs() {
            return new Pairs.Limits(
                    setting("before"),
                    setting("after"),
                    setting("grace"),
                    setting("left_outer") != 0,
                    setting("right_outer") != 0);
        }

        private Suppress.Limits limits() {
            return new Suppress.Limits(
                    place,
                    setting("until_close") != 0,
                    setting("delay"),
                    settings.getOrDefault("records", Long.MAX_VALUE),
                    settings.getOrDefault("bytes", Long.MAX_VALUE),
                    setting("stops") != 0,
                    setting("windowed") != 0,
                    setting("logged") != 0);
        }
    }

    /** For each item, the numbers of those that depend on it: that hold back its updates, or join it. */
    private final List<List<Integer>> over = new ArrayList<>();
    /** For each item, the place where its parts begin among those of all. */
    private final List<Integer> places = new ArrayList<>();

    public List<Integer> over(int tag) {
        return over.get(tag);
    }

    /** Whether it is a side of a join of tables. */
    public boolean isJoined(int tag) {
        return over(tag).stream().anyMatch(other -> items.get(other).core.equals("table_join"));
    }

    /** The capacity of its cache, in slices, unless it is set: small if rows are only looked up. */
    public int capacity(int tag) {
        int most = isLookedUp(tag) ? Table.CAPACITY / 10 : Table.CAPACITY;
        return (int) (long) items.get(tag).settings.getOrDefault("capacity", (long) most);
    }

    /** Whether its rows are only looked up, so that there is nothing to emit. */
    private boolean isLookedUp(int tag) {
        return items.get(tag).setting("silent") != 0 && over(tag).isEmpty();
    }

    public int place(int tag) {
        return places.get(tag);
    }

    /** Where its previous parts begin, if it remembers them. */
    public int placeOfOld(int tag) {
        return place(tag) + items.get(tag).names.size();
    }

    private void settle() {
        int place = 0;
        for (Item item : items) {
            over.add(new ArrayList<>());
            places.add(place);
            place += item.prefixes().size() * item.names.size();
        }
        for (int number = 0; number < items.size(); number++) {
            Item item = items.get(number);
            if (item.of >= 0) {
                over.get(item.of).add(number);
            }
            if (item.core.equals("references")) {
                over.get(item.link("table")).add(number);
            }
            if (item.settings.containsKey("left")) {
                over.get(item.link("left")).add(number);
                if (!item.isOfOne()) {
                    over.get(item.link("right")).add(number);
                }
            }
        }
    }

    public static OperatorPlan of(String json, StructType input) {
        OperatorPlan plan = new OperatorPlan();
        try {
            for (JsonNode node : new ObjectMapper().readTree(json)) {
                plan.items.add(node.has("of") ? plan.heldBack(node) : item(node, input));
            }
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the description of the aggregations is not JSON", error);
        }
        plan.settle();
        return plan;
    }

    /** An item that holds back the updates of another, and has the same parts. */
    private Item heldBack(JsonNode node) {
        int of = node.get("of").asInt();
        Item other = items.get(of);
        return new Item(
                node.get("core").asText(),
                settings(node),
                false,
                other.names,
                other.rules,
                other.types,
                new ArrayList<>(),
                node.path("name").asText(),
                of);
    }

    private static HashMap<String, Long> settings(JsonNode node) {
        HashMap<String, Long> settings = new HashMap<>();
        JsonNode written = node.get("settings");
        written.fieldNames().forEachRemaining(name -> settings.put(name, written.get(name).asLong()));
        return settings;
    }

    private static Item item(JsonNode node, StructType input) {
        Item item = new Item(
                node.get("core").asText(),
                settings(node),
                node.get("at_once").asBoolean(),
                new ArrayList<>(),
                new ArrayList<>(),
                new ArrayList<>(),
                new ArrayList<>(),
                node.path("name").asText(),
                -1);
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
