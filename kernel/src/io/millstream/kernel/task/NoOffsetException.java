package io.millstream.kernel.task;

/** Where a source topic is to be read from is not known, and is not to be guessed. */
public final class NoOffsetException extends RuntimeException {
    private static final long serialVersionUID = 1;

    NoOffsetException(String message) {
        super(message);
    }

    NoOffsetException(String message, Throwable cause) {
        super(message, cause);
    }
}
