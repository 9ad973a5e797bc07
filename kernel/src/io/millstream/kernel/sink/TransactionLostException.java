package io.millstream.kernel.sink;

/** The broker has aborted a transaction although no other run has taken over; the batch has to be repeated. */
public final class TransactionLostException extends RuntimeException {
    private static final long serialVersionUID = 1;

    TransactionLostException(String message, Throwable cause) {
        super(message, cause);
    }
}
