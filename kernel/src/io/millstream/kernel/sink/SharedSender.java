package io.millstream.kernel.sink;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;

/** At least once: all tasks of a JVM that have the same options share one producer. */
final class SharedSender implements Sender {
    private static final Map<Map<String, String>, Shared> POOL = new HashMap<>();

    private static final class Shared {
        final Map<String, String> options;
        final Producer<byte[], byte[]> producer;
        int users;
        boolean broken;
        long idleSince;

        Shared(Map<String, String> options) {
            this.options = options;
            this.producer = Producers.make(options);
        }
    }

    private final Shared shared;
    private boolean closed;

    private SharedSender(Shared shared) {
        this.shared = shared;
    }

    static SharedSender open(Options options) {
        synchronized (POOL) {
            Shared shared = POOL.computeIfAbsent(options.kafka(), Shared::new);
            shared.users++;
            return new SharedSender(shared);
        }
    }

    static void closeIdle(long before) {
        List<Shared> idle = new ArrayList<>();
        synchronized (POOL) {
            POOL.values().removeIf(
                    shared -> shared.users == 0 && shared.idleSince - before < 0 && idle.add(shared));
        }
        idle.forEach(shared -> Producers.close(shared.producer));
    }

    @Override
    public boolean isWritten() {
        return false;
    }

    @Override
    public boolean isTransaction() {
        return false;
    }

    @Override
    public void send(ProducerRecord<byte[], byte[]> record, Callback callback) {
        shared.producer.send(record, callback);
    }

    @Override
    public int partitions(String topic) {
        return shared.producer.partitionsFor(topic).size();
    }

    @Override
    public void flush() {
        shared.producer.flush();
    }

    @Override
    public void restart() {
        throw new UnsupportedOperationException("records sent at least once cannot be taken back");
    }

    @Override
    public void commit() {
        // what Kafka has accepted stays
    }

    @Override
    public RuntimeException lost(Throwable cause) {
        return new FencedException("another producer has taken over: " + cause.getMessage(), cause);
    }

    @Override
    public void close(boolean healthy) {
        if (closed) {
            return;
        }
        closed = true;
        boolean last;
        synchronized (POOL) {
            shared.users--;
            shared.idleSince = System.nanoTime();
            if (!healthy) {
                // The next task gets a new one; those that use this one keep it to their end.
                shared.broken = true;
                POOL.remove(shared.options, shared);
            }
            last = shared.broken && shared.users == 0;
        }
        if (last) {
            Producers.close(shared.producer);
        }
    }
}
