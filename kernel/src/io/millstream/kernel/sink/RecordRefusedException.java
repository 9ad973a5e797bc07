package io.millstream.kernel.sink;

import org.apache.kafka.clients.producer.ProducerRecord;

/** Kafka has refused a record, and production.exception.handler makes this a failure. */
public final class RecordRefusedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    RecordRefusedException(String message, Throwable cause) {
        super(message, cause);
    }

    /** What it means that a record of a changelog was not taken. */
    public static RuntimeException ofChangelog(ProducerRecord<byte[], byte[]> record, Exception error) {
        if (Verdict.of(error) == Verdict.REFUSED) {
            return new RecordRefusedException(Verdict.sentence(record, error, true), error);
        }
        return error instanceof RuntimeException known ? known : new IllegalStateException(error);
    }
}
