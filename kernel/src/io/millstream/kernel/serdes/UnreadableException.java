package io.millstream.kernel.serdes;

/** Bytes that a serde cannot read. The message says why, and reveals nothing of their content. */
final class UnreadableException extends RuntimeException {
    private static final long serialVersionUID = 1;

    UnreadableException(String message) {
        // Without a stack trace, which nobody reads: it is caught at once, for each such record.
        super(message, null, false, false);
    }
}
