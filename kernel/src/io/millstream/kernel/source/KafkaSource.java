package io.millstream.kernel.source;

import io.millstream.kernel.Constants;
import io.millstream.kernel.realtime.Batches;
import io.millstream.kernel.realtime.RealTimeReaders;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source, with partitions in the same order when a batch is repeated. Its name is passed to
 * {@code format}.
 *
 * <p>Spark's own source has them in the order of a map, which comes from the offset log after a restart, and from the
 * broker's answer before. Exactly once relies on the same task reading the same records, so here partitions are sorted
 * by topic and number. In Real-Time Mode, with the option {@code real.time.run}, the batches of that run can be ended
 * early. With the option {@code batch.run}, all sources of that run share one limit ({@link Backlog}). The metrics in a
 * progress report say how many bytes were read. Everything else is Spark's.
 */
public final class KafkaSource implements TableProvider {
    private static final String KAFKAS = "kafka.";
    private static final String SPARKS = "org.apache.spark.sql.kafka010.KafkaSourceProvider";
    private static final String HEADERS = "includeHeaders";

    private final TableProvider sparks;

    public KafkaSource() throws ReflectiveOperationException {
        ClassLoader loader = Thread.currentThread().getContextClassLoader();
        sparks = (TableProvider) Class.forName(SPARKS, true, loader).getDeclaredConstructor().newInstance();
    }

    @Override
    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return sparks.inferSchema(options);
    }

    @Override
    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new Read((SupportsRead) sparks.getTable(schema, partitioning, properties));
    }

    private record Read(SupportsRead sparks) implements SupportsRead {
        @Override
        public String name() {
            return sparks.name();
        }

        @Override
        @SuppressWarnings("deprecation")
        public StructType schema() {
            return sparks.schema();
        }

        @Override
        public Set<TableCapability> capabilities() {
            return Set.of(TableCapability.MICRO_BATCH_READ);
        }

        @Override
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            Scan scan = sparks.newScanBuilder(options).build();
            return () -> new Sorted(scan, options);
        }
    }

    private record Sorted(Scan sparks, CaseInsensitiveStringMap options) implements Scan {
        @Override
        public StructType readSchema() {
            return sparks.readSchema();
        }

        @Override
        public String description() {
            return sparks.description();
        }

        @Override
        public MicroBatchStream toMicroBatchStream(String checkpoint) {
            MicroBatchStream stream = sparks.toMicroBatchStream(checkpoint);
            Backlog backlog = Backlog.of(options.get(Constants.OPTION_SHARED));
            UnaryOperator<Offset> endsAt = null;
            if (backlog != null) {
                int number = Integer.parseInt(checkpoint.substring(checkpoint.lastIndexOf('/') + 1));
                backlog.add(number, stream, client(options), options.getBoolean(Constants.OPTION_HAS_TIMES, true));
                endsAt = start -> backlog.end(number, start);
            }
            return sorted(stream, endsAt, options.get(Constants.OPTION_RUN), options.getBoolean(HEADERS, false));
        }
    }

    /** The settings of a Kafka client with these options. */
    private static Map<String, Object> client(CaseInsensitiveStringMap options) {
        Map<String, Object> settings = new TreeMap<>();
        options.asCaseSensitiveMap().forEach((name, value) -> {
            if (name.startsWith(KAFKAS)) {
                settings.put(name.substring(KAFKAS.length()), value);
            }
        });
        return settings;
    }

    /** The same stream, with all its other abilities; `endsAt` says where a batch ends if it is not Spark who does. */
    private static MicroBatchStream sorted(
            MicroBatchStream stream, UnaryOperator<Offset> endsAt, String run, boolean hasHeaders) {
        Class<?>[] all = stream.getClass().getInterfaces();
        int[] planned = {0};
        ReadBytes bytes = new ReadBytes();
        return (MicroBatchStream) Proxy.newProxyInstance(
                stream.getClass().getClassLoader(), all, (proxy, method, arguments) -> {
                    if (method.getName().equals("equals") && method.getParameterCount() == 1) {
                        return proxy == arguments[0];
                    }
                    if (run != null && method.getName().equals("latestOffset")) {
                        Batches.beginning(run);
                    }
                    if (arguments != null && arguments.length == 1 && arguments[0] instanceof PartitionOffset[] ends) {
                        check(planned[0], ends);
                    }
                    Object found = endsAt != null && arguments != null && method.getName().equals("latestOffset")
                            ? endsAt.apply((Offset) arguments[0])
                            : called(stream, method, arguments);
                    if (found instanceof InputPartition[] partitions) {
                        sort(partitions);
                        planned[0] = partitions.length;
                        if (run != null) {
                            Batches.planned(run, planned, partitions.length);
                        }
                    }
                    if (found instanceof PartitionReaderFactory readers) {
                        PartitionReaderFactory counting = bytes.counting(readers, hasHeaders);
                        return run == null ? counting : new RealTimeReaders(counting, run);
                    }
                    return method.getName().equals("metrics") ? with(found, bytes.take()) : found;
                });
    }

    private static Map<Object, Object> with(Object metrics, String bytes) {
        Map<Object, Object> all = new TreeMap<>((Map<?, ?>) metrics);
        if (bytes != null) {
            all.put(Constants.METRIC_BYTES, bytes);
        }
        return all;
    }

    /** Checks the end of a batch in Real-Time Mode: a partition without an end would start over, or be omitted. */
    private static void check(int planned, PartitionOffset[] ends) {
        if (new HashSet<>(Arrays.asList(ends)).size() != planned) {
            throw new IllegalStateException("only some of the " + planned + " partitions reported how far they were "
                    + "read: " + Arrays.toString(ends));
        }
    }

    private static Object called(MicroBatchStream stream, Method method, Object[] arguments) throws Throwable {
        try {
            return method.invoke(stream, arguments);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    /** Sorts by topic and partition; pieces of one partition keep their order. */
    private static void sort(InputPartition[] partitions) {
        Arrays.sort(
                partitions,
                Comparator.comparing(ReadBytes.Piece::of, Comparator.comparing(ReadBytes.Piece::topic)
                        .thenComparing(ReadBytes.Piece::partition)));
    }
}
