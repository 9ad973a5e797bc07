package io.millstream.kernel.python;

/** An exception raised by a Python function. The message is as from Spark's own workers; see failures.py. */
public final class PythonException extends RuntimeException {
    private static final long serialVersionUID = 1;

    PythonException(String traceback) {
        super("[PYTHON_EXCEPTION] An exception was thrown from the Python worker: " + traceback);
    }
}
