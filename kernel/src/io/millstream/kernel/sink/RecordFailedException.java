package io.millstream.kernel.sink;

/** A user's handler has decided that a record ends the pipeline. */
public final class RecordFailedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    RecordFailedException(String message) {
        super(message);
    }
}
