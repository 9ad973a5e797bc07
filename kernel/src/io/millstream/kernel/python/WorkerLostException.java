package io.millstream.kernel.python;

/** A Python worker has ended, or was ended, before it had answered. */
public final class WorkerLostException extends IllegalStateException {
    private static final long serialVersionUID = 1;

    WorkerLostException(String message, Throwable cause) {
        super(message, cause);
    }
}
