package io.millstream.kernel.sink;

import io.millstream.kernel.realtime.Batches;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** Writes the rows of one task. */
final class RecordsWriter implements DataWriter<InternalRow> {
    private final Rows rows;
    private final Sender sender;
    private final Delivery delivery;

    RecordsWriter(Rows rows, Options options, Sender sender) {
        this.rows = rows;
        this.sender = sender;
        this.delivery = new Delivery(options, sender, why -> {
            if (options.realTimeRun() != null) {
                Batches.turn(options.realTimeRun()); // otherwise it shows at the next row, or at the end of the batch
            }
        });
    }

    @Override
    public void write(InternalRow row) {
        if (!sender.isWritten()) {
            delivery.write(row, rows);
        }
    }

    @Override
    public WriterCommitMessage commit() {
        if (!sender.isWritten()) {
            delivery.settle();
            sender.commit();
        }
        sender.close(true);
        return delivery.settled();
    }

    @Override
    public void abort() {
        sender.close(false);
    }

    @Override
    public void close() {
        sender.close(false); // nothing, after a commit
    }
}
