// Writes windows.json anew: reads windows and records from it, runs them through real Kafka Streams one by one
// (its TopologyTestDriver), and puts beside them what came out. tests/spark/test_window_state.py and
// tests/spark/test_windows.py do the same in Python.
//
// A case has "windows": ["time", size, advance, grace], ["sliding", difference, grace] or ["session", gap, grace];
// "records": [key, value, timestamp]; and then "updates": for each record a list of
// [key, start, end, value, timestamp], where value is the values of the window in the order of their arrival.
//
// To write it anew (Java 17 or later, Maven; the first command fetches Kafka Streams 4.3.1):
//     mvn -q -f tests/snapshots/windows/pom.xml dependency:copy-dependencies
//     java -cp 'tests/snapshots/windows/target/dependency/*' tests/snapshots/windows/WindowsAll.java tests/snapshots/windows/windows.json
// Remove tests/snapshots/windows/target afterwards.

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindowedDeserializer;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedDeserializer;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;

@SuppressWarnings({"unchecked", "rawtypes"})
public class WindowsAll {
    public static void main(final String[] args) throws Exception {
        final ObjectMapper mapper = new ObjectMapper();
        final ArrayNode cases = (ArrayNode) mapper.readTree(new File(args[0]));
        final StringBuilder text = new StringBuilder("[\n");
        for (int i = 0; i < cases.size(); i++) {
            final ObjectNode each = (ObjectNode) cases.get(i);
            each.set("updates", run(mapper, each.get("windows"), each.get("records")));
            text.append(mapper.writeValueAsString(each)).append(i + 1 < cases.size() ? ",\n" : "\n");
        }
        java.nio.file.Files.writeString(new File(args[0]).toPath(), text.append("]\n").toString());
    }

    private static ArrayNode run(final ObjectMapper mapper, final JsonNode windows, final JsonNode records) {
        final StreamsBuilder builder = new StreamsBuilder();
        final KGroupedStream<String, String> grouped =
            builder.stream("in", Consumed.with(Serdes.String(), Serdes.String())).groupByKey();
        // So long that no window is gone before it is closed.
        final Materialized store = Materialized.with(Serdes.String(), Serdes.String()).withRetention(Duration.ofDays(1));
        final Duration length = Duration.ofMillis(windows.get(1).asLong());
        final Duration grace = Duration.ofMillis(windows.get(windows.size() - 1).asLong());
        final KTable<Windowed<String>, String> table;
        Deserializer<Windowed<String>> keys = new TimeWindowedDeserializer<>(new StringDeserializer(), length.toMillis());
        switch (windows.get(0).asText()) {
            case "time":
                table = grouped.windowedBy(TimeWindows.ofSizeAndGrace(length, grace)
                    .advanceBy(Duration.ofMillis(windows.get(2).asLong())))
                    .aggregate(() -> "", (k, v, a) -> a + v, store);
                break;
            case "sliding":
                table = grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(length, grace))
                    .aggregate(() -> "", (k, v, a) -> a + v, store);
                break;
            default:
                table = grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(length, grace))
                    .aggregate(() -> "", (k, v, a) -> a + v, (k, one, other) -> one + other, store);
                keys = new SessionWindowedDeserializer<>(new StringDeserializer());
        }
        // Stores without caches: every update is there.
        table.toStream().to("out");
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "windows");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        final ArrayNode updates = mapper.createArrayNode();
        try (TopologyTestDriver driver = new TopologyTestDriver(builder.build(), config, Instant.ofEpochMilli(0))) {
            final TestInputTopic<String, String> in =
                driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            final TestOutputTopic<Windowed<String>, String> out =
                driver.createOutputTopic("out", keys, new StringDeserializer());
            for (final JsonNode record : records) {
                in.pipeInput(record.get(0).asText(), record.get(1).asText(), record.get(2).asLong());
                final ArrayNode mine = updates.addArray();
                for (final TestRecord<Windowed<String>, String> each : out.readRecordsToList()) {
                    mine.addArray().add(each.key().key()).add(each.key().window().start())
                        .add(each.key().window().end()).add(each.value()).add(each.timestamp());
                }
            }
        }
        return updates;
    }
}
