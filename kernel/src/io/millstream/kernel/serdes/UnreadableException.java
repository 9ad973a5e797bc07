package io.millstream.kernel.serdes;

/** Bytes that a serde cannot read. The message says why, and nothing of what is in them. */
final class UnreadableException extends RuntimeException {
    private static final long serialVersionUID = 1;

    UnreadableException(String message) {
        // Nobody looks at its stack: it is caught at once, for each such record.
        super(message, null, false, false);
    }
}
