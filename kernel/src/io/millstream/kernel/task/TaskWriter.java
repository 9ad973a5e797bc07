package io.millstream.kernel.task;

import io.millstream.kernel.sink.Rows;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** The sink of one task: it sends what comes, and commits when the control comes. */
final class TaskWriter implements DataWriter<InternalRow> {
    private final TaskRows rows;
    private RunningTask task;

    private record Done() implements WriterCommitMessage {}

    TaskWriter(TaskRows rows) {
        this.rows = rows;
    }

    @Override
    public void write(InternalRow row) {
        if (task == null) {
            task = Tasks.current();
        }
        switch (row.getInt(rows.control())) {
            case RunningTask.COMMIT -> task.commit();
            case RunningTask.DERIVE -> task.derived();
            case RunningTask.RECORD -> send(row);
            default -> {
                // its results were written when it came first
            }
        }
    }

    private void send(InternalRow row) {
        for (Rows output : rows.outputs()) {
            if (TaskRows.goesTo(output, row)) {
                task.send(row, output);
            }
        }
        rows.count(row, task.figures);
    }

    @Override
    public WriterCommitMessage commit() {
        return new Done();
    }

    @Override
    public void abort() {
        // the reader gives the task up
    }

    @Override
    public void close() {
        // the reader does
    }
}
