// Runs small programs on real Kafka Streams (its TopologyTestDriver), one record after another, and says what came out.
//
// Reads cases from its input, one JSON object per line, with "program" and "records", and writes them to its output
// with "steps", "stores" and "dropped". What these mean, and how to write the traces anew: tests/snapshots/traces.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneId;
import java.time.ZonedDateTime;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.function.BiFunction;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Aggregator;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KGroupedTable;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Merger;
import org.apache.kafka.streams.kstream.Predicate;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Reducer;
import org.apache.kafka.streams.kstream.SessionWindowedKStream;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.UnlimitedWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.kstream.ValueTransformerWithKey;
import org.apache.kafka.streams.kstream.ValueTransformerWithKeySupplier;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.kstream.Windows;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.processor.ProcessorContext;
import org.apache.kafka.streams.processor.api.ContextualFixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.TimestampedKeyValueStore;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.test.TestRecord;

@SuppressWarnings({"unchecked", "rawtypes"})
public class TraceAll {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final String APPLICATION = "traces";

    public static void main(final String[] args) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // for whoever else prints
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final ObjectNode each = (ObjectNode) MAPPER.readTree(line);
            new TraceAll(each).run();
            out.println(MAPPER.writeValueAsString(each));
        }
        out.flush();
    }

    /** What a store's keys and values are; `length` of windows that end so long after their start, -1 of sessions. */
    record Content(Serde keys, Serde values, boolean windowed, long length, boolean versioned) {
        boolean sessions() {
            return windowed && length < 0;
        }
    }

    /** What an operation gave, and how its keys and values are written. */
    record Result(Object node, Serde keys, Serde values, JsonNode windows) { }

    final ObjectNode each;
    final StreamsBuilder builder = new StreamsBuilder();
    final Map<String, Content> stores = new LinkedHashMap<>();
    final Map<String, Serde> inputs = new LinkedHashMap<>();
    final Map<String, Result> named = new LinkedHashMap<>();

    // What the program has come to, and how its keys and values are written.
    Object node;
    Serde keys;
    Serde values;
    JsonNode windows;

    TraceAll(final ObjectNode each) {
        this.each = each;
    }

    // --- the program ------------------------------------------------------------------------------------------

    void build() {
        for (final JsonNode op : each.get("program")) {
            if (op.has("of")) {
                final Result of = named.get(text(op, "of"));
                node = of.node;
                keys = of.keys;
                values = of.values;
                windows = of.windows;
            }
            switch (op.get("op").asText()) {
                case "stream", "table", "global_table" -> source(op);
                case "group_by_key" -> node = ((KStream) node).groupByKey(Grouped.with(keys, values));
                case "group_by" -> {
                    final String function = op.get("key").asText();
                    keys = Serdes.String();
                    if (node instanceof KTable table) {
                        final String value = op.has("value") ? op.get("value").asText() : "value";
                        values = value.equals("number") ? Serdes.Long() : values;
                        final KeyValueMapper mapper =
                            (k, v) -> KeyValue.pair(newKey(function, k, v), newValue(value, v));
                        node = table.groupBy(mapper, Grouped.with(keys, values));
                    } else {
                        node = ((KStream) node).groupBy((k, v) -> newKey(function, k, v), Grouped.with(keys, values));
                    }
                }
                case "windowed_by" -> window(op);
                case "count", "reduce", "aggregate" -> {
                    if (node instanceof KGroupedTable grouped) {
                        aggregate(op, grouped);
                    } else {
                        aggregate(op);
                    }
                }
                case "join", "left_join", "outer_join" -> join(op);
                case "merge" -> node = ((KStream) node).merge((KStream) named.get(text(op, "with")).node);
                case "cogroup" -> {
                    final Aggregator adder = (k, v, a) -> fold("concat", (String) a, v);
                    final KGroupedStream other = (KGroupedStream) named.get(text(op, "with")).node;
                    values = Serdes.String();
                    final Materialized store = materialized(op);
                    node = ((KGroupedStream) node).cogroup(adder).cogroup(other, adder).aggregate(() -> "", store);
                }
                case "process_values" -> {
                    values = Serdes.String();
                    node = ((KStream) node).processValues(HeadersToText::new);
                }
                case "suppress" -> node = ((KTable) node).suppress(suppressed(op));
                case "to_stream" -> node = ((KTable) node).toStream();
                case "to_table" -> node = ((KStream) node).toTable(materialized(op));
                case "select_key" -> {
                    final String function = op.get("key").asText();
                    keys = Serdes.String();
                    node = ((KStream) node).selectKey((k, v) -> newKey(function, k, v));
                }
                case "map_values" -> {
                    final ValueMapper mapper = mapper(op.get("function").asText());
                    if (node instanceof KTable) {
                        node = text(op, "store") == null
                            ? ((KTable) node).mapValues(mapper)
                            : ((KTable) node).mapValues(mapper, materialized(op));
                    } else {
                        node = ((KStream) node).mapValues(mapper);
                    }
                }
                case "transform_values" -> {
                    final String function = op.get("function").asText();
                    final String calls = text(op, "calls");
                    final String[] names = calls == null ? new String[0] : new String[] {calls};
                    if (calls != null) {
                        builder.addStateStore(Stores.timestampedKeyValueStoreBuilder(
                            Stores.persistentTimestampedKeyValueStore(calls), Serdes.String(), Serdes.Long()));
                        stores.put(calls, new Content(Serdes.String(), Serdes.Long(), false, -1, false));
                    }
                    final ValueTransformerWithKeySupplier transformers = () -> new Transformer(function, calls);
                    node = text(op, "store") == null
                        ? ((KTable) node).transformValues(transformers, names)
                        : ((KTable) node).transformValues(transformers, materialized(op), names);
                }
                case "filter", "filter_not" -> {
                    final boolean not = op.get("op").asText().equals("filter_not");
                    final Predicate predicate = predicate(op.get("function").asText());
                    if (node instanceof KStream stream) {
                        node = not ? stream.filterNot(predicate) : stream.filter(predicate);
                    } else if (text(op, "store") == null) {
                        node = not ? ((KTable) node).filterNot(predicate) : ((KTable) node).filter(predicate);
                    } else {
                        final Materialized store = materialized(op);
                        node = not
                            ? ((KTable) node).filterNot(predicate, store)
                            : ((KTable) node).filter(predicate, store);
                    }
                }
                default -> throw new IllegalArgumentException("unknown operation: " + op);
            }
            if (op.has("as")) {
                named.put(text(op, "as"), new Result(node, keys, values, windows));
            }
        }
        ((KStream) node).to("out", Produced.with(keys, values));
    }

    void source(final JsonNode op) {
        final String topic = op.has("topic") ? text(op, "topic") : "in";
        node = null;
        windows = null;
        keys = Serdes.String();
        values = serde(op.get("values").asText());
        inputs.put(topic, values);
        final Consumed consumed = Consumed.with(keys, values);
        final boolean global = op.get("op").asText().equals("global_table");
        if (op.get("op").asText().equals("stream")) {
            node = builder.stream(topic, consumed);
        } else if (text(op, "store") == null) {
            node = global ? builder.globalTable(topic, consumed) : builder.table(topic, consumed);
        } else {
            final Materialized store = materialized(op);
            node = global ? builder.globalTable(topic, consumed, store) : builder.table(topic, consumed, store);
        }
    }

    static Serde serde(final String name) {
        return name.equals("long") ? Serdes.Long() : Serdes.String();
    }

    static String text(final JsonNode op, final String field) {
        return op.hasNonNull(field) ? op.get(field).asText() : null;
    }

    static Duration ms(final JsonNode op, final String field) {
        return Duration.ofMillis(op.get(field).asLong());
    }

    void window(final JsonNode op) {
        windows = op;
        final Duration grace = ms(op, "grace");
        final KGroupedStream grouped = (KGroupedStream) node;
        node = switch (op.get("windows").asText()) {
            case "time" -> grouped.windowedBy(
                TimeWindows.ofSizeAndGrace(ms(op, "size"), grace).advanceBy(ms(op, "advance")));
            case "sliding" -> grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(ms(op, "difference"), grace));
            case "daily" -> grouped.windowedBy(
                new Days(ZoneId.of(text(op, "zone")), op.get("hour").asInt(), op.get("grace").asLong()));
            case "unlimited" -> grouped.windowedBy(
                UnlimitedWindows.of().startOn(Instant.ofEpochMilli(op.get("start").asLong())));
            case "session" -> grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(ms(op, "gap"), grace));
            default -> throw new IllegalArgumentException("unknown windows: " + op);
        };
    }

    /** As DailyTimeWindows of Confluent's kafka-streams-examples: from an hour of a zone's clock to the next day's. */
    static final class Days extends Windows<TimeWindow> {
        private final ZoneId zone;
        private final int hour;
        private final long grace;

        Days(final ZoneId zone, final int hour, final long grace) {
            this.zone = zone;
            this.hour = hour;
            this.grace = grace;
        }

        @Override
        public Map<Long, TimeWindow> windowsFor(final long timestamp) {
            final ZonedDateTime at = Instant.ofEpochMilli(timestamp).atZone(zone);
            final ZonedDateTime day = at.truncatedTo(ChronoUnit.DAYS);
            final ZonedDateTime begin = (at.getHour() >= hour ? day : day.minusDays(1)).withHour(hour);
            final long start = begin.toInstant().toEpochMilli();
            return Map.of(start, new TimeWindow(start, begin.plusDays(1).toInstant().toEpochMilli()));
        }

        @Override
        public long size() {
            return Duration.ofDays(1).toMillis();
        }

        @Override
        public long gracePeriodMs() {
            return grace;
        }
    }

    /** How the store of an operation is kept; and, from now on, which stores there are. */
    Materialized materialized(final JsonNode op) {
        final String name = text(op, "store");
        Materialized materialized = op.has("history")
            ? Materialized.as(Stores.persistentVersionedKeyValueStore(name, ms(op, "history")))
            : Materialized.as(name);
        materialized = materialized.withKeySerde(keys).withValueSerde(values);
        if (op.has("retention")) {
            materialized = materialized.withRetention(ms(op, "retention"));
        }
        if ("in memory".equals(text(op, "kind"))) {
            materialized = materialized.withStoreType(Materialized.StoreType.IN_MEMORY);
        }
        final boolean windowed = node instanceof TimeWindowedKStream || node instanceof SessionWindowedKStream;
        stores.put(name, new Content(keys, values, windowed, length(), op.has("history")));
        return materialized;
    }

    long length() {
        if (windows == null || windows.has("gap")) {
            return -1;
        }
        if (windows.has("hour") || windows.has("start")) {
            return windows.has("hour") ? Duration.ofDays(1).toMillis() : Long.MAX_VALUE;
        }
        return windows.get(windows.has("size") ? "size" : "difference").asLong();
    }

    void aggregate(final JsonNode op) {
        final String function = op.has("function") ? op.get("function").asText() : "count";
        final boolean count = op.get("op").asText().equals("count");
        if (count) {
            values = Serdes.Long();
        } else if (function.equals("concat") || function.startsWith("concat ")) {
            values = Serdes.String();
        }
        final Materialized store = materialized(op);
        final boolean close = "close".equals(text(op, "emit"));
        final EmitStrategy strategy = close ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        final Aggregator aggregator = (k, v, a) -> fold(function, (String) a, v);
        final Merger merger = (k, one, other) -> one + "+" + other;
        final Reducer reducer = (one, other) -> reduce(function, one, other);
        final boolean fold = op.get("op").asText().equals("aggregate");
        if (node instanceof KGroupedStream grouped) {
            node = count ? grouped.count(store)
                : fold ? grouped.aggregate(() -> "", aggregator, store) : grouped.reduce(reducer, store);
            return;
        }
        if (node instanceof SessionWindowedKStream sessions) {
            sessions = sessions.emitStrategy(strategy);
            node = count ? sessions.count(store)
                : fold ? sessions.aggregate(() -> "", aggregator, merger, store) : sessions.reduce(reducer, store);
            keys = new WindowedSerdes.SessionWindowedSerde(keys);
        } else {
            final TimeWindowedKStream timed = ((TimeWindowedKStream) node).emitStrategy(strategy);
            node = count ? timed.count(store)
                : fold ? timed.aggregate(() -> "", aggregator, store) : timed.reduce(reducer, store);
            keys = new WindowedSerdes.TimeWindowedSerde(keys, length());
        }
    }

    /** Of a table's groups: what comes is added, what goes away is subtracted. */
    void aggregate(final JsonNode op, final KGroupedTable grouped) {
        final String function = op.has("function") ? op.get("function").asText() : "count";
        final boolean sum = function.equals("sum");
        switch (op.get("op").asText()) {
            case "count" -> {
                values = Serdes.Long();
                node = grouped.count(materialized(op));
            }
            case "reduce" -> {
                final Reducer adder = (one, other) -> sum ? (Long) one + (Long) other : one + "+" + text(other);
                final Reducer subtractor = (one, other) -> sum ? (Long) one - (Long) other : one + "-" + text(other);
                node = grouped.reduce(adder, subtractor, materialized(op));
            }
            default -> {
                values = sum ? Serdes.Long() : Serdes.String();
                final Aggregator adder = (k, v, a) -> sum ? (Long) a + (Long) v : fold(function, a, v, "+");
                final Aggregator subtractor = (k, v, a) -> sum ? (Long) a - (Long) v : fold(function, a, v, "-");
                node = grouped.aggregate(() -> sum ? (Object) 0L : "", adder, subtractor, materialized(op));
            }
        }
    }

    static Object fold(final String function, final Object aggregate, final Object value, final String sign) {
        if (function.equals("concat unless -") && "-".equals(value)) {
            return null;
        }
        return text(aggregate) + sign + text(value);
    }

    static String text(final Object value) {
        return value == null ? "_" : value.toString();
    }

    void join(final JsonNode op) {
        final String name = op.get("op").asText();
        final Result with = named.get(text(op, "with"));
        final ValueJoiner joiner = (left, right) -> text(left) + "+" + text(right);
        if (node instanceof KTable left) {
            values = Serdes.String();
            final KTable right = (KTable) with.node;
            if (op.has("foreign_key")) {
                joinByForeignKey(op, left, right, joiner);
            } else if (text(op, "store") == null) {
                node = switch (name) {
                    case "join" -> left.join(right, joiner);
                    case "left_join" -> left.leftJoin(right, joiner);
                    default -> left.outerJoin(right, joiner);
                };
            } else {
                final Materialized store = materialized(op);
                node = switch (name) {
                    case "join" -> left.join(right, joiner, store);
                    case "left_join" -> left.leftJoin(right, joiner, store);
                    default -> left.outerJoin(right, joiner, store);
                };
            }
            return;
        }
        final KStream left = (KStream) node;
        if (with.node instanceof KTable table) {
            Joined joined = Joined.with(keys, values, with.values);
            if (op.has("grace")) {
                joined = joined.withGracePeriod(ms(op, "grace"));
            }
            node = name.equals("join") ? left.join(table, joiner, joined) : left.leftJoin(table, joiner, joined);
        } else if (with.node instanceof GlobalKTable table) {
            final String function = op.get("key").asText();
            final KeyValueMapper key = (k, v) -> newKey(function, k, v);
            node = name.equals("join") ? left.join(table, key, joiner) : left.leftJoin(table, key, joiner);
        } else {
            final JoinWindows within = JoinWindows.ofTimeDifferenceAndGrace(Duration.ZERO, ms(op, "grace"))
                .after(ms(op, "after").isNegative() ? Duration.ZERO : ms(op, "after"))
                .before(ms(op, "before")).after(ms(op, "after"));
            final StreamJoined joined = StreamJoined.with(keys, values, with.values);
            final KStream right = (KStream) with.node;
            node = switch (name) {
                case "join" -> left.join(right, joiner, within, joined);
                case "left_join" -> left.leftJoin(right, joiner, within, joined);
                default -> left.outerJoin(right, joiner, within, joined);
            };
        }
        values = Serdes.String();
    }

    /** With the function of the value alone where that is enough. */
    void joinByForeignKey(final JsonNode op, final KTable left, final KTable right, final ValueJoiner joiner) {
        final String foreign = op.get("foreign_key").asText();
        final Function ofValue = v -> newKey(foreign, null, v);
        final BiFunction ofBoth = (k, v) -> newKey(foreign, k, v);
        // A result without a store has no serdes: what remembers its rows would have the default ones.
        final Materialized made = text(op, "store") == null
            ? Materialized.with(keys, values) : materialized(op);
        final boolean inner = op.get("op").asText().equals("join");
        if (foreign.equals("key")) {
            node = inner ? left.join(right, ofBoth, joiner, made) : left.leftJoin(right, ofBoth, joiner, made);
        } else {
            node = inner ? left.join(right, ofValue, joiner, made) : left.leftJoin(right, ofValue, joiner, made);
        }
    }

    /** "concat" writes the values one after another; "concat unless -" forgets all at a "-" . */
    static String fold(final String function, final String aggregate, final Object value) {
        if (function.equals("concat unless -") && "-".equals(value)) {
            return null;
        }
        return (aggregate == null ? "" : aggregate) + (value == null ? "_" : value.toString());
    }

    static Object reduce(final String function, final Object one, final Object other) {
        switch (function) {
            case "concat":
                return one + (other == null ? "_" : (String) other);
            case "last":
                return other;
            case "first":
                return one;
            default:
        }
        if (one == null || other == null) {
            return one == null ? other : one;
        }
        return switch (function) {
            case "sum" -> (Long) one + (Long) other;
            case "min" -> Math.min((Long) one, (Long) other);
            case "max" -> Math.max((Long) one, (Long) other);
            default -> throw new IllegalArgumentException("unknown reducer: " + function);
        };
    }

    static String newKey(final String function, final Object key, final Object value) {
        return switch (function) {
            case "value" -> value == null ? null : value.toString();
            case "all" -> "all";
            case "letter" -> value == null || value.toString().startsWith("-") ? null
                : value.toString().substring(0, 1);
            case "key" -> key instanceof Windowed windowed ? (String) windowed.key() : (String) key;
            case "text" -> key.toString();
            case "key and start" -> ((Windowed) key).key() + "@" + ((Windowed) key).window().start();
            default -> throw new IllegalArgumentException("unknown key: " + function);
        };
    }

    static Object newValue(final String function, final Object value) {
        final String rest = value.toString().length() < 2 ? null : value.toString().substring(1);
        return switch (function) {
            case "value" -> value;
            case "rest" -> rest;
            case "number" -> rest == null ? null : Long.valueOf(rest);
            default -> throw new IllegalArgumentException("unknown value: " + function);
        };
    }

    static ValueMapper mapper(final String function) {
        return switch (function) {
            case "twice" -> v -> v == null ? null : 2 * (Long) v;
            case "upper" -> v -> v == null ? null : ((String) v).toUpperCase(Locale.ROOT);
            case "upper unless x" -> v -> v == null || v.equals("x") ? null : ((String) v).toUpperCase(Locale.ROOT);
            case "null" -> v -> null;
            default -> throw new IllegalArgumentException("unknown function: " + function);
        };
    }

    /** Counts how often it is called for a key, if it has a store for that. */
    static final class Transformer implements ValueTransformerWithKey<Object, Object, Object> {
        private final String function;
        private final String calls;
        private TimestampedKeyValueStore<String, Long> store;

        Transformer(final String function, final String calls) {
            this.function = function;
            this.calls = calls;
        }

        @Override
        public void init(final ProcessorContext context) {
            store = calls == null ? null : context.getStateStore(calls);
        }

        @Override
        public Object transform(final Object key, final Object value) {
            String count = "";
            if (store != null) {
                final ValueAndTimestamp<Long> before = store.get((String) key);
                final long now = before == null ? 1 : before.value() + 1;
                store.put((String) key, ValueAndTimestamp.make(now, 7L));
                count = "#" + now;
            }
            return switch (function) {
                case "upper unless x" ->
                    value == null || value.equals("x") ? null : ((String) value).toUpperCase(Locale.ROOT) + count;
                case "key and text" -> key + "=" + text(value) + count;
                default -> throw new IllegalArgumentException("unknown function: " + function);
            };
        }

        @Override
        public void close() { }
    }

    /** A text of the headers that a processor gets: `h=1,h=_`. */
    static final class HeadersToText extends ContextualFixedKeyProcessor<Object, Object, Object> {
        @Override
        public void process(final FixedKeyRecord<Object, Object> record) {
            final List<String> all = new ArrayList<>();
            for (final Header header : record.headers()) {
                all.add(header.key() + "=" + text(content(header)));
            }
            context().forward(record.withValue(String.join(",", all)));
        }
    }

    static String content(final Header header) {
        return header.value() == null ? null : new String(header.value(), StandardCharsets.UTF_8);
    }

    static Predicate predicate(final String function) {
        return switch (function) {
            case "even" -> (k, v) -> v != null && (Long) v % 2 == 0;
            case "above 1" -> (k, v) -> v != null && (Long) v > 1;
            default -> {
                if (!function.startsWith("not ")) {
                    throw new IllegalArgumentException("unknown predicate: " + function);
                }
                yield (k, v) -> v != null && !v.equals(function.substring(4));
            }
        };
    }

    Suppressed suppressed(final JsonNode op) {
        final boolean stop = "stop".equals(text(op, "full"));
        if (op.get("until").asText().equals("window closes")) {
            Suppressed.StrictBufferConfig buffer = Suppressed.BufferConfig.unbounded();
            if (op.has("records")) {
                buffer = Suppressed.BufferConfig.maxRecords(op.get("records").asLong()).shutDownWhenFull();
            }
            return Suppressed.untilWindowCloses(buffer);
        }
        Suppressed.BufferConfig buffer = Suppressed.BufferConfig.unbounded();
        if (op.has("records")) {
            final Suppressed.EagerBufferConfig some = Suppressed.BufferConfig.maxRecords(op.get("records").asLong());
            buffer = op.has("bytes") ? some.withMaxBytes(op.get("bytes").asLong()) : some;
        } else if (op.has("bytes")) {
            buffer = Suppressed.BufferConfig.maxBytes(op.get("bytes").asLong());
        }
        return Suppressed.untilTimeLimit(ms(op, "ms"), stop ? buffer.shutDownWhenFull() : buffer);
    }

    // --- the run ----------------------------------------------------------------------------------------------

    void run() throws Exception {
        build();
        final Path directory = Files.createTempDirectory("traces");
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        // Every update is there; and what is sent when a window closes, and what found no match, does not wait
        // for a clock.
        final boolean cached = each.get("program").findValue("cached") != null;
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, cached ? 10_000_000 : 0);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0);
        config.put(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_OUTER_JOIN_SPURIOUS_RESULTS_FIX, 0);
        if (each.get("program").findValue("foreign_key") != null) { // tables that are mapped have no serde
            config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
            config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        }
        final boolean topics = each.get("program").findValue("topic") != null;
        final ArrayNode steps = each.putArray("steps");
        final ObjectNode contents = MAPPER.createObjectNode();
        long dropped = 0;
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config, Instant.ofEpochMilli(0))) {
            final Map<String, TestInputTopic> in = new LinkedHashMap<>();
            inputs.forEach((topic, values) ->
                in.put(topic, driver.createInputTopic(topic, new StringSerializer(), values.serializer())));
            final TestOutputTopic out = driver.createOutputTopic("out", keys.deserializer(), values.deserializer());
            final Map<String, TestOutputTopic<byte[], byte[]>> logs = new LinkedHashMap<>();
            for (final String store : stores.keySet()) {
                logs.put(store, driver.createOutputTopic(APPLICATION + "-" + store + "-changelog",
                    new ByteArrayDeserializer(), new ByteArrayDeserializer()));
            }
            boolean failed = false;
            for (final JsonNode record : each.get("records")) {
                final ObjectNode step = steps.addObject();
                final JsonNode value = record.get(1);
                try {
                    final Headers headers = new RecordHeaders();
                    for (final JsonNode header : record.path(topics ? 4 : 3)) {
                        headers.add(header.get(0).asText(), header.get(1).isNull() ? null
                            : header.get(1).asText().getBytes(StandardCharsets.UTF_8));
                    }
                    in.get(topics ? record.get(3).asText() : "in").pipeInput(new TestRecord(record.get(0).isNull() ? null : record.get(0).asText(),
                        value.isNull() ? null : value.isTextual() ? value.asText() : (Object) value.asLong(),
                        headers, record.get(2).asLong()));
                } catch (final Exception error) {
                    step.put("error", root(error).getMessage());
                    failed = true;
                }
                final ArrayNode outs = MAPPER.createArrayNode();
                final ArrayNode headers = MAPPER.createArrayNode();
                for (final Object one : out.readRecordsToList()) {
                    final TestRecord output = (TestRecord) one;
                    outs.add(row(output.key(), output.value(), output.timestamp()));
                    final ArrayNode all = headers.addArray();
                    for (final Header header : output.headers()) {
                        all.addArray().add(header.key()).add(content(header));
                    }
                }
                if (!outs.isEmpty()) {
                    step.set("out", outs);
                    if (each.get("records").get(0).has(topics ? 4 : 3)) {
                        step.set("headers", headers);
                    }
                }
                final ObjectNode written = MAPPER.createObjectNode();
                for (final Map.Entry<String, TestOutputTopic<byte[], byte[]>> log : logs.entrySet()) {
                    final ArrayNode rows = MAPPER.createArrayNode();
                    for (final TestRecord<byte[], byte[]> one : log.getValue().readRecordsToList()) {
                        rows.add(change(stores.get(log.getKey()), one));
                    }
                    if (!rows.isEmpty()) {
                        written.set(log.getKey(), rows);
                    }
                }
                if (!written.isEmpty()) {
                    step.set("log", written);
                }
                final long now = dropped(driver);
                if (now != dropped) {
                    step.put("dropped", now - dropped);
                    dropped = now;
                }
                if (failed) {
                    break;
                }
            }
            if (!failed) {
                for (final Map.Entry<String, Content> store : stores.entrySet()) {
                    if (!store.getValue().versioned) {
                        contents.set(store.getKey(), content(driver, store.getKey(), store.getValue()));
                    }
                }
            }
        }
        each.set("stores", contents);
        each.put("dropped", dropped);
        Files.deleteIfExists(directory.resolve(APPLICATION));
        Files.deleteIfExists(directory);
    }

    static Throwable root(final Throwable error) {
        return error.getCause() == null ? error : root(error.getCause());
    }

    static long dropped(final TopologyTestDriver driver) {
        return driver.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().name().equals("dropped-records-total"))
            .mapToLong(metric -> ((Double) metric.getValue().metricValue()).longValue()).sum();
    }

    /** A row: key, value, timestamp, and of windows start and end. */
    static ArrayNode row(final Object key, final Object value, final Long timestamp) {
        final ArrayNode row = MAPPER.createArrayNode();
        final Object plain = key instanceof Windowed windowed ? windowed.key() : key;
        row.add((String) plain);
        row.addPOJO(value);
        row.add(timestamp);
        if (key instanceof Windowed windowed) {
            row.add(windowed.window().start()).add(windowed.window().end());
        }
        return row;
    }

    /** A record of a changelog. Its key: key, start, and a number; or of sessions: key, end, start. */
    static ArrayNode change(final Content store, final TestRecord<byte[], byte[]> one) {
        final Object value = store.values.deserializer().deserialize("", one.value());
        final Deserializer keys = store.keys.deserializer();
        if (!store.windowed) {
            return row(keys.deserialize("", one.key()), value, one.timestamp());
        }
        final ByteBuffer buffer = ByteBuffer.wrap(one.key());
        final int length = one.key().length - (store.sessions() ? 16 : 12);
        final ArrayNode row = row(keys.deserialize("", Arrays.copyOf(one.key(), length)), value, one.timestamp());
        if (store.sessions()) {
            return row.add(buffer.getLong(length + 8)).add(buffer.getLong(length));
        }
        return row.add(buffer.getLong(length)).add(buffer.getLong(length) + store.length);
    }

    /** What a store has at the end, by key and start. Session stores have no timestamps. */
    static ArrayNode content(final TopologyTestDriver driver, final String name, final Content store) {
        final List<ArrayNode> rows = new ArrayList<>();
        try (KeyValueIterator all = !store.windowed ? driver.getTimestampedKeyValueStore(name).all()
            : store.sessions() ? driver.getSessionStore(name).fetch(null, null)
            : driver.getTimestampedWindowStore(name).all()) {
            while (all.hasNext()) {
                final KeyValue next = (KeyValue) all.next();
                if (store.sessions()) {
                    rows.add(row(next.key, next.value, null));
                } else {
                    final ValueAndTimestamp value = (ValueAndTimestamp) next.value;
                    rows.add(row(next.key, value.value(), value.timestamp()));
                }
            }
        }
        rows.sort(Comparator.<ArrayNode, String>comparing(row -> row.get(0).asText())
            .thenComparing(row -> row.path(3).asLong()).thenComparing(row -> row.path(4).asLong()));
        return MAPPER.createArrayNode().addAll(rows);
    }
}
