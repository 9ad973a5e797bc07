package io.millstream.kernel.sink;

import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** How many records a task has dropped because Kafka refused them, by topic and reason. Travels to the driver. */
final class Dropped implements WriterCommitMessage {
    private static final long serialVersionUID = 1;
    private static final String BATCH = "batch";
    private static final String COUNT = "dropped:";
    private static final String EXAMPLE = "example:";

    private final HashMap<String, Long> counts = new HashMap<>();

    private final HashMap<String, String> examples = new HashMap<>();

    void add(String topic, Throwable error, String sentence) {
        String what = topic + ":" + error.getClass().getSimpleName();
        counts.merge(what, 1L, Long::sum);
        examples.putIfAbsent(what, sentence);
    }

    /**
     * What a batch has dropped, as the metrics of a progress report: {@code dropped:<topic>:<reason>}, and of each of
     * these a sentence about one record, {@code example:<topic>:<reason>}. With the batch's number, for a report may
     * say the same twice.
     */
    static Map<String, String> metrics(long batch, WriterCommitMessage[] messages) {
        Map<String, Long> all = new TreeMap<>();
        Map<String, String> metrics = new HashMap<>();
        for (WriterCommitMessage message : messages) {
            if (message instanceof Dropped dropped) {
                dropped.counts.forEach((what, count) -> all.merge(what, count, Long::sum));
                dropped.examples.forEach((what, sentence) -> metrics.put(EXAMPLE + what, sentence));
            }
        }
        if (all.isEmpty()) {
            return Map.of();
        }
        metrics.put(BATCH, Long.toString(batch));
        all.forEach((what, count) -> metrics.put(COUNT + what, count.toString()));
        return metrics;
    }
}
