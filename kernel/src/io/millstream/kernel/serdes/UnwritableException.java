package io.millstream.kernel.serdes;

/** A value that a serde cannot write. */
public final class UnwritableException extends RuntimeException {
    private static final long serialVersionUID = 1;

    UnwritableException(String message) {
        super(message);
    }
}
