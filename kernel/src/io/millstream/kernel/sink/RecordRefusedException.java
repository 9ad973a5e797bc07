package io.millstream.kernel.sink;

/** Kafka refuses a record, and production.exception.handler says that this is a failure. */
public final class RecordRefusedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    RecordRefusedException(String message, Throwable cause) {
        super(message, cause);
    }
}
