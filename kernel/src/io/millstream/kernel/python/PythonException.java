package io.millstream.kernel.python;

/** What a Python function raised. The message is as Spark has it for its own workers: see failures.py. */
public final class PythonException extends RuntimeException {
    private static final long serialVersionUID = 1;

    PythonException(String traceback) {
        super("[PYTHON_EXCEPTION] An exception was thrown from the Python worker: " + traceback);
    }
}
