package io.millstream.kernel.sink;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.utils.Utils;

/** Creates producers, and closes idle ones, in every JVM that has some. */
public final class Producers {
    private static final Duration IDLE = Duration.ofMinutes(5);
    private static final Duration LOOK_EVERY = Duration.ofSeconds(30);
    private static ScheduledExecutorService sweeper;

    private Producers() {}

    static Producer<byte[], byte[]> make(Map<String, String> options) {
        Map<String, Object> all = new HashMap<>(options);
        all.put(ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        all.put(ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, ByteArraySerializer.class);
        Producer<byte[], byte[]> producer = new KafkaProducer<>(all);
        sweep();
        return producer;
    }

    /**
     * Close what an ended run of a query has left here. A producer that writes at least once is shared by all with the
     * same settings, and stays until it has been idle.
     */
    public static void endRun(String run) {
        TransactionSender.closeIdle(kept -> kept.options().run().equals(run));
    }

    /** Close a producer at once and ignore its errors: it is not used any more. */
    static void close(Producer<byte[], byte[]> producer) {
        Utils.closeQuietly(() -> producer.close(Duration.ZERO), "a producer");
    }

    /** Do something about a producer after its task has finished with it. */
    static void later(Runnable what) {
        Thread thread = new Thread(what, "millstream-given-up-producer");
        thread.setDaemon(true);
        thread.setUncaughtExceptionHandler((given, error) -> {
            // others have told the broker, or will
        });
        thread.start();
    }

    private static synchronized void sweep() {
        if (sweeper == null) {
            sweeper = Executors.newSingleThreadScheduledExecutor(task -> {
                Thread thread = new Thread(task, "millstream-idle-producers");
                thread.setDaemon(true);
                return thread;
            });
            long every = LOOK_EVERY.toMillis();
            sweeper.scheduleWithFixedDelay(Producers::closeIdle, every, every, TimeUnit.MILLISECONDS);
        }
    }

    private static void closeIdle() {
        long before = System.nanoTime() - IDLE.toNanos();
        SharedSender.closeIdle(before);
        TransactionSender.closeIdle(kept -> kept.idleSince() - before < 0);
    }
}
