import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Jobs of Kafka Streams, one after the other in one JVM, so that all but the first ones run compiled code.
 *
 * Answers each line of its input with a time of day in milliseconds:
 *
 * "start KIND LEFT RIGHT OUTPUT OPTION=VALUE ...": when it is RUNNING. The kinds are those of bench/workloads.py,
 * "count" of latency.py, "tables" of joins.py, and "process", the processor of processors.py.
 * "first": when it read its first record; 0 if it has not yet.
 * "seen": not a time, but how many records it has processed.
 * "stop": when it has written everything, including what its caches held back, and is closed.
 *
 * Ends at once when its input does.
 */
public class KafkaStreamsJobs {
    private static final Duration TUMBLING = Duration.ofSeconds(20);
    private static final Duration NEAR = Duration.ofSeconds(5);
    private static final Duration GRACE = Duration.ofHours(1);
    private static final AtomicLong FIRST = new AtomicLong();

    private static KafkaStreams streams;

    public static void main(String[] none) throws Exception {
        BlockingQueue<String> lines = new LinkedBlockingQueue<>();
        Thread input = new Thread(() -> read(lines), "input");
        input.setDaemon(true);
        input.start();
        while (true) {
            String line = lines.take();
            String[] words = line.split(" ");
            long answer =
                    switch (words[0]) {
                        case "start" -> start(words);
                        case "first" -> first();
                        case "seen" -> (long) processed();
                        case "stop" -> stop();
                        default -> throw new IllegalArgumentException(line);
                    };
            System.out.println(answer);
        }
    }

    /** When the input ends, the process that started this one is gone, and nobody waits for work in progress. */
    private static void read(BlockingQueue<String> lines) {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        try {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                lines.add(line);
            }
        } catch (IOException error) {
            error.printStackTrace();
        }
        Runtime.getRuntime().halt(0);
    }

    private static long stop() {
        if (streams != null) {
            streams.close(Duration.ofSeconds(60));
            streams = null;
        }
        return System.currentTimeMillis();
    }

    private static long first() {
        if (streams != null) {
            mustRun();
        }
        return FIRST.get();
    }

    private static long start(String[] words) throws InterruptedException {
        Properties options = new Properties();
        for (String word : Arrays.copyOfRange(words, 5, words.length)) {
            String[] option = word.split("=", 2);
            options.put(option[0], option[1]);
        }
        FIRST.set(0);
        StreamsBuilder builder = new StreamsBuilder();
        build(builder, words[1], words[2], words[3], words[4]);
        streams = new KafkaStreams(builder.build(options), options);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.start();
        if (!running.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("Kafka Streams is not RUNNING after 60 s, but " + streams.state());
        }
        return System.currentTimeMillis();
    }

    private static void build(StreamsBuilder builder, String kind, String left, String right, String output) {
        Serde<String> text = Serdes.String();
        Serde<String> source = noting(text.serializer(), text.deserializer());
        Consumed<String, String> strings = Consumed.with(text, source);
        Consumed<String, Order> orders = Consumed.with(text, noting(KafkaStreamsJobs::onlyRead, orders()));
        Produced<String, String> written = Produced.with(text, text);
        Produced<String, Long> counts = Produced.with(text, Serdes.Long());
        Grouped<String, String> grouped = Grouped.with(text, text);
        switch (kind) {
            case "map" -> builder.stream(left, strings)
                    .filter((key, value) -> !value.startsWith("drop"))
                    .mapValues(value -> value.toUpperCase())
                    .to(output, written);
            case "words" -> builder.stream(left, Consumed.with(Serdes.ByteArray(), source))
                    .flatMapValues(line -> Arrays.asList(line.toLowerCase().split(" ")))
                    .groupBy((key, word) -> word, grouped)
                    .count()
                    .toStream()
                    .to(output, counts);
            case "count" -> builder.stream(left, strings).groupByKey().count().toStream().to(output, counts);
            case "windows" -> builder.stream(left, strings)
                    .groupByKey()
                    .windowedBy(TimeWindows.ofSizeAndGrace(TUMBLING, GRACE))
                    .count()
                    .toStream()
                    .to(
                            output,
                            Produced.with(
                                    WindowedSerdes.timeWindowedSerdeFrom(String.class, TUMBLING.toMillis()),
                                    Serdes.Long()));
            case "sessions" -> builder.stream(left, strings)
                    .groupByKey()
                    .windowedBy(SessionWindows.ofInactivityGapAndGrace(NEAR, GRACE))
                    .count()
                    .toStream()
                    .to(output, Produced.with(WindowedSerdes.sessionWindowedSerdeFrom(String.class), Serdes.Long()));
            case "join" -> builder.stream(left, strings)
                    .join(
                            builder.stream(right, strings),
                            (one, other) -> one + "," + other,
                            JoinWindows.ofTimeDifferenceAndGrace(NEAR, GRACE),
                            StreamJoined.with(text, text, text))
                    .to(output, written);
            case "lookup" -> builder.stream(left, strings)
                    .join(
                            builder.table(right, strings),
                            (one, other) -> one + "," + other,
                            Joined.with(text, text, text))
                    .to(output, written);
            case "tables" -> builder.table(left, strings)
                    .join(builder.table(right, strings), (one, other) -> one + "," + other)
                    .toStream()
                    .to(output, written);
            case "fold" -> builder.stream(left, orders)
                    .groupByKey()
                    .aggregate(
                            () -> 0L,
                            (key, order, total) -> total + order.amount(),
                            Materialized.with(text, Serdes.Long()))
                    .toStream()
                    .to(output, counts);
            case "udf" -> {
                KStream<String, Long> doubled = builder.stream(left, orders).mapValues(order -> order.amount() * 2);
                doubled.to(output, counts);
            }
            case "process" -> {
                builder.addStateStore(
                        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("totals"), text, Serdes.Long()));
                builder.stream(left, orders).process(Totals::new, "totals").to(output, counts);
            }
            default -> throw new IllegalArgumentException("no job '" + kind + "'");
        }
    }

    /** The same deserializer, which also notes when it reads the first record. */
    private static <T> Serde<T> noting(Serializer<T> serializer, Deserializer<T> deserializer) {
        return Serdes.serdeFrom(
                serializer,
                (topic, value) -> {
                    if (FIRST.get() == 0) {
                        FIRST.compareAndSet(0, System.currentTimeMillis());
                    }
                    return deserializer.deserialize(topic, value);
                });
    }

    private static byte[] onlyRead(String topic, Order order) {
        throw new UnsupportedOperationException("orders are only read");
    }

    public record Order(String user, long amount) {}

    private static Deserializer<Order> orders() {
        ObjectReader reader = new ObjectMapper().readerFor(Order.class);
        return (topic, order) -> {
            try {
                return reader.readValue(order);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
    }

    /** The sum of the amounts of a key. */
    private static class Totals implements Processor<String, Order, String, Long> {
        private ProcessorContext<String, Long> context;
        private KeyValueStore<String, Long> totals;

        @Override
        public void init(ProcessorContext<String, Long> context) {
            this.context = context;
            totals = context.getStateStore("totals");
        }

        @Override
        public void process(Record<String, Order> record) {
            Long before = totals.get(record.key());
            long total = (before == null ? 0 : before) + record.value().amount();
            totals.put(record.key(), total);
            context.forward(record.withValue(total));
        }
    }

    private static double processed() {
        mustRun();
        double all = 0;
        for (Metric metric : streams.metrics().values()) {
            if (metric.metricName().name().equals("process-total")
                    && metric.metricName().group().equals("stream-thread-metrics")) {
                all += (Double) metric.metricValue();
            }
        }
        return all;
    }

    private static void mustRun() {
        if (streams.state() != KafkaStreams.State.RUNNING && streams.state() != KafkaStreams.State.REBALANCING) {
            throw new IllegalStateException("Kafka Streams is " + streams.state());
        }
    }
}
