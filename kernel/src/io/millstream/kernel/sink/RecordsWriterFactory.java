package io.millstream.kernel.sink;

import io.millstream.kernel.FailPoint;
import io.millstream.kernel.Kernel;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Creates the writer of each task; it is serialized to the executors. */
final class RecordsWriterFactory implements DataWriterFactory, StreamingDataWriterFactory {
    private static final long serialVersionUID = 1;

    private final Options options;
    private final Rows rows;
    /** The driver's kernel. */
    private final String version = Kernel.version();

    private final String digest = Kernel.digest();

    RecordsWriterFactory(Options options, Rows rows) {
        this.options = options;
        this.rows = rows;
    }

    /** Called on the driver before a batch, with its number of tasks. */
    void provide(int parts) {
        if (options.transactional()) {
            FailPoint.reach(options.runId() + ".planned");
            Run.provide(options, parts);
        }
    }

    /** Called on the driver after a batch. */
    void written() {
        FailPoint.reach(options.runId() + ".written");
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
        Kernel.require(version, digest);
        return new RecordsWriter(rows, options, SharedSender.open(options));
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
        Kernel.require(version, digest);
        Sender sender = options.transactional()
                ? TransactionSender.open(options, partition, batch)
                : SharedSender.open(options);
        return new RecordsWriter(rows, options, sender);
    }
}
