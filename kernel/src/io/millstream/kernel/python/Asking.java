package io.millstream.kernel.python;

import io.millstream.kernel.Constants;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import org.apache.spark.TaskContext;

/**
 * Lets Python answer questions about failed records: bytes for bytes. The other end, and the format, are in
 * millstream/spark/worker/handler_calls.py. The first question takes a worker.
 */
public final class Asking {
    private final String program;
    private Worker worker;
    /** Whose the worker is: with the end of its task, it goes to another one. */
    private TaskContext task;

    /**
     * @param program as {@link Program#text()} has it
     */
    public Asking(String program) {
        this.program = program;
    }

    /** An answer for each question. */
    public byte[][] ask(List<byte[]> questions) {
        try {
            if (worker == null || task != TaskContext.get()) {
                task = TaskContext.get();
                worker = Worker.take(Program.of(program));
            }
            Message request = new Message(Constants.MESSAGE_REQUEST).add(questions.toArray(new byte[0][]));
            return worker.call(request).bytes(0, questions.size());
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }
}
