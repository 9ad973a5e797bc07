package io.millstream.kernel.task;

/** Another process has taken the task over, or its transaction has timed out: this one must not write any more. */
public final class TaskMovedException extends RuntimeException {
    private static final long serialVersionUID = 1;

    TaskMovedException(String message, Throwable cause) {
        super(message, cause);
    }
}
