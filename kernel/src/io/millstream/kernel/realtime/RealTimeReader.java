package io.millstream.kernel.realtime;

import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;

/**
 * Spark's reader of a partition, until the batch has to end. Its offset does not include records that it has not
 * returned, so the next batch reads them.
 */
final class RealTimeReader implements SupportsRealTimeRead<InternalRow> {
    /** The maximum time until the end of a batch is noticed. */
    private static final long SLICE_MS = 20;

    private static final int OFFSET = 4;
    /** How Spark prints the position of a reader: partition, next offset. */
    private static final Pattern PLACE = Pattern.compile("[A-Za-z]+\\(([A-Za-z0-9._-]+-[0-9]+),([0-9]+)\\)");

    private final SupportsRealTimeRead<InternalRow> sparks;
    private final Batches batches;
    private final int batch;
    private final AtomicLong position;
    private long next;

    RealTimeReader(SupportsRealTimeRead<InternalRow> sparks, Batches batches, int batch) {
        this.sparks = sparks;
        this.batches = batches;
        this.batch = batch;
        String begins = sparks.getOffset().toString();
        Matcher place = PLACE.matcher(begins);
        if (!place.matches()) {
            throw new IllegalStateException("the position of Spark's reader has an unexpected text form, '" + begins
                    + "': this version of the connector does not fit the Millstream kernel");
        }
        next = Long.parseLong(place.group(2));
        position = batches.position(place.group(1), next); // also for a partition without new records
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
        position.set(next); // the operators behind it have asked for more
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
