package io.millstream.kernel.realtime;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/**
 * Spark's reader of a partition, until the batch is to end. Of a record that it has not handed out its offset says
 * nothing, so what is left to the next batch is read there.
 */
final class RealTimeReader implements SupportsRealTimeRead<InternalRow> {
    /** How long it takes at most until the end of a batch is noticed. */
    private static final long SLICE_MS = 20;

    private static final int TOPIC = 2;
    private static final int PARTITION = 3;
    private static final int OFFSET = 4;

    private final SupportsRealTimeRead<InternalRow> sparks;
    private final Batches batches;
    private final int batch;
    private AtomicLong position;
    private long next = -1;

    RealTimeReader(SupportsRealTimeRead<InternalRow> sparks, Batches batches, int batch) {
        this.sparks = sparks;
        this.batches = batches;
        this.batch = batch;
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
        if (position != null) {
            position.set(next); // the operators behind have come back for more
        }
        long began = System.nanoTime();
        while (!batches.isOver(batch)) {
            long left = timeoutMs - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
            if (left <= 0) {
                break;
            }
            RecordStatus status = sparks.nextWithTimeout(startMs, Math.min(left, SLICE_MS));
            if (status.hasRecord()) {
                note(sparks.get());
                return status;
            }
        }
        return RecordStatus.newStatusWithoutArrivalTime(false);
    }

    private void note(InternalRow row) {
        if (position == null) {
            position = batches.position(row.getUTF8String(TOPIC) + "-" + row.getInt(PARTITION));
        }
        next = row.getLong(OFFSET) + 1;
        batches.count();
    }

    @Override
    public PartitionOffset getOffset() {
        return sparks.getOffset();
    }

    @Override
    public boolean next() throws IOException {
        return sparks.next();
    }

    @Override
    public InternalRow get() {
        return sparks.get();
    }

    @Override
    public void close() throws IOException {
        sparks.close();
    }
}
