package io.millstream.kernel.sink;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;

/** Makes the writer of each task; what it holds travels to the executors. */
final class RecordsWriterFactory implements DataWriterFactory, StreamingDataWriterFactory {
    private static final long serialVersionUID = 1;

    private final Options options;
    private final Rows rows;

    RecordsWriterFactory(Options options, Rows rows) {
        this.options = options;
        this.rows = rows;
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task) {
        return new RecordsWriter(rows, options, SharedSender.open(options));
    }

    @Override
    public DataWriter<InternalRow> createWriter(int partition, long task, long batch) {
        Sender sender = options.transactional()
                ? TransactionSender.open(options, partition, batch)
                : SharedSender.open(options);
        return new RecordsWriter(rows, options, sender);
    }
}
