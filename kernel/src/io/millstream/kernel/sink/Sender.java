package io.millstream.kernel.sink;

import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.ProducerRecord;

/** A producer, as one task writes with it; used by one thread. */
interface Sender {
    /** Whether this task's part of the batch is in Kafka already, and nothing is to be written. */
    boolean isWritten();

    /** Whether what is sent counts only with {@link #commit}. */
    boolean isTransaction();

    /** Send a record. What fails is told to the callback, or thrown. */
    void send(ProducerRecord<byte[], byte[]> record, Callback callback);

    /** How many partitions a topic has, as far as the producer knows. */
    int partitions(String topic);

    /** Wait until Kafka has answered for all that was sent. */
    void flush();

    /** Take back what was sent in the transaction; it goes on with nothing sent. */
    void restart();

    /** What was sent is to stay. */
    void commit();

    /** What an error means by which the broker says that it takes no more of this producer. */
    RuntimeException lost(Throwable cause);

    /** The producer is not needed any more; {@code healthy}: somebody else may use it. Idempotent. */
    void close(boolean healthy);
}
