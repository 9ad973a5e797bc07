package io.millstream.kernel.sink;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;

/** How many records were dropped because Kafka refused them, by topic and reason. */
final class Dropped implements Serializable {
    private static final long serialVersionUID = 1;
    private static final String COUNT = "dropped:";
    private static final String EXAMPLE = "example:";

    private final HashMap<String, Long> counts = new HashMap<>();

    private final HashMap<String, String> examples = new HashMap<>();

    void add(String topic, Throwable error, String sentence) {
        String what = topic + ":" + error.getClass().getSimpleName();
        counts.merge(what, 1L, Long::sum);
        examples.putIfAbsent(what, sentence);
    }

    void add(Dropped other) {
        other.counts.forEach((what, count) -> counts.merge(what, count, Long::sum));
        examples.putAll(other.examples);
    }

    /**
     * As the metrics of a progress report: {@code dropped:<topic>:<reason>}, and for each of these a sentence about
     * one record, {@code example:<topic>:<reason>}.
     */
    Map<String, String> metrics() {
        Map<String, String> metrics = new HashMap<>();
        counts.forEach((what, count) -> metrics.put(COUNT + what, count.toString()));
        examples.forEach((what, sentence) -> metrics.put(EXAMPLE + what, sentence));
        return metrics;
    }
}
