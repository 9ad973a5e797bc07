package io.millstream.kernel.realtime;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/** Creates the readers of one batch, which can be asked to end it; it is serialized to the executors. */
public final class RealTimeReaders implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    private final PartitionReaderFactory sparks;
    private final String run;
    private final int batch;

    /** Called on the driver before a batch. */
    public RealTimeReaders(PartitionReaderFactory sparks, String run) {
        this.sparks = sparks;
        this.run = run;
        this.batch = Batches.now(run);
    }

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
        PartitionReader<InternalRow> reader = sparks.createReader(partition);
        Batches batches = Batches.of(run);
        if (batches == null) {
            return reader; // on an executor, which cannot be reached
        }
        return new RealTimeReader((SupportsRealTimeRead<InternalRow>) reader, batches, batch);
    }
}
