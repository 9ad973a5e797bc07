// Runs well-known programs on real Kafka Streams (its TopologyTestDriver), record by record, and says what comes out.
//
// Each program is a class of its own in this directory. Reads cases from its input, one JSON object per line, and writes
// them to its output with "steps". What these mean, and how to write them anew: tests/snapshots/ported_programs.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.function.Function;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.errors.StreamsException;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;

public class Ported {
    static final ObjectMapper MAPPER = new ObjectMapper();
    static final JsonNodeFactory NODES = JsonNodeFactory.instance;

    /** A program of Kafka Streams. */
    public interface Program {
        Topology topology();

        /** The keys and values of its topics, and stores, by their names; "*" is any other. */
        Map<String, Kind<?>[]> topics();

        /** What is configured besides. */
        default Map<String, Object> config() {
            return Map.of();
        }
    }

    /** A type of keys or values: in bytes, and as JSON. */
    public record Kind<T>(Serde<T> serde, Function<JsonNode, T> of, Function<T, JsonNode> json) {
        T value(final JsonNode node) {
            return node == null || node.isNull() ? null : of.apply(node);
        }

        @SuppressWarnings("unchecked")
        JsonNode text(final Object value) {
            return value == null ? NODES.nullNode() : json.apply((T) value);
        }
    }

    public static final Kind<String> STRING = new Kind<>(Serdes.String(), JsonNode::asText, NODES::textNode);
    public static final Kind<Long> LONG = new Kind<>(Serdes.Long(), JsonNode::asLong, NODES::numberNode);
    public static final Kind<Integer> INTEGER = new Kind<>(Serdes.Integer(), JsonNode::asInt, NODES::numberNode);
    public static final Kind<Double> DOUBLE = new Kind<>(Serdes.Double(), JsonNode::asDouble, NODES::numberNode);

    /** An object of JSON, Avro or Protobuf in the original. */
    public static final Kind<JsonNode> OBJECT = new Kind<>(
        Serdes.serdeFrom((topic, value) -> bytes(value), (topic, data) -> node(data)),
        Function.identity(), Function.identity());

    /** A key with its window: [key, start, end]. */
    public static Kind<Windowed<String>> windowed(final Duration size) {
        final Serde<String> text = Serdes.String();
        return new Kind<>(
            Serdes.serdeFrom(new TimeWindowedSerializer<>(text.serializer()),
                new TimeWindowedDeserializer<>(text.deserializer(), size.toMillis())),
            node -> { throw new UnsupportedOperationException(); },
            key -> NODES.arrayNode().add(key.key()).add(key.window().start()).add(key.window().end()));
    }

    public static Kind<?>[] of(final Kind<?> key, final Kind<?> value) {
        return new Kind<?>[] {key, value};
    }

    /** An object with these fields: names and values in turns. */
    public static ObjectNode object(final Object... fields) {
        final ObjectNode made = NODES.objectNode();
        for (int i = 0; i < fields.length; i += 2) {
            made.set((String) fields[i], MAPPER.valueToTree(fields[i + 1]));
        }
        return made;
    }

    static byte[] bytes(final JsonNode value) {
        try {
            return value == null ? null : MAPPER.writeValueAsBytes(value);
        } catch (final java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    static JsonNode node(final byte[] data) {
        try {
            return data == null ? null : MAPPER.readTree(data);
        } catch (final java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    public static void main(final String[] args) throws Exception {
        final BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        final PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err); // for the programs, which may print
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            final ObjectNode each = (ObjectNode) MAPPER.readTree(line);
            run(each);
            out.println(MAPPER.writeValueAsString(each));
        }
        out.flush();
    }

    static void run(final ObjectNode each) throws Exception {
        final Program program =
            (Program) Class.forName(each.get("java").asText()).getDeclaredConstructor().newInstance();
        final Path directory = Files.createTempDirectory("ported");
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "ported");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "localhost:9092");
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.putAll(program.config());
        final ArrayNode steps = each.putArray("steps");
        try (TopologyTestDriver driver = new TopologyTestDriver(program.topology(), config, Instant.ofEpochMilli(0))) {
            for (final JsonNode record : each.get("records")) {
                final String what = record.get(0).asText();
                if (what.equals("store")) {
                    steps.add(kept(driver, program, record.get(1).asText()));
                    continue;
                }
                if (what.equals("advance")) {
                    driver.advanceWallClockTime(Duration.ofMillis(record.get(1).asLong()));
                } else {
                    try {
                        pipe(driver, program, record);
                    } catch (final StreamsException error) {
                        steps.addArray().add("error");
                        continue;
                    }
                }
                steps.add(written(driver, program));
            }
        } finally {
            try (var files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    static Kind<?>[] kinds(final Program program, final String topic) {
        final Map<String, Kind<?>[]> topics = program.topics();
        return topics.getOrDefault(topic, topics.get("*"));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static void pipe(final TopologyTestDriver driver, final Program program, final JsonNode record) {
        final String topic = record.get(0).asText();
        final Kind[] kinds = kinds(program, topic);
        driver.createInputTopic(topic, kinds[0].serde().serializer(), kinds[1].serde().serializer()).pipeInput(
            new TestRecord(kinds[0].value(record.get(1)), kinds[1].value(record.get(2)),
                Instant.ofEpochMilli(record.get(3).asLong())));
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static ArrayNode written(final TopologyTestDriver driver, final Program program) {
        final ArrayNode rows = NODES.arrayNode();
        for (final String topic : new TreeSet<>(driver.producedTopicNames())) {
            if (topic.startsWith("ported-")) {
                continue; // an internal one
            }
            final Kind[] kinds = kinds(program, topic);
            final var output =
                driver.createOutputTopic(topic, kinds[0].serde().deserializer(), kinds[1].serde().deserializer());
            for (final Object one : output.readRecordsToList()) {
                final TestRecord record = (TestRecord) one;
                rows.addArray().add(topic).add(kinds[0].text(record.key())).add(kinds[1].text(record.value()))
                    .add(record.timestamp());
            }
        }
        return rows;
    }

    static ArrayNode kept(final TopologyTestDriver driver, final Program program, final String store) {
        final Kind<?>[] kinds = kinds(program, store);
        final ArrayNode rows = NODES.arrayNode();
        try (var all = driver.getKeyValueStore(store).all()) {
            all.forEachRemaining(each ->
                rows.addArray().add(store).add(kinds[0].text(each.key)).add(kinds[1].text(each.value)));
        }
        return rows;
    }
}
