// Runs processors on real Kafka Streams (its TopologyTestDriver) that do what their records tell them, call by call, and
// says what each call returned.
//
// Reads cases from its input, one JSON object per line, and writes them to its output with "steps". What these mean, and
// how to write them anew: tests/snapshots/calls.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.Cancellable;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorSupplier;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.ProcessingContext;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.test.TestRecord;

@SuppressWarnings({"unchecked", "rawtypes"})
public class CallAll {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final String APPLICATION = "calls";
    static final HexFormat HEX = HexFormat.of();

    public static void main(final String[] args) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // for whoever else prints
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final ObjectNode each = (ObjectNode) MAPPER.readTree(line);
            new CallAll(each).run();
            out.println(MAPPER.writeValueAsString(each));
        }
        out.flush();
    }

    final ObjectNode each;
    final Map<String, JsonNode> kinds = new HashMap<>();
    final Map<String, Cancellable> scheduled = new HashMap<>();
    ArrayNode log = MAPPER.createArrayNode();

    CallAll(final ObjectNode each) {
        this.each = each;
    }

    // --- the topology -----------------------------------------------------------------------------------------

    Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        for (final JsonNode one : each.get("stores")) {
            kinds.put(one.get("name").asText(), one);
            builder.addStateStore(builder(one));
        }
        final Serde<String> s = Serdes.String();
        final Map<String, KStream<String, String>> streams = new HashMap<>();
        streams.put("source", builder.stream("in", Consumed.with(s, s).withName("source")));
        for (final JsonNode one : each.get("processors")) {
            final String name = one.get("name").asText();
            final KStream<String, String> parent = streams.get(one.get("parent").asText());
            final String[] stores = texts(one.path("stores"));
            streams.put(name, one.path("fixed").asBoolean()
                ? parent.processValues((FixedKeyProcessorSupplier<String, String, String>) () -> new Fixed(name),
                    Named.as(name), stores)
                : parent.process((ProcessorSupplier<String, String, String, String>) () -> new Free(name),
                    Named.as(name), stores));
        }
        for (final JsonNode one : each.get("sinks")) {
            final String name = one.get("name").asText();
            streams.get(one.get("parent").asText()).to(name, Produced.with(s, s).withName(name));
        }
        return builder.build();
    }

    static String[] texts(final JsonNode all) {
        final List<String> found = new ArrayList<>();
        all.forEach(one -> found.add(one.asText()));
        return found.toArray(String[]::new);
    }

    static StoreBuilder<?> builder(final JsonNode one) {
        final Serde<String> s = Serdes.String();
        final String name = one.get("name").asText();
        final boolean memory = one.path("memory").asBoolean();
        final Duration retention = Duration.ofMillis(one.path("retention").asLong());
        final Duration window = Duration.ofMillis(one.path("window").asLong());
        final boolean duplicates = one.path("duplicates").asBoolean();
        final StoreBuilder<?> builder = switch (one.get("kind").asText()) {
            case "key-value" -> Stores.keyValueStoreBuilder(
                memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentKeyValueStore(name), s, s);
            case "timestamped" -> Stores.timestampedKeyValueStoreBuilder(
                memory ? Stores.inMemoryKeyValueStore(name) : Stores.persistentTimestampedKeyValueStore(name), s, s);
            case "window" -> Stores.windowStoreBuilder(
                memory ? Stores.inMemoryWindowStore(name, retention, window, duplicates)
                    : Stores.persistentWindowStore(name, retention, window, duplicates), s, s);
            case "timestamped-window" -> Stores.timestampedWindowStoreBuilder(
                memory ? Stores.inMemoryWindowStore(name, retention, window, duplicates)
                    : Stores.persistentTimestampedWindowStore(name, retention, window, duplicates), s, s);
            case "session" -> Stores.sessionStoreBuilder(
                memory ? Stores.inMemorySessionStore(name, retention)
                    : Stores.persistentSessionStore(name, retention), s, s);
            case "versioned" -> Stores.versionedKeyValueStoreBuilder(
                Stores.persistentVersionedKeyValueStore(name, Duration.ofMillis(one.get("history").asLong())), s, s);
            default -> throw new IllegalArgumentException(one.toString());
        };
        return one.path("logged").asBoolean(true) ? builder : builder.withLoggingDisabled();
    }

    // --- the processors ---------------------------------------------------------------------------------------

    final class Free implements Processor<String, String, String, String> {
        final String name;
        ProcessorContext<String, String> context;

        Free(final String name) {
            this.name = name;
        }

        @Override
        public void init(final ProcessorContext<String, String> context) {
            this.context = context;
            play(name, context, null, each.path("init").path(name), context::forward, context::forward);
        }

        @Override
        public void process(final Record<String, String> record) {
            play(name, context, record, script(record.value(), name), context::forward, context::forward);
        }

        @Override
        public void close() {
            note(name, "close", null);
        }
    }

    final class Fixed implements FixedKeyProcessor<String, String, String> {
        final String name;
        FixedKeyProcessorContext<String, String> context;
        FixedKeyRecord<String, String> now;

        Fixed(final String name) {
            this.name = name;
        }

        @Override
        public void init(final FixedKeyProcessorContext<String, String> context) {
            this.context = context;
            play(name, context, null, each.path("init").path(name), this::forward, this::forward);
        }

        @Override
        public void process(final FixedKeyRecord<String, String> record) {
            now = record;
            play(name, context, new Record<>(record.key(), record.value(), record.timestamp(), record.headers()),
                script(record.value(), name), this::forward, this::forward);
        }

        FixedKeyRecord<String, String> made(final Record<String, String> other) {
            return now.withValue(other.value()).withTimestamp(other.timestamp()).withHeaders(other.headers());
        }

        void forward(final Record<String, String> other) {
            context.forward(made(other));
        }

        void forward(final Record<String, String> other, final String child) {
            context.forward(made(other), child);
        }
    }

    interface Every {
        void forward(Record<String, String> record);
    }

    interface One {
        void forward(Record<String, String> record, String child);
    }
    static JsonNode script(final String value, final String name) {
        try {
            return value == null ? MAPPER.createArrayNode() : MAPPER.readTree(value).path(name);
        } catch (final Exception wrong) {
            return MAPPER.createArrayNode();
        }
    }

    void note(final String who, final String what, final JsonNode result) {
        final ArrayNode row = log.addArray();
        row.add(who);
        row.add(what);
        row.add(result);
    }

    void play(final String name, final ProcessingContext context, final Record<String, String> record,
              final JsonNode script, final Every all, final One one) {
        for (final JsonNode call : script) {
            JsonNode result;
            try {
                result = made(name, context, record, call, all, one);
            } catch (final RuntimeException error) {
                if (call.get(0).asText().equals("raise")) {
                    throw error;
                }
                final ObjectNode told = MAPPER.createObjectNode();
                told.put("error", error.getClass().getSimpleName());
                result = told;
            }
            note(name, call.get(0).asText(), result);
        }
    }

    static String text(final JsonNode call, final int at) {
        return !call.has(at) || call.get(at).isNull() ? null : call.get(at).asText();
    }

    JsonNode made(final String name, final ProcessingContext context, final Record<String, String> record,
                  final JsonNode call, final Every all, final One one) {
        switch (call.get(0).asText()) {
            case "forward": {
                final long timestamp = call.has(3) && !call.get(3).isNull() ? call.get(3).asLong() : record.timestamp();
                final RecordHeaders headers = new RecordHeaders();
                if (call.has(5)) {
                    for (final JsonNode header : call.get(5)) {
                        headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
                    }
                }
                final Record<String, String> other = new Record<>(text(call, 1), text(call, 2), timestamp, headers);
                if (text(call, 4) == null) {
                    all.forward(other);
                } else {
                    one.forward(other, text(call, 4));
                }
                return null;
            }
            case "pass":
                if (text(call, 1) == null) {
                    all.forward(record);
                } else {
                    one.forward(record, text(call, 1));
                }
                return null;
            case "record": {
                final ArrayNode told = MAPPER.createArrayNode();
                told.add(record.key());
                told.add(record.timestamp());
                told.add(headers(record.headers()));
                return told;
            }
            case "metadata": {
                final Optional<RecordMetadata> metadata = context.recordMetadata();
                if (metadata.isEmpty()) {
                    return null;
                }
                final ArrayNode told = MAPPER.createArrayNode();
                told.add(metadata.get().topic());
                told.add(metadata.get().partition());
                told.add(metadata.get().offset());
                return told;
            }
            case "stream_time":
                return MAPPER.valueToTree(context.currentStreamTimeMs());
            case "system_time":
                return MAPPER.valueToTree(context.currentSystemTimeMs());
            case "task":
                return MAPPER.valueToTree(context.taskId().toString());
            case "schedule": {
                final PunctuationType type = PunctuationType.valueOf(text(call, 2));
                final Duration interval = Duration.ofMillis(call.get(3).asLong());
                final String id = text(call, 1);
                final org.apache.kafka.streams.processor.Punctuator punctuator = now -> {
                    note(name, "punctuate " + id, MAPPER.valueToTree(now));
                    play(name, context, null, call.get(4), all, one);
                };
                scheduled.put(id, call.has(5)
                    ? context.schedule(Instant.ofEpochMilli(call.get(5).asLong()), interval, type, punctuator)
                    : context.schedule(interval, type, punctuator));
                return null;
            }
            case "cancel":
                scheduled.get(text(call, 1)).cancel();
                return null;
            case "raise":
                throw new IllegalStateException("told to");
            default:
                return stored(context.getStateStore(text(call, 1)), kinds.get(text(call, 1)), call);
        }
    }

    static ArrayNode headers(final Headers headers) {
        final ArrayNode told = MAPPER.createArrayNode();
        for (final Header header : headers) {
            final ArrayNode pair = told.addArray();
            pair.add(header.key());
            pair.add(new String(header.value(), StandardCharsets.UTF_8));
        }
        return told;
    }

    // --- the stores -------------------------------------------------------------------------------------------

    JsonNode stored(final StateStore store, final JsonNode kind, final JsonNode call) {
        return switch (kind.get("kind").asText()) {
            case "key-value", "timestamped" ->
                keyValue((KeyValueStore) store, kind.get("kind").asText().equals("timestamped"), call);
            case "window", "timestamped-window" ->
                window((WindowStore) store, kind.get("kind").asText().equals("timestamped-window"), call);
            case "session" -> session((SessionStore) store, call);
            default -> versioned((VersionedKeyValueStore) store, call);
        };
    }

    static Object value(final JsonNode call, final int at, final boolean timestamped) {
        if (!timestamped || call.get(at).isNull()) {
            return text(call, at);
        }
        return ValueAndTimestamp.make(text(call.get(at), 0), call.get(at).get(1).asLong());
    }

    JsonNode keyValue(final KeyValueStore store, final boolean timestamped, final JsonNode call) {
        switch (call.get(0).asText()) {
            case "put":
                store.put(text(call, 2), value(call, 3, timestamped));
                return null;
            case "put_if_absent":
                return told(store.putIfAbsent(text(call, 2), value(call, 3, timestamped)));
            case "put_all": {
                final List<KeyValue> entries = new ArrayList<>();
                for (final JsonNode entry : call.get(2)) {
                    entries.add(KeyValue.pair(text(entry, 0), value(entry, 1, timestamped)));
                }
                store.putAll(entries);
                return null;
            }
            case "delete":
                return told(store.delete(text(call, 2)));
            case "get":
                return told(store.get(text(call, 2)));
            case "range":
                return all(store.range(text(call, 2), text(call, 3)));
            case "reverse_range":
                return all(store.reverseRange(text(call, 2), text(call, 3)));
            case "all":
                return all(store.all());
            case "reverse_all":
                return all(store.reverseAll());
            case "prefix_scan":
                return all(store.prefixScan(text(call, 2), new StringSerializer()));
            case "approximate_num_entries":
                return MAPPER.valueToTree(store.approximateNumEntries());
            default:
                throw new IllegalArgumentException(call.toString());
        }
    }

    JsonNode window(final WindowStore store, final boolean timestamped, final JsonNode call) {
        switch (call.get(0).asText()) {
            case "put":
                store.put(text(call, 2), value(call, 3, timestamped), call.get(4).asLong());
                return null;
            case "fetch":
                if (call.size() == 4) {
                    return told(store.fetch(text(call, 2), call.get(3).asLong()));
                }
                return all(call.size() == 5
                    ? store.fetch((Object) text(call, 2), at(call, 3), at(call, 4))
                    : store.fetch(text(call, 2), text(call, 3), at(call, 4), at(call, 5)));
            case "backward_fetch":
                return all(call.size() == 5
                    ? store.backwardFetch((Object) text(call, 2), at(call, 3), at(call, 4))
                    : store.backwardFetch(text(call, 2), text(call, 3), at(call, 4), at(call, 5)));
            case "fetch_all":
                return all(store.fetchAll(at(call, 2), at(call, 3)));
            case "backward_fetch_all":
                return all(store.backwardFetchAll(at(call, 2), at(call, 3)));
            case "all":
                return all(store.all());
            case "backward_all":
                return all(store.backwardAll());
            default:
                throw new IllegalArgumentException(call.toString());
        }
    }

    static Instant at(final JsonNode call, final int place) {
        return Instant.ofEpochMilli(call.get(place).asLong());
    }

    static Windowed<String> session(final JsonNode call) {
        return new Windowed<>(text(call, 2), new SessionWindow(call.get(3).asLong(), call.get(4).asLong()));
    }

    JsonNode session(final SessionStore store, final JsonNode call) {
        switch (call.get(0).asText()) {
            case "put":
                store.put(session(call), text(call, 5));
                return null;
            case "remove":
                store.remove(session(call));
                return null;
            case "fetch_session":
                return told(store.fetchSession(text(call, 2), at(call, 3), at(call, 4)));
            case "fetch":
                return all(call.size() == 3 ? store.fetch(text(call, 2)) : store.fetch(text(call, 2), text(call, 3)));
            case "backward_fetch":
                return all(call.size() == 3
                    ? store.backwardFetch(text(call, 2)) : store.backwardFetch(text(call, 2), text(call, 3)));
            case "find_sessions":
                return all(call.size() == 4 ? store.findSessions(call.get(2).asLong(), call.get(3).asLong())
                    : call.size() == 5 ? store.findSessions((Object) text(call, 2), at(call, 3), at(call, 4))
                    : store.findSessions(text(call, 2), text(call, 3), at(call, 4), at(call, 5)));
            case "backward_find_sessions":
                return all(call.size() == 5
                    ? store.backwardFindSessions((Object) text(call, 2), at(call, 3), at(call, 4))
                    : store.backwardFindSessions(text(call, 2), text(call, 3), at(call, 4), at(call, 5)));
            default:
                throw new IllegalArgumentException(call.toString());
        }
    }

    JsonNode versioned(final VersionedKeyValueStore store, final JsonNode call) {
        switch (call.get(0).asText()) {
            case "put":
                return MAPPER.valueToTree(store.put(text(call, 2), text(call, 3), call.get(4).asLong()));
            case "delete":
                return told(store.delete(text(call, 2), call.get(3).asLong()));
            case "get":
                return told(call.size() == 3
                    ? store.get(text(call, 2)) : store.get(text(call, 2), call.get(3).asLong()));
            default:
                throw new IllegalArgumentException(call.toString());
        }
    }

    static JsonNode told(final Object value) {
        final ArrayNode row = MAPPER.createArrayNode();
        if (value instanceof ValueAndTimestamp<?> one) {
            row.add((String) one.value());
            return row.add(one.timestamp());
        }
        if (value instanceof VersionedRecord<?> one) {
            row.add((String) one.value());
            row.add(one.timestamp());
            return one.validTo().isPresent() ? row.add(one.validTo().get()) : row.addNull();
        }
        if (value instanceof Windowed<?> one) {
            row.add((String) one.key());
            row.add(one.window().start());
            return row.add(one.window().end());
        }
        return MAPPER.valueToTree(value);
    }

    static JsonNode all(final KeyValueIterator<?, ?> entries) {
        final ArrayNode rows = MAPPER.createArrayNode();
        try (entries) {
            while (entries.hasNext()) {
                final KeyValue<?, ?> entry = entries.next();
                final ArrayNode row = rows.addArray();
                row.add(told(entry.key));
                row.add(told(entry.value));
            }
        }
        return rows;
    }

    // --- the run ----------------------------------------------------------------------------------------------

    void run() throws Exception {
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        config.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("calls").toString());
        if (each.path("continue").asBoolean()) {
            config.put(StreamsConfig.PROCESSING_EXCEPTION_HANDLER_CLASS_CONFIG,
                "org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler");
        }
        final ArrayNode steps = each.putArray("steps");
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), config, Instant.ofEpochMilli(0))) {
            final TestInputTopic<String, String> input =
                driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            steps.add(step(driver, null));
            for (final JsonNode record : each.get("records")) {
                String error = null;
                try {
                    if (record.get(0).asText().equals("advance") && record.size() == 2) {
                        driver.advanceWallClockTime(Duration.ofMillis(record.get(1).asLong()));
                    } else {
                        final RecordHeaders headers = new RecordHeaders();
                        for (final JsonNode header : record.path(3)) {
                            headers.add(header.get(0).asText(), header.get(1).asText().getBytes(StandardCharsets.UTF_8));
                        }
                        final String value = record.get(1).isNull() ? null : record.get(1).isTextual()
                            ? record.get(1).asText() : MAPPER.writeValueAsString(record.get(1));
                        input.pipeInput(new TestRecord<>(text(record, 0), value, headers, record.get(2).asLong()));
                    }
                } catch (final RuntimeException raised) {
                    Throwable cause = raised;
                    while (cause.getCause() != null) {
                        cause = cause.getCause();
                    }
                    error = cause.getClass().getSimpleName();
                }
                steps.add(step(driver, error));
                if (error != null) {
                    break;
                }
            }
        }
    }

    ObjectNode step(final TopologyTestDriver driver, final String error) {
        final ObjectNode step = MAPPER.createObjectNode();
        if (!log.isEmpty()) {
            step.set("log", log);
        }
        log = MAPPER.createArrayNode();
        if (error != null) {
            step.put("error", error);
            return step;
        }
        final ArrayNode rows = MAPPER.createArrayNode();
        for (final JsonNode sink : each.get("sinks")) {
            final String name = sink.get("name").asText();
            for (final TestRecord<String, String> one : driver.createOutputTopic(
                    name, new StringDeserializer(), new StringDeserializer()).readRecordsToList()) {
                final ArrayNode row = rows.addArray();
                row.add(name);
                row.add(one.key());
                row.add(one.value());
                row.add(one.timestamp());
                row.add(headers(one.headers()));
            }
        }
        if (!rows.isEmpty()) {
            step.set("out", rows);
        }
        final ObjectNode changelogs = MAPPER.createObjectNode();
        for (final JsonNode store : each.get("stores")) {
            final String name = store.get("name").asText();
            final ArrayNode changes = MAPPER.createArrayNode();
            final String topic = APPLICATION + "-" + name + "-changelog";
            for (final TestRecord<byte[], byte[]> one : driver.createOutputTopic(
                    topic, new ByteArrayDeserializer(), new ByteArrayDeserializer()).readRecordsToList()) {
                final ArrayNode row = changes.addArray();
                row.add(HEX.formatHex(one.key()));
                row.add(one.value() == null ? null : HEX.formatHex(one.value()));
                row.add(one.timestamp());
            }
            if (!changes.isEmpty()) {
                changelogs.set(name, changes);
            }
        }
        if (!changelogs.isEmpty()) {
            step.set("changelogs", changelogs);
        }
        return step;
    }
}
