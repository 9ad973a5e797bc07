package io.millstream.kernel.source;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.util.CollectionAccumulator;

/**
 * Spark's reader of a partition, which adds up how large the records are. Kafka Streams' sum: ClientUtils,
 * consumerRecordSizeInBytes.
 */
final class CountingReader implements SupportsRealTimeRead<InternalRow> {
    private static final int KEY = 0;
    private static final int VALUE = 1;
    private static final int HEADERS = 7;
    private static final int HEADER_FIELDS = 2;
    /** Timestamp, offset, and partition. */
    private static final int FIXED = 8 + 8 + 4;

    private final SupportsRealTimeRead<InternalRow> sparks;
    private final ReadBytes.Piece piece;
    private final boolean hasHeaders;
    private final CollectionAccumulator<String> reports;
    private final long eachRecord;
    private long bytes;

    CountingReader(
            SupportsRealTimeRead<InternalRow> sparks,
            ReadBytes.Piece piece,
            boolean hasHeaders,
            CollectionAccumulator<String> reports) {
        this.sparks = sparks;
        this.piece = piece;
        this.hasHeaders = hasHeaders;
        this.reports = reports;
        eachRecord = FIXED + piece.topic().length(); // Kafka takes only ASCII in a topic's name
    }

    @Override
    public boolean next() throws IOException {
        boolean hasNext = sparks.next();
        if (hasNext) {
            count(sparks.get());
        }
        return hasNext;
    }

    @Override
    public RecordStatus nextWithTimeout(Long startMs, Long timeoutMs) throws IOException {
        RecordStatus status = sparks.nextWithTimeout(startMs, timeoutMs);
        if (status.hasRecord()) {
            count(sparks.get());
        }
        return status;
    }

    private void count(InternalRow row) {
        bytes += eachRecord + size(row, KEY) + size(row, VALUE);
        if (hasHeaders && !row.isNullAt(HEADERS)) {
            ArrayData headers = row.getArray(HEADERS);
            for (int i = 0; i < headers.numElements(); i++) {
                InternalRow header = headers.getStruct(i, HEADER_FIELDS);
                bytes += size(header, KEY) + size(header, VALUE);
            }
        }
    }

    /** As if it were text, which Spark's rows do not copy. */
    private static int size(InternalRow row, int column) {
        return row.isNullAt(column) ? 0 : row.getUTF8String(column).numBytes();
    }

    @Override
    public void close() throws IOException {
        if (bytes > 0) {
            reports.add(piece.report(bytes));
            bytes = 0;
        }
        sparks.close();
    }

    @Override
    public InternalRow get() {
        return sparks.get();
    }

    @Override
    public PartitionOffset getOffset() {
        return sparks.getOffset();
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
        return sparks.currentMetricsValues();
    }
}
