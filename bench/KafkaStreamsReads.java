import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.QueryableStoreTypes;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;

/**
 * A table of a topic in Kafka Streams, read through KafkaStreams.store() as its users do.
 *
 * Arguments: bootstrap servers, topic, state directory, a file with the keys to read, how many keys there are.
 * Prints how many nanoseconds it took until the store had them all. Then it answers each line of its input, "get",
 * "ranges" or "scan", with the CPU nanoseconds of its thread. Ends when its input does.
 */
public class KafkaStreamsReads {
    public static void main(String[] given) throws Exception {
        List<String> keys = Files.readAllLines(Path.of(given[3]));
        long entries = Long.parseLong(given[4]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.table(
                given[1],
                Consumed.with(Serdes.String(), Serdes.Long()),
                // Without the record cache, because each read would go through it first and be slower.
                Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("table").withCachingDisabled());
        Properties options = new Properties();
        options.put("application.id", "kafka-streams-reads");
        options.put("bootstrap.servers", given[0]);
        options.put("state.dir", given[2]);
        options.put("auto.offset.reset", "earliest");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), options)) {
            long started = System.nanoTime();
            streams.start();
            ReadOnlyKeyValueStore<String, Long> store = whenFilled(streams, entries);
            long filled = System.nanoTime() - started;
            for (int round = 0; round < 10; round++) {
                get(store, keys); // until it is compiled
            }
            System.out.println(filled);
            ThreadMXBean threads = ManagementFactory.getThreadMXBean();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                long begun = threads.getCurrentThreadCpuTime();
                switch (line) {
                    case "get" -> get(store, keys);
                    case "ranges" -> ranges(store, entries);
                    default -> scan(store, entries);
                }
                System.out.println(threads.getCurrentThreadCpuTime() - begun);
            }
        }
    }

    private static ReadOnlyKeyValueStore<String, Long> whenFilled(KafkaStreams streams, long entries)
            throws InterruptedException {
        long deadline = System.nanoTime() + 300_000_000_000L;
        while (System.nanoTime() < deadline) {
            try {
                ReadOnlyKeyValueStore<String, Long> store = streams.store(
                        StoreQueryParameters.fromNameAndType("table", QueryableStoreTypes.keyValueStore()));
                if (store.approximateNumEntries() >= entries * 0.9 && count(store) == entries) {
                    return store;
                }
            } catch (InvalidStateStoreException error) {
                // not yet
            }
            Thread.sleep(50);
        }
        throw new IllegalStateException("the table was not filled in time");
    }

    private static void get(ReadOnlyKeyValueStore<String, Long> store, List<String> keys) {
        for (String key : keys) {
            if (store.get(key) == null) {
                throw new IllegalStateException("no value for " + key);
            }
        }
    }

    /** A hundred ranges of a thousand entries, or as many as fit: the same as in stores.py. */
    private static void ranges(ReadOnlyKeyValueStore<String, Long> store, long entries) {
        for (long start = 0; start < entries - 1000; start += Math.max(1000, entries / 100)) {
            String first = String.format("key-%08d", start);
            String last = String.format("key-%08d", start + 999);
            long found = 0;
            try (KeyValueIterator<String, Long> some = store.range(first, last)) {
                while (some.hasNext()) {
                    found += some.next().value == null ? 0 : 1;
                }
            }
            if (found != 1000) {
                throw new IllegalStateException(found + " entries from " + first + " to " + last);
            }
        }
    }

    private static void scan(ReadOnlyKeyValueStore<String, Long> store, long entries) {
        if (count(store) != entries) {
            throw new IllegalStateException("not all entries were there");
        }
    }

    private static long count(ReadOnlyKeyValueStore<String, Long> store) {
        long found = 0;
        try (KeyValueIterator<String, Long> all = store.all()) {
            while (all.hasNext()) {
                KeyValue<String, Long> entry = all.next();
                found += entry.value == null ? 0 : 1;
            }
        }
        return found;
    }
}
