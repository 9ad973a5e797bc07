package io.millstream.kernel.sink;

import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer as one task uses it, on one thread. */
public interface Sender {
    /** Whether records are part of a transaction. */
    boolean isTransaction();

    /** Whether some do, so that all that was sent is sent again if one of them is refused. */
    default boolean isRepeated() {
        return isTransaction();
    }

    /** Send a record. Failures go to the callback, or are thrown. */
    void send(ProducerRecord<byte[], byte[]> record, Callback callback);

    /** The number of a topic's partitions, as far as the producer knows. */
    int partitions(String topic);

    /** Wait until Kafka has answered for all sent records. */
    void flush();

    /** Abort the transaction, and begin a new one. */
    void restart();

    /** The exception for an error with which the broker refuses everything from this producer. */
    RuntimeException lost(Throwable cause);
}
