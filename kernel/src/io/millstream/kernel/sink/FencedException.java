package io.millstream.kernel.sink;

/** A newer run of the pipeline has taken over; this one must not write any more. */
public final class FencedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    FencedException(String message, Throwable cause) {
        super(message, cause);
    }
}
