// Writes the names of all metrics of Kafka Streams: group, name and tags, one to a line, sorted.
//
// They come from a client that is made and not started (its threads and their Kafka clients), and from runs on
// the TopologyTestDriver at the recording level TRACE, which has all (tasks, nodes, stores, caches, topics).
// Then it measures with Kafka's own statistics: each line of its input is "record <ms> <value>" or "measure <ms>",
// and comes back, the latter with rate, rate of the count, average, maximum and minimum.
// How it is run: tests/snapshots/metric_names.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.function.Predicate;
import java.util.stream.Collectors;

import org.apache.kafka.clients.consumer.internals.FetchMetricsRegistry;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.MetricNameTemplate;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.WindowedCount;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.internals.metrics.StreamsMetricsImpl;
import org.apache.kafka.streams.processor.internals.metrics.TaskMetrics;

public class MetricsAll {
    private static final TreeMap<String, String> FOUND = new TreeMap<>();
    private static final String LAST_OF_UPDATERS = "stream-state-updater-metrics restore-call-rate";
    private static final Predicate<String> UPDATER = name -> name.startsWith(LAST_OF_UPDATERS);

    static Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> in = builder.stream("in");
        final Grouped<String, String> keys = Grouped.with(Serdes.String(), Serdes.String());
        in.groupByKey(keys).count(Materialized.as("counts")).toStream().mapValues(String::valueOf).to("out");
        in.groupByKey(keys).windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofSeconds(5)))
            .emitStrategy(EmitStrategy.onWindowClose()).count(Materialized.as("finals"));
        in.groupByKey(keys).windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofSeconds(5)))
            .count(Materialized.as("sessions"))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()));
        builder.table("table", Materialized.as("table-store"));
        return builder.build();
    }

    static void add(final Collection<MetricName> names) {
        for (final MetricName name : names) {
            if (name.group().endsWith("-node-metrics") && !name.group().startsWith("stream-")) {
                continue; // of connections to a broker, of which there is none
            }
            final String tags = String.join(",", new TreeSet<>(name.tags().keySet()));
            FOUND.put(name.group() + " " + name.name() + " " + tags, name.description());
        }
    }

    /** Those of standby tasks, which a driver has none of. */
    static void addOfStandbys() {
        final Metrics metrics = new Metrics();
        TaskMetrics.updateSensor("thread", "0_0",
            new StreamsMetricsImpl(metrics, "client", Time.SYSTEM));
        add(metrics.metrics().keySet().stream().filter(name -> name.group().startsWith("stream-")).toList());
    }

    /** Those of topics and partitions, which a consumer has once it has fetched. */
    static void addOfFetches() {
        final FetchMetricsRegistry registry = new FetchMetricsRegistry(Set.of("client-id"), "consumer");
        for (final MetricNameTemplate each : registry.getAllTemplates()) {
            FOUND.put(each.group() + " " + each.name() + " " + String.join(",", new TreeSet<>(each.tags())),
                each.description());
        }
    }

    static List<String> measured(final BufferedReader in) {
        final List<MeasurableStat> stats =
            List.of(new Rate(), new Rate(new WindowedCount()), new Avg(), new Max(), new Min());
        final MetricConfig config = new MetricConfig();
        return in.lines().map(line -> {
            final String[] words = line.split(" ");
            final long now = Long.parseLong(words[1]);
            if (words[0].equals("record")) {
                stats.forEach(stat -> stat.record(config, Double.parseDouble(words[2]), now));
                return line;
            }
            return String.join(" ", words[0], words[1]) + stats.stream()
                .map(stat -> " " + stat.measure(config, now)).collect(Collectors.joining());
        }).toList();
    }

    static void delete(final Path directory) throws Exception {
        try (var paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    public static void main(final String[] arguments) throws Exception {
        final Path state = Files.createTempDirectory("metrics");
        final Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "app");
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "127.0.0.1:9");
        config.put(StreamsConfig.STATE_DIR_CONFIG, state.toString());
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "TRACE");
        config.put("auto.include.jmx.reporter", "false");
        final KafkaStreams streams = new KafkaStreams(topology(), config);
        streams.start(); // its state updaters have metrics once they run, with or without a broker
        for (int tries = 0; tries < 100 && FOUND.keySet().stream().noneMatch(UPDATER); tries++) {
            Thread.sleep(50);
            add((Collection<MetricName>) (Collection<?>) streams.metrics().keySet());
        }
        addOfStandbys();
        addOfFetches();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology(), config, Instant.ofEpochMilli(0))) {
            final TestInputTopic<String, String> in =
                driver.createInputTopic("in", new StringSerializer(), new StringSerializer());
            for (final long second : List.of(0, 1, 20, 40)) {
                in.pipeInput("a", "b", Instant.ofEpochSecond(second));
            }
            add((Collection<MetricName>) (Collection<?>) driver.metrics().keySet());
        }
        streams.close(Duration.ZERO);
        delete(state);
        final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        FOUND.forEach((name, description) -> out.println(name + " " + description));
        final BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        measured(lines).forEach(out::println);
        out.flush();
        Runtime.getRuntime().halt(0); // its clients would look for the broker a while longer
    }
}
