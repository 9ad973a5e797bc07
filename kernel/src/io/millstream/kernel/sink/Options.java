package io.millstream.kernel.sink;

import java.io.Serializable;
import java.util.Map;
import java.util.TreeMap;

/**
 * What the sink is told: options of a Spark writer, which are texts.
 *
 * <ul>
 *   <li>{@code kafka.*}: options of the producer, by Kafka's names.
 *   <li>{@code partitions.<topic>}: how many partitions a topic has, for records with a route; else the topic is asked.
 *   <li>{@code on.refused}: {@code continue} drops records that Kafka refuses; else the task fails.
 *   <li>{@code dead.letter.topic}: where the records go that were dropped.
 *   <li>{@code transactional.prefix}: write exactly once; the sink partition makes a transactional.id of it.
 *   <li>{@code marker.topic}: of its partition 0, offsets tell which batches were written.
 *   <li>{@code epoch}: of the claim that the query runs under; a lower one may write no more.
 *   <li>{@code run}: names one run of one query; its transactional producers are used by no other.
 *   <li>{@code query}: names the query, as long as its checkpoint lives; it counts the batches.
 * </ul>
 */
record Options(
        Map<String, String> kafka,
        Map<String, Integer> partitions,
        boolean drops,
        String deadLetterTopic,
        String transactionalPrefix,
        String markerTopic,
        long epoch,
        String run,
        String query)
        implements Serializable {

    private static final String KAFKA = "kafka.";
    private static final String PARTITIONS = "partitions.";

    static Options of(Map<String, String> given) {
        Map<String, String> kafka = new TreeMap<>();
        Map<String, Integer> partitions = new TreeMap<>();
        given.forEach((name, value) -> {
            if (name.startsWith(KAFKA)) {
                kafka.put(name.substring(KAFKA.length()), value);
            } else if (name.startsWith(PARTITIONS)) {
                partitions.put(name.substring(PARTITIONS.length()), Integer.valueOf(value));
            }
        });
        String prefix = given.get("transactional.prefix");
        if (prefix != null && given.get("marker.topic") == null) {
            throw new IllegalArgumentException("transactional.prefix needs a marker.topic");
        }
        return new Options(
                kafka,
                partitions,
                "continue".equals(given.get("on.refused")),
                given.get("dead.letter.topic"),
                prefix,
                given.get("marker.topic"),
                Long.parseLong(given.getOrDefault("epoch", "0")),
                given.getOrDefault("run", ""),
                given.getOrDefault("query", ""));
    }

    boolean transactional() {
        return transactionalPrefix != null;
    }

    /** The transactional.id by which a run takes over from all before it; no records are written with it. */
    String runId() {
        return transactionalPrefix + "-run";
    }

    String transactionalId(int sinkPartition) {
        return transactionalPrefix + "-" + sinkPartition;
    }
}
