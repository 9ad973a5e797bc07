package io.millstream.kernel.serdes;

/**
 * The schema registry cannot be queried. The task fails with this error, and is retried with the pipeline.
 *
 * <p>Not an exception: Spark's TryEval, which drops records that cannot be read, catches exceptions.
 */
public final class RegistryError extends Error {
    private static final long serialVersionUID = 1;

    RegistryError(String message, Throwable cause) {
        super(message, cause);
    }
}
