package io.millstream.kernel.sink;

/** Kafka has refused a record, and production.exception.handler makes this a failure. */
public final class RecordRefusedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    RecordRefusedException(String message, Throwable cause) {
        super(message, cause);
    }
}
