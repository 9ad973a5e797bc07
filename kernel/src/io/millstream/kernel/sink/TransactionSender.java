package io.millstream.kernel.sink;

import java.time.Duration;
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
 * Exactly once: each sink partition has a transactional producer of its own, which is kept for the next batch, and marks
 * in each transaction which batch it is.
 *
 * <p>A producer belongs to one run of a query. A new run makes its own, and so ends the transactions of all before it;
 * one with an older epoch finds the newer one in the marker, and writes nothing.
 */
public final class TransactionSender implements Sender {
    private static final Map<String, Kept> IDLE = new HashMap<>();

    /** A producer between two batches. */
    record Kept(Options options, String id, Producer<byte[], byte[]> producer, long next, long idleSince) {
        void close() {
            producer.close(Duration.ZERO);
        }
    }

    private final Kept kept;
    private final long batch;
    private final boolean written;
    private boolean begun;
    private boolean closed;

    private TransactionSender(Kept kept, long batch) {
        this.kept = kept;
        this.batch = batch;
        this.written = kept.next > batch;
    }

    static TransactionSender open(Options options, int sinkPartition, long batch) {
        return new TransactionSender(take(options, options.transactionalId(sinkPartition)), batch);
    }

    /**
     * Take over so many sink partitions for a run, before its first batch: no older run writes to any of them afterwards.
     * The options are those of the writer.
     */
    public static void claim(Map<String, String> options, int sinkPartitions) {
        Options mine = Options.of(options);
        for (int i = 0; i < sinkPartitions; i++) {
            new TransactionSender(take(mine, mine.transactionalId(i)), 0).close(true);
        }
    }

    static void closeIdle(Predicate<Kept> which) {
        List<Kept> gone = new ArrayList<>();
        synchronized (IDLE) {
            IDLE.values().removeIf(kept -> which.test(kept) && gone.add(kept));
        }
        gone.forEach(Kept::close);
    }

    private static Kept take(Options options, String id) {
        Kept kept;
        synchronized (IDLE) {
            kept = IDLE.remove(id);
            if (kept != null && kept.options.epoch() > options.epoch()) {
                IDLE.put(id, kept);
                throw fenced(id, options, kept.options.epoch(), null);
            }
        }
        if (kept != null && kept.options.equals(options)) {
            return kept;
        }
        if (kept != null) {
            kept.close();
        }
        return made(options, id);
    }

    @SuppressWarnings("resource") // the producer is kept, or closed
    private static Kept made(Options options, String id) {
        // Looked at before as well: who only now finds out that it is late must not fence the newer one.
        check(Marker.read(options, id), options, id);
        Map<String, String> settings = new TreeMap<>(options.kafka());
        settings.put(ProducerConfig.TRANSACTIONAL_ID_CONFIG, id);
        Producer<byte[], byte[]> producer = Producers.make(settings);
        try {
            producer.initTransactions();
            Marker marker = Marker.read(options, id);
            check(marker, options, id);
            if (marker.epoch() < options.epoch()) {
                Marker claimed = new Marker(marker.next(), options.epoch());
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(claimed.offsets(options), new ConsumerGroupMetadata(id));
                producer.commitTransaction();
            }
            return new Kept(options, id, producer, marker.next(), System.nanoTime());
        } catch (RuntimeException error) {
            producer.close(Duration.ZERO);
            throw Verdict.of(error) == Verdict.FENCED ? fenced(id, options, -1, error) : error;
        }
    }

    private static void check(Marker marker, Options options, String id) {
        if (marker.epoch() > options.epoch()) {
            throw fenced(id, options, marker.epoch(), null);
        }
    }

    private static FencedException fenced(String id, Options options, long newer, Throwable cause) {
        String by = newer < 0 ? "a newer run" : "the run of epoch " + newer;
        return new FencedException(
                "transactional.id '" + id + "' of epoch " + options.epoch() + " was fenced by " + by
                        + "; nothing of this run counts that it had not committed",
                cause);
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
            kept.producer.beginTransaction();
            begun = true;
        }
        kept.producer.send(record, callback);
    }

    @Override
    public int partitions(String topic) {
        return kept.producer.partitionsFor(topic).size();
    }

    @Override
    public void flush() {
        kept.producer.flush();
    }

    @Override
    public void restart() {
        if (begun) {
            kept.producer.abortTransaction();
            begun = false;
        }
    }

    /** A part without records needs no transaction: it is the same when the batch is repeated. */
    @Override
    public void commit() {
        if (!begun) {
            return;
        }
        try {
            mark();
            kept.producer.commitTransaction();
        } catch (KafkaException error) {
            throw Verdict.of(error) == Verdict.FENCED ? fenced(kept.id, kept.options, -1, error) : error;
        }
    }

    /** Say in the transaction which batch it is. */
    void mark() {
        Marker marker = new Marker(batch + 1, kept.options.epoch());
        kept.producer.sendOffsetsToTransaction(marker.offsets(kept.options), new ConsumerGroupMetadata(kept.id));
    }

    @Override
    public void close(boolean healthy) {
        if (closed) {
            return;
        }
        closed = true;
        if (!healthy) {
            try {
                restart();
            } finally {
                kept.close(); // what could not be aborted, the next producer of this transactional.id aborts
            }
            return;
        }
        long next = begun ? batch + 1 : kept.next;
        Kept back = new Kept(kept.options, kept.id, kept.producer, next, System.nanoTime());
        Kept other;
        synchronized (IDLE) {
            other = IDLE.put(kept.id, back);
        }
        if (other != null) {
            other.close(); // of an attempt that was given up: the broker has fenced one of the two
        }
    }
}
