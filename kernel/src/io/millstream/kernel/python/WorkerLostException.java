package io.millstream.kernel.python;

/** A Python worker ended, or was ended, before it answered. */
public final class WorkerLostException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    WorkerLostException(String message, Throwable cause) {
        super(message, cause);
    }
}
