package io.millstream.kernel.sink;

import io.millstream.kernel.FailPoint;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;

/**
 * Exactly once: each sink partition has its own transactional producer, which is kept for the next batch, and records
 * in each transaction which batch it is.
 *
 * <p>A producer belongs to one run of a query. A new run has all earlier ones fenced ({@link Run}); a late run finds
 * the newer one in the run's marker, and writes nothing.
 */
public final class TransactionSender implements Sender {
    private static final Map<String, Pooled> IDLE = new HashMap<>();

    /**
     * A producer between two batches.
     *
     * @param next the first batch that is not written
     * @param seen the last batch that was here, even if there was nothing to write; -1 if none was
     */
    record Pooled(
            Options options, String id, Producer<byte[], byte[]> producer, long next, long seen, long idleSince) {}

    private final Pooled pooled;
    private final long batch;
    private final boolean written;
    private boolean begun;
    private boolean closed;

    private TransactionSender(Pooled pooled, long batch) {
        this.pooled = pooled;
        this.batch = batch;
        this.written = pooled.next > batch;
    }

    static TransactionSender open(Options options, int sinkPartition, long batch) {
        return new TransactionSender(take(options, options.transactionalId(sinkPartition), batch), batch);
    }

    static void closeIdle(Predicate<Pooled> which) {
        List<Pooled> gone = new ArrayList<>();
        synchronized (IDLE) {
            IDLE.values().removeIf(pooled -> which.test(pooled) && gone.add(pooled));
        }
        gone.forEach(pooled -> Producers.close(pooled.producer));
    }

    private static Pooled take(Options options, String id, long batch) {
        Pooled pooled;
        synchronized (IDLE) {
            pooled = IDLE.remove(id);
            if (pooled != null && pooled.options.epoch() > options.epoch()) {
                IDLE.put(id, pooled);
                throw fenced(id, options, new Marker(0, pooled.options.epoch(), pooled.options.run()), null);
            }
        }
        // If a batch was not here, another executor may have had it, and the broker fenced this producer.
        boolean alone = Run.isOfThisDriver(options);
        if (pooled != null && pooled.options.equals(options) && (alone || pooled.seen + 1 == batch)) {
            return pooled;
        }
        if (pooled != null) {
            Producers.close(pooled.producer);
        }
        return created(options, id);
    }

    @SuppressWarnings("resource") // the producer is kept, or closed
    private static Pooled created(Options options, String id) {
        List<String> markers = List.of(id, options.runId());
        // Checked before the fencing as well, because a run that only now finds out that it is late must not fence the
        // newer one. What a dead attempt has left open ends only with the fencing.
        check(Marker.read(options, markers, false), options, id);
        Map<String, String> settings = new TreeMap<>(options.kafka());
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id);
        Producer<byte[], byte[]> producer = Producers.make(settings);
        try {
            producer.initTransactions();
            Map<String, Marker> found = Marker.read(options, markers, true);
            check(found, options, id);
            return new Pooled(options, id, producer, found.get(id).nextOf(options.query()), -1, System.nanoTime());
        } catch (RuntimeException error) {
            Producers.close(producer);
            throw Verdict.of(error) == Verdict.FENCED ? lost(id, options, error) : error;
        }
    }

    private static void check(Map<String, Marker> found, Options options, String id) {
        Run.check(found.get(options.runId()), options, id);
        if (found.get(id).epoch() > options.epoch()) {
            throw fenced(id, options, found.get(id), null);
        }
    }

    /**
     * The exception for a run that has to end.
     *
     * @param newer the marker that shows it; null if only the broker says so
     */
    static FencedException fenced(String id, Options options, Marker newer, Throwable cause) {
        String by = newer == null ? "a newer run" : "the run of epoch " + newer.epoch() + " (" + newer.of() + ")";
        return new FencedException(
                "transactional.id '" + id + "' of epoch " + options.epoch() + " was fenced by " + by
                        + "; what this run (" + options.run() + ") had not committed does not count",
                cause);
    }

    /** Why the broker refuses everything from a producer. */
    private static RuntimeException lost(String id, Options options, Throwable cause) {
        try {
            Run.check(Marker.read(options, List.of(options.runId()), true).get(options.runId()), options, id);
        } catch (FencedException fenced) {
            fenced.addSuppressed(cause);
            return fenced;
        } catch (KafkaException error) {
            cause.addSuppressed(error);
        }
        String timeout = options.kafka().getOrDefault(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG, "60000");
        return new TransactionLostException(
                "the broker has aborted a transaction of '" + id + "' (" + cause.getClass().getSimpleName()
                        + "): it was open for longer than transaction.timeout.ms=" + timeout
                        + ", or another attempt at the same batch has begun",
                cause);
    }

    @Override
    public RuntimeException lost(Throwable cause) {
        return lost(pooled.id, pooled.options, cause);
    }

    @Override
    public boolean isWritten() {
        return written;
    }

    @Override
    public boolean isTransaction() {
        return true;
    }

    @Override
    public void send(ProducerRecord<byte[], byte[]> record, Callback callback) {
        if (!begun) {
            FailPoint.reach(pooled.id + ".opened");
            pooled.producer.beginTransaction();
            begun = true;
        }
        pooled.producer.send(record, callback);
    }

    @Override
    public int partitions(String topic) {
        return pooled.producer.partitionsFor(topic).size();
    }

    @Override
    public void flush() {
        pooled.producer.flush();
    }

    @Override
    public void restart() {
        if (begun) {
            pooled.producer.abortTransaction();
            begun = false;
        }
    }

    /** A part without records needs no transaction: it has none when the batch is repeated, either. */
    @Override
    public void commit() {
        if (!begun) {
            return;
        }
        FailPoint.reach(pooled.id + ".flushed");
        try {
            mark();
            FailPoint.reach(pooled.id + ".marked");
            pooled.producer.commitTransaction();
        } catch (KafkaException error) {
            FailPoint.reach(pooled.id + ".refused");
            throw Verdict.of(error) == Verdict.FENCED ? lost(error) : error;
        }
        FailPoint.reach(pooled.id + ".committed");
    }

    /** Record the batch in the transaction. */
    void mark() {
        Marker marker = new Marker(batch + 1, pooled.options.epoch(), pooled.options.query());
        pooled.producer.sendOffsetsToTransaction(marker.offsets(pooled.options), new ConsumerGroupMetadata(pooled.id));
    }

    @Override
    public void close(boolean healthy) {
        if (closed) {
            return;
        }
        closed = true;
        if (!healthy) {
            // Not on this thread, which may have been interrupted; nothing has to wait for it.
            Producers.later(() -> {
                try {
                    restart(); // if it fails, the next producer of this transactional.id aborts it
                } finally {
                    Producers.close(pooled.producer);
                }
            });
            return;
        }
        long next = begun ? batch + 1 : pooled.next;
        Pooled back = new Pooled(pooled.options, pooled.id, pooled.producer, next, batch, System.nanoTime());
        Pooled other;
        synchronized (IDLE) {
            other = IDLE.put(pooled.id, back);
        }
        if (other != null) {
            Producers.close(other.producer); // from an abandoned attempt: the broker has fenced one of the two
        }
    }
}
