import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.Suppressed.BufferConfig;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * A program of Kafka Streams with one of everything that has state; takeover_program.py has the same one.
 *
 * Arguments: where the broker is, application.id, the prefix of the topics, the directory for state. It writes its
 * description, and "running" when it is; a line of input has it stop, and so does the end of the input.
 */
public class TakeoverAll {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Serde<Long> NUMBER = Serdes.Long();

    public static void main(String[] given) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("application.id", given[1]);
        settings.put("state.dir", given[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("topology.optimization", "reuse.ktable.source.topics");
        settings.put("commit.interval.ms", "100");
        settings.put("session.timeout.ms", "10000");
        settings.put("internal.leave.group.on.close", true);
        // Records without a match are emitted when they are due, not when a second has passed since the last time.
        settings.put("__emit.interval.ms.kstreams.outer.join.spurious.results.fix__", 0L);
        Topology topology = topology(given[2], settings);
        System.out.print(topology.describe());
        KafkaStreams streams = new KafkaStreams(topology, settings);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
        });
        streams.start();
        if (!running.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not RUNNING after 60 s");
        }
        System.out.println("running");
        System.in.read();
        streams.close(Duration.ofSeconds(30));
        Runtime.getRuntime().halt(0);
    }

    private static Topology topology(String prefix, Properties settings) {
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> texts = Consumed.with(TEXT, TEXT);
        KStream<String, String> words = builder.stream(prefix + "words", texts);
        KStream<String, String> clicks = builder.stream(prefix + "clicks", texts);
        KStream<String, String> views = builder.stream(prefix + "views", texts);
        KTable<String, String> users = builder.table(prefix + "users", texts, Materialized.as("users"));
        KTable<String, String> orders = builder.table(prefix + "orders", texts, Materialized.as("orders"));

        KTable<String, Long> counts = words.groupByKey(Grouped.with(TEXT, TEXT)).count(Materialized.as("counts"));
        counts.toStream().to(prefix + "counts", Produced.with(TEXT, NUMBER));
        counts.suppress(Suppressed.untilTimeLimit(Duration.ofSeconds(2), BufferConfig.unbounded()))
                .toStream()
                .to(prefix + "slow", Produced.with(TEXT, NUMBER));
        words.groupByKey(Grouped.with(TEXT, TEXT))
                .aggregate(
                        () -> 0L,
                        (key, value, total) -> total + value.length(),
                        Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("lengths")
                                .withValueSerde(NUMBER))
                .toStream()
                .to(prefix + "lengths", Produced.with(TEXT, NUMBER));
        words.groupByKey(Grouped.with(TEXT, TEXT))
                .reduce((one, other) -> one + "," + other, Materialized.as("texts"))
                .toStream()
                .to(prefix + "texts", Produced.with(TEXT, TEXT));
        KTable<Windowed<String>, Long> windows = words.groupBy(
                        (key, value) -> value, Grouped.with("by-value", TEXT, TEXT))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(5)))
                .count(Materialized.as("windows"));
        windows.toStream(TakeoverAll::text).to(prefix + "windows", Produced.with(TEXT, NUMBER));
        windows.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream(TakeoverAll::text)
                .to(prefix + "closed", Produced.with(TEXT, NUMBER));
        windows.mapValues(number -> number * 10, Materialized.with(null, NUMBER))
                .suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream(TakeoverAll::text)
                .to(prefix + "tens", Produced.with(TEXT, NUMBER));
        KTable<Windowed<String>, Long> sessions = words.groupByKey(Grouped.with(TEXT, TEXT))
                .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(3), Duration.ofSeconds(5)))
                .count(Materialized.as("sessions"));
        sessions.toStream(TakeoverAll::text).to(prefix + "sessions", Produced.with(TEXT, NUMBER));
        sessions.suppress(Suppressed.untilWindowCloses(BufferConfig.unbounded()))
                .toStream(TakeoverAll::text)
                .to(prefix + "ended", Produced.with(TEXT, NUMBER));

        JoinWindows near = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), Duration.ofSeconds(2));
        clicks.join(views, TakeoverAll::both, near, joined("inner")).to(prefix + "inner", Produced.with(TEXT, TEXT));
        clicks.leftJoin(views, TakeoverAll::both, near, joined("left"))
                .to(prefix + "left", Produced.with(TEXT, TEXT));
        clicks.outerJoin(views, TakeoverAll::both, near, joined("outer"))
                .to(prefix + "outer", Produced.with(TEXT, TEXT));

        users.outerJoin(orders, TakeoverAll::both).toStream().to(prefix + "tables", Produced.with(TEXT, TEXT));
        orders.leftJoin(users, order -> order.substring(0, 1), TakeoverAll::both)
                .toStream()
                .to(prefix + "foreign", Produced.with(TEXT, TEXT));
        users.groupBy((key, value) -> KeyValue.pair(value, value), Grouped.with("users-by-value", TEXT, TEXT))
                .count(Materialized.as("same"))
                .toStream()
                .to(prefix + "same", Produced.with(TEXT, NUMBER));

        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("seen"), TEXT, NUMBER));
        words.process(Numbered::new, "seen").to(prefix + "numbered", Produced.with(TEXT, TEXT));
        return builder.build(settings);
    }

    private static StreamJoined<String, String, String> joined(String name) {
        return StreamJoined.with(TEXT, TEXT, TEXT).withStoreName(name).withName(name);
    }

    private static String text(Windowed<String> key, Long value) {
        return key.key() + "@" + key.window().start() + "-" + key.window().end();
    }

    private static String both(String left, String right) {
        return left + "+" + right;
    }

    /** Numbers the records of each key. */
    private static final class Numbered implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, Long> seen;

        @Override
        public void init(ProcessorContext<String, String> given) {
            context = given;
            seen = given.getStateStore("seen");
        }

        @Override
        public void process(Record<String, String> record) {
            Long before = seen.get(record.key());
            long number = before == null ? 1 : before + 1;
            seen.put(record.key(), number);
            context.forward(record.withValue(record.value() + "#" + number));
        }
    }
}
