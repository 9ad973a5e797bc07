package io.millstream.kernel.sink;

import io.millstream.kernel.FailPoint;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.KafkaException;

/**
 * Which run of a pipeline may write exactly once, as recorded by the broker. Used on the driver.
 *
 * <p>A separate marker says which run it is, and how many sink partitions runs have had. A run that takes over first
 * changes this marker, in a transaction, so that one of two competing runs is last. Then it has the broker fence all
 * these partitions. A task that begins to use a partition reads the marker after its own {@code initTransactions}. If
 * it finds its run there, the fencing by a newer run is yet to come, and will abort what the task has not committed by
 * then. If not, the task writes nothing. So an older run never writes again, not even to a partition that no run has
 * used before, because it would first have to count that partition in this marker.
 */
public final class Run {
    private static final int TRIES = 10;
    /** Kafka deletes offsets of groups without members, such as this one, after some days (7 by default). */
    private static final long AGAIN_AFTER = TimeUnit.HOURS.toNanos(12);

    private record Counted(int parts, long since) {}

    /** The runs of this driver. They are kept, because an ended run that still writes must not claim again. */
    private static final Map<String, Counted> COUNTED = new ConcurrentHashMap<>();

    private Run() {}

    /**
     * Take over from all earlier runs whose epoch is not higher. When this returns, none of them writes any more.
     *
     * @param texts the options of the writer
     * @param parts the minimum number of sink partitions of the run
     */
    public static void claim(Map<String, String> texts, int parts) {
        claim(Options.of(texts), parts);
    }

    private static void claim(Options options, int parts) {
        int all = count(options, parts, true);
        FailPoint.reach(options.runId() + ".claimed");
        if (all > 0) {
            try (Admin admin = Marker.admin(options)) {
                Marker.answered(admin.fenceProducers(ids(options, all)).all());
            }
        }
    }

    /**
     * How far any sink partition of a query has written: the number of the next batch; 0 if none has. For a run that
     * has taken over.
     */
    public static long written(Map<String, String> texts, String query) {
        Options options = Options.of(texts);
        int parts = (int) Marker.read(options, List.of(options.runId()), true).get(options.runId()).next();
        return Marker.read(options, ids(options, parts), true).values().stream()
                .mapToLong(marker -> marker.nextOf(query))
                .max()
                .orElse(0);
    }

    /** Whether anything is known about earlier runs. */
    public static boolean isKnown(Map<String, String> texts) {
        Options options = Options.of(texts);
        return !Marker.read(options, List.of(options.runId()), false).get(options.runId()).equals(Marker.NONE);
    }

    /** Called before a batch with so many sink partitions, so that a newer run knows all of them. */
    static void provide(Options options, int parts) {
        Counted counted = COUNTED.get(options.run());
        if (counted == null) {
            claim(options, parts); // the caller that started the query left this to the sink
        } else if (counted.parts < parts || System.nanoTime() - counted.since > AGAIN_AFTER) {
            count(options, parts, false);
        }
    }

    /** Whether this is the run's driver. If tasks run here too, there are no executors. */
    static boolean isOfThisDriver(Options options) {
        return COUNTED.containsKey(options.run());
    }

    /** Throws an exception if the marker shows that this run must not write. */
    static void check(Marker marker, Options options, String id) {
        if (!marker.equals(Marker.NONE) && !marker.of().equals(options.run())) {
            throw TransactionSender.fenced(id, options, marker, null);
        }
    }

    @SuppressWarnings("resource") // it is closed
    private static int count(Options options, int parts, boolean first) {
        String id = options.runId();
        Map<String, String> settings = new TreeMap<>(options.kafka());
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id);
        KafkaException fenced = null;
        for (int i = 0; i < TRIES; i++) {
            // A late run must not fence the newer one.
            check(Marker.read(options, List.of(id), false).get(id), options, id, first);
            Producer<byte[], byte[]> producer = Producers.make(settings);
            try {
                producer.initTransactions();
                Marker before = Marker.read(options, List.of(id), true).get(id);
                check(before, options, id, first);
                int all = Math.max(parts, (int) before.next());
                Marker mine = new Marker(all, options.epoch(), options.run());
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(mine.offsets(options), new ConsumerGroupMetadata(id));
                producer.commitTransaction();
                COUNTED.put(options.run(), new Counted(all, System.nanoTime()));
                return all;
            } catch (KafkaException error) {
                if (Verdict.of(error) != Verdict.FENCED) {
                    throw error;
                }
                fenced = error; // the marker shows by which run
            } finally {
                Producers.close(producer);
            }
        }
        throw TransactionSender.fenced(id, options, null, fenced);
    }

    private static void check(Marker before, Options options, String id, boolean first) {
        if (!first) {
            check(before, options, id);
        } else if (before.epoch() > options.epoch()) {
            throw TransactionSender.fenced(id, options, before, null);
        }
    }

    private static List<String> ids(Options options, int parts) {
        return IntStream.range(0, parts).mapToObj(options::transactionalId).toList();
    }
}
