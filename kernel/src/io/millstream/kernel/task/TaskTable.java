package io.millstream.kernel.task;

import io.millstream.kernel.Kernel;
import java.io.UncheckedIOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.SupportsTruncate;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The tasks of a subtopology as Spark's source and sink, in one query. The name of this class is passed to
 * {@code format}; the source's option `run` is the name of the run.
 *
 * <p>Progress is in Kafka, so Spark's offsets only count batches, and its checkpoint is thrown away.
 */
public final class TaskTable implements TableProvider {
    /** The name of the run, under which the plan is ({@link TaskRuns}). */
    private static final String RUN = "run";

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return RecordRow.SCHEMA;
    }

    @Override
    public boolean supportsExternalMetadata() {
        return true;
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new Both(schema);
    }

    private record Both(StructType schema) implements SupportsRead, SupportsWrite {
        @Override
        public String name() {
            return "tasks";
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(
                    TableCapability.MICRO_BATCH_READ,
                    TableCapability.STREAMING_WRITE,
                    TableCapability.ACCEPT_ANY_SCHEMA);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            String run = options.get(RUN);
            return () -> new Source(run);
        }

        @Override
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new Building(TaskRows.in(info.schema()));
        }
    }

    // --- reading ---------------------------------------------------------------------------------------

    private record Source(String run) implements Scan {
        @Override
        public StructType readSchema() {
            return RecordRow.SCHEMA;
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            return new Stream(TaskRuns.plan(run));
        }
    }

    private static final class Count extends Offset implements PartitionOffset {
        private static final long serialVersionUID = 1;
        private final long number;

        Count(long number) {
            this.number = number;
        }

        @Override
        public String json() {
            return Long.toString(number);
        }
    }

    /** @param location where its state is; null if that is not known, or does not matter */
    private record Part(TaskPlan plan, int partition, int number, int batch, long epoch, Lot lot, String location)
            implements InputPartition {
        @Override
        public String[] preferredLocations() {
            return location == null ? new String[0] : new String[] {location};
        }
    }

    private static final class Stream implements MicroBatchStream, SupportsRealTimeMode {
        /** How long a query is held after its last batch, so that it can be stopped. */
        private static final long HELD_MS = 30_000;
        /** Of tasks in executors. */
        private static final Map<String, String> LOCATIONS = new ConcurrentHashMap<>();

        private final TaskPlan plan;
        private final Tasks tasks;
        private long number;

        Stream(TaskPlan plan) {
            this.plan = plan;
            this.tasks = Tasks.of(plan.run());
        }

        @Override
        public Offset initialOffset() {
            return new Count(0);
        }

        @Override
        public Offset latestOffset() {
            hold();
            return new Count(++number);
        }

        /** Before the first task the query waits for it, and after the last batch to be stopped. */
        private void hold() {
            try {
                tasks.awaitWork();
                if (tasks.isEnding()) {
                    tasks.settle();
                    Thread.sleep(HELD_MS);
                }
            } catch (InterruptedException stopped) {
                Thread.currentThread().interrupt();
                InterruptedIOException wanted = new InterruptedIOException("the query is being stopped");
                wanted.initCause(stopped);
                throw new UncheckedIOException(wanted); // in this form, Spark knows that the end is intended
            }
        }

        @Override
        public Offset deserializeOffset(String json) {
            number = Math.max(number, Long.parseLong(json));
            return new Count(Long.parseLong(json));
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start, Offset end) {
            return planInputPartitions(start);
        }

        @Override
        public InputPartition[] planInputPartitions(Offset start) {
            Lot lot = tasks.begin(plan);
            Map<Integer, Long> epochs = tasks.remote.epochs();
            List<InputPartition> parts = new ArrayList<>();
            for (int each : lot.partitions()) {
                long epoch = epochs.getOrDefault(each, 0L);
                parts.add(new Part(plan, each, parts.size(), tasks.batch(), epoch, lot, location(each)));
            }
            for (int spares = tasks.free(); spares > 0; spares--) {
                parts.add(new Part(plan, TaskReader.SPARE, parts.size(), tasks.batch(), 0, lot, null));
            }
            return parts.toArray(InputPartition[]::new);
        }

        /** Where a task was last, in this run or in one before it. */
        private String location(int partition) {
            String task = plan.application() + "-" + plan.name(partition);
            String now = tasks.remote.location(partition);
            if (now != null) {
                LOCATIONS.put(task, now);
            }
            return LOCATIONS.get(task);
        }

        @Override
        public Offset mergeOffsets(PartitionOffset[] ends) {
            return new Count(++number);
        }

        @Override
        public PartitionReaderFactory createReaderFactory() {
            return new Readers(Kernel.version(), Kernel.digest());
        }

        @Override
        public void commit(Offset end) {
            // the tasks have committed
        }

        @Override
        public void stop() {
            tasks.lot().partitions().forEach(this::location); // so that the next run knows
            Tasks.close(plan.run());
        }
    }

    /** Of the driver's kernel, which executors must have, too. */
    private record Readers(String version, String digest) implements PartitionReaderFactory {
        @Override
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            Kernel.require(version, digest);
            Part part = (Part) partition;
            return new TaskReader(part.plan, part.partition, part.number, part.batch, part.epoch, part.lot);
        }
    }

    static PartitionOffset ended(int number) {
        return new Count(number);
    }

    // --- writing ---------------------------------------------------------------------------------------

    private record Building(TaskRows rows) implements SupportsTruncate, SupportsStreamingUpdateAsAppend {
        @Override
        public WriteBuilder truncate() {
            return this;
        }

        @Override
        public Write build() {
            return new Write() {
                @Override
                public StreamingWrite toStreaming() {
                    return new Sink(new Writers(rows));
                }
            };
        }
    }

    private record Sink(Writers writers) implements StreamingWrite {
        @Override
        public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
            return writers;
        }

        @Override
        public boolean useCommitCoordinator() {
            return false;
        }

        @Override
        public void commit(long batch, WriterCommitMessage[] messages) {
            // the tasks have committed
        }

        @Override
        public void abort(long batch, WriterCommitMessage[] messages) {
            // the tasks have seen to it
        }
    }

    private record Writers(TaskRows rows) implements StreamingDataWriterFactory {
        @Override
        public DataWriter<InternalRow> createWriter(int partition, long id, long epoch) {
            return new TaskWriter(rows);
        }
    }
}
