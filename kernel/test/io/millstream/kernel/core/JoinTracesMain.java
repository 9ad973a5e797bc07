package io.millstream.kernel.core;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.function.Supplier;
import java.util.function.UnaryOperator;

/**
 * Runs the programs of traces with joins (tests/snapshots/traces.py) on cores, and prints a line for each: its steps.
 *
 * <p>Tables and joins are cores. What stands around them in a program is written here, as Kafka Streams has it: each
 * record goes through the whole program before the next one, and a table's change says what was there before.
 *
 * <p>A line of the input has "program", in which a filter has "is_quiet" if it emits nothing for a row that was and
 * is absent; "records"; "batches", how many records each micro-batch has, by default 1; and "capacity", of the
 * caches. A step is what a micro-batch led to; "kept" in it says how much there is afterwards.
 */
public class JoinTracesMain {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    protected final JsonNode asked;
    private final Parts parts = new Parts(List.of(Rules.of("last", "string")));
    private final Map<String, Node> sources = new HashMap<>();
    private final List<Opened<?>> opened = new ArrayList<>();
    private ObjectNode step;

    protected JoinTracesMain(JsonNode asked) {
        this.asked = asked;
    }

    public static void main(String[] arguments) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            System.out.println(MAPPER.writeValueAsString(new JoinTracesMain(MAPPER.readTree(line)).run()));
        }
    }

    protected final ArrayNode run() {
        build();
        begin();
        ArrayNode steps = MAPPER.createArrayNode();
        JsonNode records = asked.get("records");
        int from = 0;
        for (int batch = 0; from < records.size(); batch++) {
            step = steps.addObject();
            int to = Math.min(records.size(), from + asked.path("batches").path(batch).asInt(1));
            for (; from < to; from++) {
                JsonNode record = records.get(from);
                sources.get(record.get(3).asText())
                        .send(new Change(text(record, 0), value(record.get(1)), null, record.get(2).asLong()));
            }
            end(step, from);
        }
        return steps;
    }

    /** Called when the program is there, before its first record. */
    protected void begin() {
        // Everything is opened when it is needed.
    }

    /**
     * Called at the end of a micro-batch.
     *
     * @param ofBatch what it led to
     * @param next the number of the next record
     */
    @SuppressWarnings("unused")
    protected void end(ObjectNode ofBatch, int next) {
        opened.forEach(Opened::close);
        ofBatch.put("kept", opened.stream().mapToInt(each -> each.memory.size()).sum());
    }

    private static String text(JsonNode record, int place) {
        return record.get(place).isNull() ? null : record.get(place).asText();
    }

    private static Object value(JsonNode value) {
        return value.isNull() ? null : value.isTextual() ? value.asText() : (Object) value.asLong();
    }

    // --- programs ----------------------------------------------------------------------------------------

    /**
     * A record, or of a table a change.
     *
     * @param old what there was before
     * @param since the time of the rows that it is made of
     * @param isPast whether there is a later version of the row
     */
    public record Change(String key, Object value, Object old, long at, long since, boolean isPast) {
        public Change(String key, Object value, Object old, long at) {
            this(key, value, old, at, at, false);
        }

        public byte[] bytes() {
            return key == null ? null : key.getBytes(StandardCharsets.UTF_8);
        }

        Change of(Object newValue, Object newOld) {
            return new Change(key, newValue, newOld, at, since, isPast);
        }

        /** Whether a row is not there, and was not. */
        boolean isNothing() {
            return value == null && old == null;
        }
    }

    /** What an operation gives. */
    protected static final class Node {
        public final List<Consumer<Change>> next = new ArrayList<>();
        public final boolean isTable;
        /** Whether it is a filter. */
        public boolean isFiltered;
        /** How far back a table's rows are known; null if there are only the last ones. */
        public Long history;
        /** Of what is being grouped by its values: the new key. */
        Function<Object, String> groups;

        public Node(boolean isTable) {
            this.isTable = isTable;
        }

        public void send(Change change) {
            next.forEach(each -> each.accept(change));
        }
    }

    private void build() {
        Map<String, Node> named = new HashMap<>();
        Node last = null;
        for (JsonNode op : asked.get("program")) {
            Node before = op.has("of") ? named.get(op.get("of").asText()) : last;
            last = made(op, before, op.has("with") ? named.get(op.get("with").asText()) : null);
            if (op.has("as")) {
                named.put(op.get("as").asText(), last);
            }
        }
        Objects.requireNonNull(last).next.add(change -> step.withArray("out")
                .addArray()
                .add(change.key)
                .addPOJO(change.value)
                .add(change.at));
    }

    private Node made(JsonNode op, Node before, Node with) {
        String name = op.get("op").asText();
        switch (name) {
            case "stream":
                return source(op);
            case "table":
                return table(op, source(op));
            case "to_table":
                return table(op, before);
            case "to_stream", "group_by_key":
                return made(false, before, (change, made) -> made.send(change));
            case "select_key":
                Function<Object, String> key = newKey(op.get("key").asText());
                return made(false, before, (change, made) ->
                        made.send(new Change(key.apply(change.value), change.value, null, change.at)));
            case "group_by":
                Node grouped = made(before.isTable, before, (change, made) -> made.send(change));
                grouped.groups = newKey(op.get("key").asText());
                return grouped;
            case "count", "reduce", "aggregate":
                return before.isTable ? foldOfTable(op, before) : fold(op, before);
            case "filter", "filter_not":
                String not = op.get("function").asText().substring("not ".length());
                Predicate<Object> passes = value -> value.equals(not) == name.equals("filter_not");
                return changed(op, before, value -> value != null && passes.test(value) ? value : null, true);
            case "map_values":
                return changed(op, before, mapper(op.get("function").asText()), false);
            case "join", "left_join", "outer_join":
                return before.isTable ? joinTables(op, before, with)
                        : with.isTable ? lookUp(op, before, with) : pair(op, before, with);
            default:
                throw new IllegalArgumentException("no operation " + op);
        }
    }

    private Node source(JsonNode op) {
        Node source = new Node(false);
        sources.put(op.path("topic").asText("in"), source);
        return source;
    }

    private Node made(boolean isTable, Node before, BiConsumer<Change, Node> handle) {
        Node made = new Node(isTable);
        before.next.add(change -> handle.accept(change, made));
        return made;
    }

    protected static Long history(JsonNode op) {
        return op.has("history") ? op.get("history").asLong() : null;
    }

    /** Rows of a table or a stream, with other values. */
    private Node changed(JsonNode op, Node before, UnaryOperator<Object> function, boolean isFilter) {
        boolean isQuiet = op.path("is_quiet").asBoolean();
        Map<String, Object> kept = new HashMap<>();
        Node made = made(before.isTable, before, (change, to) -> {
            Change other = change.of(function.apply(change.value), function.apply(change.old));
            if (op.has("store") && !op.has("history")) {
                other = inStore(op, other.of(other.value, kept.put(change.key, other.value)));
            }
            boolean passes = before.isTable ? !isQuiet || !other.isNothing() : other.value != null;
            if (passes || !isFilter) {
                to.send(other);
            }
        });
        made.history = op.has("store") ? history(op) : before.history;
        made.isFiltered = isFilter;
        return made;
    }

    /** A change of what has a store, or has none: in a store, a row has the time of its update. */
    protected static Change inStore(JsonNode op, Change change) {
        return op.has("store") ? new Change(change.key, change.value, change.old, change.at) : change;
    }

    private static UnaryOperator<Object> mapper(String function) {
        return switch (function) {
            case "upper" -> value -> value == null ? null : ((String) value).toUpperCase(Locale.ROOT);
            case "upper unless x" -> value ->
                value == null || value.equals("x") ? null : ((String) value).toUpperCase(Locale.ROOT);
            case "null" -> value -> null;
            default -> throw new IllegalArgumentException("no function " + function);
        };
    }

    protected static Function<Object, String> newKey(String function) {
        return switch (function) {
            case "value" -> value -> value == null ? null : value.toString();
            case "letter" -> value -> value == null || value.toString().startsWith("-") ? null
                    : value.toString().substring(0, 1);
            case "key" -> null;
            default -> throw new IllegalArgumentException("no key " + function);
        };
    }

    // --- aggregations ------------------------------------------------------------------------------------

    private record Aggregate(Object value, long at) {}

    /** The key that a value belongs to; null for none. */
    private static String group(Node grouped, String key, Object value) {
        return value == null ? null : grouped.groups == null ? key : grouped.groups.apply(value);
    }

    /** What records of a stream come to: "count", "concat", and "concat unless -", which forgets all at a `-`. */
    private Node fold(JsonNode op, Node before) {
        Map<String, Aggregate> kept = new HashMap<>();
        boolean counts = op.get("op").asText().equals("count");
        boolean forgets = op.path("function").asText().endsWith("-");
        Node made = made(true, before, (change, to) -> {
            String key = group(before, change.key, change.value);
            if (key == null || change.value == null) {
                return;
            }
            Aggregate old = kept.get(key);
            Object sum = old == null ? (counts ? (Object) 0L : "") : old.value;
            Object value = counts ? (Object) ((Long) sum + 1)
                    : forgets && change.value.equals("-") ? null : sum + shown(change.value);
            long at = old == null ? change.at : Math.max(old.at, change.at);
            kept.put(key, new Aggregate(value, at));
            if (value == null) {
                kept.remove(key);
            }
            to.send(new Change(key, value, old == null ? null : old.value, at));
        });
        made.history = history(op);
        return made;
    }

    /** What rows of a table come to: "count", or "concat", which adds `+` and the value, and subtracts with `-`. */
    private Node foldOfTable(JsonNode op, Node before) {
        Map<String, Aggregate> kept = new HashMap<>();
        boolean counts = op.get("op").asText().equals("count");
        return made(true, before, (change, to) -> {
            if (change.isPast) {
                return;
            }
            String key = group(before, change.key, change.value);
            String oldKey = group(before, change.key, change.old);
            List<Change> moves = new ArrayList<>();
            if (key != null && key.equals(oldKey)) {
                moves.add(new Change(key, change.value, change.old, change.at));
            } else {
                moves.add(new Change(oldKey, null, change.old, change.at));
                moves.add(new Change(key, change.value, null, change.at));
            }
            for (Change move : moves) {
                if (move.key == null) {
                    continue;
                }
                Aggregate old = kept.get(move.key);
                Object value = old == null ? null : old.value;
                if (move.old != null && value != null) {
                    value = counts ? (Object) ((Long) value - 1) : value + "-" + shown(move.old);
                }
                if (move.value != null) {
                    value = counts ? (Object) (value == null ? 1 : (Long) value + 1)
                            : (value == null ? "" : value) + "+" + shown(move.value);
                }
                long at = old == null ? move.at : Math.max(old.at, move.at);
                kept.put(move.key, new Aggregate(value, at));
                to.send(new Change(move.key, value, old == null ? null : old.value, at));
            }
        });
    }

    private static String shown(Object value) {
        return value == null ? "_" : value.toString();
    }

    protected static String joined(Object left, Object right) {
        return shown(left) + "+" + shown(right);
    }

    // --- tables and joins --------------------------------------------------------------------------------

    /** The last rows of a stream, or of a topic, or all of its history. */
    protected Node table(JsonNode op, Node before) {
        Node made = new Node(true);
        made.history = history(op);
        Opened<Core> rows = opened(Core::finish, memory -> core(memory, made.history, passingOn((key, window) ->
                made.send(new Change(
                        key, window.parts[0], first(window.before), window.at, window.at, window.isPast)))));
        before.next.add(change -> {
            if (change.key != null) {
                rows.get().record(change.bytes(), change.at, new Object[] {change.value});
            }
        });
        return made;
    }

    private Core core(Memory memory, Long history, Output output) {
        Task task = task(memory, output, false);
        return history == null ? new Latest(task) : new Versions(task, history);
    }

    private static Object first(Object[] parts) {
        return parts == null ? null : parts[0];
    }

    protected Node lookUp(JsonNode op, Node stream, Node table) {
        boolean isInner = op.get("op").asText().equals("join");
        Node made = new Node(false);
        Opened<Core> rows = opened(Core::finish, memory -> core(memory, table.history, passingOn(null)));
        // A table has its row before anybody hears of it.
        Consumer<Change> row = change -> rows.get().record(change.bytes(), change.at, new Object[] {change.value});
        table.next.add(0, row);
        Matches matches = matches(
                (key, at, left, right) -> made.send(new Change(key, joined(left, right), null, at)));
        Lookup lookup = new Lookup(() -> (TableView) rows.get(), !isInner, matches);
        Opened<Core> waiting = opened(Core::finish, memory ->
                new Waiting(task(memory, null, true), op.path("grace").asLong(), lookup));
        stream.next.add(change -> {
            Object[] record = {change.value};
            if (change.value == null || change.key == null && isInner) {
                return;
            }
            if (op.has("grace")) {
                waiting.get().record(change.bytes(), change.at, record);
            } else {
                lookup.record(change.bytes(), change.at, record);
            }
        });
        return made;
    }

    protected Node pair(JsonNode op, Node left, Node right) {
        boolean isLeftOuter = !op.get("op").asText().equals("join");
        boolean isRightOuter = op.get("op").asText().equals("outer_join");
        Node made = new Node(false);
        Pairs.Limits limits = new Pairs.Limits(
                op.get("before").asLong(),
                op.get("after").asLong(),
                op.get("grace").asLong(),
                isLeftOuter,
                isRightOuter);
        Matches matches = matches((key, at, one, other) -> made.send(new Change(key, joined(one, other), null, at)));
        Function<Memory, Records> records = memory -> new Records(
                task(memory, passingOn(null), false),
                limits.before() + limits.after(),
                limits.retention(),
                limits.patience());
        Opened<Records> lefts = opened(Records::finish, records);
        Opened<Records> rights = opened(Records::finish, records);
        Opened<Pairs> pairs = opened(Pairs::finish, memory -> {
            Due waiting = new LastingDue(memory.closing, span(), true);
            return new Pairs(memory.clock, waiting, limits, lefts.get(), rights.get(), matches);
        });
        for (boolean isLeft : new boolean[] {true, false}) {
            (isLeft ? left : right).next.add(change -> {
                boolean isOuter = isLeft ? isLeftOuter : isRightOuter;
                if (change.value != null && (change.key != null || isOuter)) {
                    pairs.get().record(isLeft, change.bytes(), change.at, new Object[] {change.value});
                }
            });
        }
        return made;
    }

    protected Node joinTables(JsonNode op, Node left, Node right) {
        String name = op.get("op").asText();
        Node made = new Node(true);
        made.history = history(op);
        List<Opened<Core>> sides = new ArrayList<>();
        TableJoin join = new TableJoin(
                () -> (TableView) sides.get(0).get(),
                () -> (TableView) sides.get(sides.size() - 1).get(),
                new Matches() {
                    @Override
                    public void match(byte[] key, long at, Object[] one, Object[] other) {
                        throw new IllegalStateException("tables have rows, and no records");
                    }

                    @Override
                    public void change(
                            byte[] key, long at, long since, boolean isLeft, Window one, Window other) {
                        Window changed = Objects.requireNonNull(isLeft ? one : other);
                        Window beside = isLeft ? other : one;
                        String text = new String(key, StandardCharsets.UTF_8);
                        Change change = new Change(text, changed.parts[0], first(changed.before), at, since, false);
                        emit(name, isLeft, inStore(op, change), beside == null ? null : beside.parts[0], made);
                    }
                });
        Output nobody = passingOn(null);
        if (left == right) {
            sides.add(opened(
                    Core::finish, memory -> core(memory, left.history, join.of(join.of(nobody, true), false))));
        } else {
            sides.add(opened(Core::finish, memory -> core(memory, left.history, join.of(nobody, true))));
            sides.add(opened(Core::finish, memory -> core(memory, right.history, join.of(nobody, false))));
        }
        for (int side = 0; side < sides.size(); side++) {
            Node table = side == 0 ? left : right;
            Supplier<Core> rows = sides.get(side);
            table.next.add(change -> {
                Object[] row = {change.value};
                if (rows.get() instanceof Latest latest) {
                    latest.record(change.bytes(), change.at, change.since, row, null);
                } else {
                    rows.get().record(change.bytes(), change.at, row);
                }
            });
        }
        return made;
    }

    /** Sends what a change on one side makes of the join, if it makes anything. */
    protected static void emit(String join, boolean isLeft, Change change, Object other, Node to) {
        boolean needsOther = join.equals("join") || join.equals("left_join") && !isLeft;
        if (needsOther ? other == null : change.isNothing() && other == null) {
            return;
        }
        boolean needsOwn = join.equals("join") || join.equals("left_join") && isLeft;
        UnaryOperator<Object> result = own -> own == null && (needsOwn || other == null) ? null
                : isLeft ? joined(own, other) : joined(other, own);
        to.send(change.of(result.apply(change.value), result.apply(change.old)));
    }

    // --- cores -------------------------------------------------------------------------------------------

    /** Something with state: opened anew for each micro-batch that needs it. */
    private static final class Opened<T> implements Supplier<T> {
        final Memory memory;
        private final Function<Memory, T> open;
        private final Consumer<T> finish;
        private T now;

        Opened(Memory memory, Function<Memory, T> open, Consumer<T> finish) {
            this.memory = memory;
            this.open = open;
            this.finish = finish;
        }

        @Override
        public T get() {
            if (now == null) {
                now = open.apply(memory);
            }
            return now;
        }

        void close() {
            if (now != null) {
                finish.accept(now);
                now = null;
            }
        }
    }

    private <T> Opened<T> opened(Consumer<T> finish, Function<Memory, T> open) {
        Opened<T> made = new Opened<>(new Memory(parts), open, finish);
        opened.add(made);
        return made;
    }

    private long span() {
        return asked.path("span").asLong(4);
    }

    private Task task(Memory memory, Output output, boolean isOnClose) {
        int capacity = asked.path("capacity").asInt(Table.CAPACITY);
        Table table = new Table(memory, output, true, capacity, () -> Long.MAX_VALUE);
        Due due = new LastingDue(memory.due, span(), false);
        Due closing = isOnClose ? new LastingDue(memory.closing, span(), true) : null;
        return new Task(parts, table, output, memory.clock, due, closing, true);
    }

    private interface Match {
        void match(String key, long at, Object left, Object right);
    }

    private static Matches matches(Match match) {
        return new Matches() {
            @Override
            public void match(byte[] key, long at, Object[] left, Object[] right) {
                String name = key == null ? null : new String(key, StandardCharsets.UTF_8);
                match.match(name, at, first(left), first(right));
            }

            @Override
            public void change(byte[] key, long at, long since, boolean isLeft, Window left, Window right) {
                throw new IllegalStateException("streams have records, and no rows");
            }
        };
    }

    /** @param updates what hears of each; null for nobody */
    private static Output passingOn(BiConsumer<String, Window> updates) {
        return new Output() {
            @Override
            public void update(byte[] key, Window window) {
                if (updates != null) {
                    updates.accept(new String(key, StandardCharsets.UTF_8), window);
                }
            }

            @Override
            public void gone(byte[] key, Window window) {
                throw new IllegalStateException("a row stays, with nothing in it");
            }

            @Override
            public void closed(byte[] key, Window window) {
                throw new IllegalStateException("nothing closes");
            }

            @Override
            public void late(byte[] key, long at, long start, long end, long streamTime) {
                throw new IllegalStateException("nothing is late");
            }
        };
    }
}
