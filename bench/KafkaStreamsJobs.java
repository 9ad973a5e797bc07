import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Jobs of Kafka Streams, one after the other in one JVM, so that they are compiled after the first ones.
 *
 * Answers each line of its input, with the time of day in milliseconds:
 *
 * "start KIND LEFT RIGHT OUTPUT OPTION=VALUE ...": the join of two topics, "lookup" or "tables"; when it is RUNNING.
 * "start process ORDERS - OUTPUT OPTION=VALUE ...": the processor of processors.py, over orders in JSON.
 * "seen": not a time, but how many records it has processed.
 * "stop": when it has written everything, what its caches hold back included, and is closed.
 *
 * Ends when its input does.
 */
public class KafkaStreamsJobs {
    private static KafkaStreams streams;

    public static void main(String[] none) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> start(words);
                case "stop" -> {
                    streams.close(Duration.ofSeconds(120));
                    streams = null;
                }
                default -> {}
            }
            System.out.println(words[0].equals("seen") ? (long) processed() : System.currentTimeMillis());
        }
        if (streams != null) {
            streams.close(Duration.ofSeconds(5));
        }
    }

    private static void start(String[] words) throws InterruptedException {
        Properties options = new Properties();
        for (int i = 5; i < words.length; i++) {
            String[] option = words[i].split("=", 2);
            options.put(option[0], option[1]);
        }
        StreamsBuilder builder = new StreamsBuilder();
        Consumed<String, String> strings = Consumed.with(Serdes.String(), Serdes.String());
        Produced<String, String> written = Produced.with(Serdes.String(), Serdes.String());
        if (words[1].equals("process")) {
            builder.addStateStore(
                    Stores.keyValueStoreBuilder(
                            Stores.persistentKeyValueStore("totals"), Serdes.String(), Serdes.Long()));
            builder.stream(words[2], Consumed.with(Serdes.String(), orders()))
                    .process(Totals::new, "totals")
                    .to(words[4], Produced.with(Serdes.String(), Serdes.Long()));
        } else if (words[1].equals("lookup")) {
            builder.stream(words[2], strings)
                    .join(
                            builder.table(words[3], strings),
                            (left, right) -> left + "," + right,
                            Joined.with(Serdes.String(), Serdes.String(), Serdes.String()))
                    .to(words[4], written);
        } else {
            builder.table(words[2], strings)
                    .join(builder.table(words[3], strings), (left, right) -> left + "," + right)
                    .toStream()
                    .to(words[4], written);
        }
        streams = new KafkaStreams(builder.build(options), options);
        CountDownLatch running = new CountDownLatch(1);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                running.countDown();
            }
        });
        streams.start();
        running.await();
    }

    public record Order(String user, long amount) {}

    private static Serde<Order> orders() {
        ObjectReader reader = new ObjectMapper().readerFor(Order.class);
        Deserializer<Order> reading = (topic, order) -> {
            try {
                return reader.readValue(order);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        };
        return Serdes.serdeFrom(
                (topic, order) -> {
                    throw new UnsupportedOperationException("orders are only read");
                },
                reading);
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
