package io.millstream.kernel.source;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.util.CollectionAccumulator;

/**
 * How many bytes a source has read of each partition, on the driver.
 *
 * <p>Each task says so once, at its end, by an accumulator of Spark's. What a batch reads twice, in two branches of its
 * plan or in a task that is repeated, counts once, as it does by the offsets.
 */
final class ReadBytes {
    private static final Pattern RANGE =
            Pattern.compile("[A-Za-z]+\\([A-Za-z]+\\(([A-Za-z0-9._-]+)-([0-9]+),(-?[0-9]+),");

    /** What one task reads: a partition, from an offset on. */
    record Piece(String topic, int partition, long from) {
        static Piece of(InputPartition partition) {
            Matcher range = RANGE.matcher(partition.toString());
            if (!range.lookingAt()) {
                throw new IllegalStateException("a partition of Spark's Kafka source is shown in another way than "
                        + "its offsets: this version of the connector does not fit the Millstream kernel");
            }
            return new Piece(range.group(1), Integer.parseInt(range.group(2)), Long.parseLong(range.group(3)));
        }

        String report(long bytes) {
            return topic + " " + partition + " " + from + " " + bytes;
        }
    }

    private final Set<CollectionAccumulator<String>> unread = new HashSet<>();

    /** The readers of a batch, which count; with the column of headers or without. */
    @SuppressWarnings("resource") // the query's session stays open
    PartitionReaderFactory counting(PartitionReaderFactory readers, boolean hasHeaders) {
        CollectionAccumulator<String> reports = new CollectionAccumulator<>();
        SparkSession.active().sparkContext().register(reports);
        synchronized (unread) {
            unread.add(reports);
        }
        return new Readers(readers, hasHeaders, reports);
    }

    private record Readers(PartitionReaderFactory sparks, boolean hasHeaders, CollectionAccumulator<String> reports)
            implements PartitionReaderFactory {
        @Override
        @SuppressWarnings("resource") // it is the other one's to close
        public PartitionReader<InternalRow> createReader(InputPartition partition) {
            SupportsRealTimeRead<InternalRow> reader =
                    (SupportsRealTimeRead<InternalRow>) sparks.createReader(partition);
            return new CountingReader(reader, Piece.of(partition), hasHeaders, reports);
        }
    }

    /** What was read since this was asked before, as JSON: topics, their partitions, and the bytes; null: nothing. */
    String take() {
        Map<Piece, Long> pieces = new HashMap<>();
        synchronized (unread) {
            for (CollectionAccumulator<String> each : unread) {
                for (String line : each.value()) {
                    String[] words = line.split(" ");
                    Piece piece = new Piece(words[0], Integer.parseInt(words[1]), Long.parseLong(words[2]));
                    pieces.merge(piece, Long.parseLong(words[3]), Math::max);
                }
            }
            unread.clear();
        }
        Map<String, Map<Integer, Long>> topics = new TreeMap<>();
        pieces.forEach((piece, bytes) -> topics.computeIfAbsent(piece.topic(), name -> new TreeMap<>())
                .merge(piece.partition(), bytes, Long::sum));
        return topics.isEmpty() ? null : topics.entrySet().stream()
                .map(topic -> '"' + topic.getKey() + "\":" + topic.getValue().entrySet().stream()
                        .map(each -> "\"" + each.getKey() + "\":" + each.getValue())
                        .collect(Collectors.joining(",", "{", "}")))
                .collect(Collectors.joining(",", "{", "}"));
    }
}
