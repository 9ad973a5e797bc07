package io.millstream.kernel.sink;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;

/**
 * Kafka as a table that Spark writes to. It lives on the driver as long as its query, and adds to the query's progress
 * reports what the last batch has written and dropped.
 */
final class RecordsTable implements SupportsWrite, ReportsSinkMetrics {
    private final StructType schema;
    private volatile Map<String, String> metrics = Map.of();

    RecordsTable(StructType schema) {
        this.schema = schema;
    }

    @Override
    public String name() {
        return "KafkaRecords";
    }

    @Override
    public StructType schema() {
        return schema;
    }

    @Override
    public Set<TableCapability> capabilities() {
        return Set.of(
                TableCapability.STREAMING_WRITE, TableCapability.BATCH_WRITE, TableCapability.ACCEPT_ANY_SCHEMA);
    }

    @Override
    public Map<String, String> metrics() {
        return metrics;
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
        Map<String, String> texts = new HashMap<>(info.options().asCaseSensitiveMap());
        texts.put("query", info.queryId());
        Options options = Options.of(texts);
        return new Builder(new RecordsWriterFactory(options, Rows.in(info.schema())));
    }

    /** Records are appended in every output mode: an update or a whole result is just more records. */
    private final class Builder implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
        private final RecordsWriterFactory factory;

        Builder(RecordsWriterFactory factory) {
            this.factory = factory;
        }

        @Override
        public WriteBuilder truncate() {
            return this;
        }

        @Override
        public Write build() {
            return new Write() {
                @Override
                public BatchWrite toBatch() {
                    return new Batch(factory);
                }

                @Override
                public StreamingWrite toStreaming() {
                    return new Stream(factory);
                }
            };
        }
    }

    private final class Stream implements StreamingWrite {
        private final RecordsWriterFactory factory;

        Stream(RecordsWriterFactory factory) {
            this.factory = factory;
        }

        @Override
        public RecordsWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            factory.provide(info.numPartitions());
            return factory;
        }

        @Override
        public boolean useCommitCoordinator() {
            return false;
        }

        @Override
        public void commit(long batch, WriterCommitMessage[] messages) {
            factory.written();
            metrics = Written.metrics(batch, messages);
        }

        @Override
        public void abort(long batch, WriterCommitMessage[] messages) {
            // each task has seen to its own
        }
    }

    private static final class Batch implements BatchWrite {
        private final RecordsWriterFactory factory;

        Batch(RecordsWriterFactory factory) {
            this.factory = factory;
        }

        @Override
        public RecordsWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
            return factory;
        }

        @Override
        public boolean useCommitCoordinator() {
            return false;
        }

        @Override
        public void commit(WriterCommitMessage[] messages) {
            // the metrics of a batch query are not read
        }

        @Override
        public void abort(WriterCommitMessage[] messages) {
            // each task has seen to its own
        }
    }
}
