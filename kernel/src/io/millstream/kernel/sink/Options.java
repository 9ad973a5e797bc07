package io.millstream.kernel.sink;

import java.io.Serializable;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * What the sink is told: options of a Spark writer, which are texts.
 *
 * <ul>
 *   <li>{@code kafka.*}: options of the producer, by Kafka's names.
 *   <li>{@code partitions.<topic>}: how many partitions a topic has, for records with a route; else the topic is asked.
 *   <li>{@code on.refused}: {@code continue} drops records that Kafka refuses, {@code ask} does what Python says; else
 *       the task fails.
 *   <li>{@code asking.secret}: the program that says it, see {@link io.millstream.kernel.python.Asking}. It may have
 *       secrets; by this name Spark does not show it.
 *   <li>{@code complete.<topic>}: no record for this topic may be dropped, whatever {@code on.refused} says.
 *   <li>{@code dead.letter.topic}: where the records go that were dropped.
 *   <li>{@code transactional.prefix}: write exactly once; the sink partition makes a transactional.id of it.
 *   <li>{@code marker.topic}: of its partition 0, offsets tell which batches were written.
 *   <li>{@code epoch}: of the claim that the query runs under; a lower one may write no more.
 *   <li>{@code run}: names one run of one query; its transactional producers are used by no other.
 *   <li>{@code real.time.run}: the query runs in Real-Time Mode, by this name; a failure ends its batch at once.
 *   <li>{@code query}: names the query, as long as its checkpoint lives; it counts the batches.
 * </ul>
 */
record Options(
        Map<String, String> kafka,
        Map<String, Integer> partitions,
        Set<String> complete,
        boolean drops,
        boolean asks,
        String asking,
        String deadLetterTopic,
        String transactionalPrefix,
        String markerTopic,
        long epoch,
        String run,
        String realTimeRun,
        String query)
        implements Serializable {

    private static final String KAFKA = "kafka.";
    private static final String PARTITIONS = "partitions.";
    private static final String COMPLETE = "complete.";

    static Options of(Map<String, String> given) {
        Map<String, String> kafka = new TreeMap<>();
        Map<String, Integer> partitions = new TreeMap<>();
        Set<String> complete = new TreeSet<>();
        given.forEach((name, value) -> {
            if (name.startsWith(KAFKA)) {
                kafka.put(name.substring(KAFKA.length()), value);
            } else if (name.startsWith(PARTITIONS)) {
                partitions.put(name.substring(PARTITIONS.length()), Integer.valueOf(value));
            } else if (name.startsWith(COMPLETE)) {
                complete.add(name.substring(COMPLETE.length()));
            }
        });
        String prefix = given.get("transactional.prefix");
        if (prefix != null && given.get("marker.topic") == null) {
            throw new IllegalArgumentException("transactional.prefix needs a marker.topic");
        }
        return new Options(
                kafka,
                partitions,
                complete,
                "continue".equals(given.get("on.refused")) || "ask".equals(given.get("on.refused")),
                "ask".equals(given.get("on.refused")),
                given.get("asking.secret"),
                given.get("dead.letter.topic"),
                prefix,
                given.get("marker.topic"),
                Long.parseLong(given.getOrDefault("epoch", "0")),
                given.getOrDefault("run", ""),
                given.get("real.time.run"),
                given.getOrDefault("query", ""));
    }

    /** Whether a record for a topic may be dropped that Kafka refuses. */
    boolean drops(String topic) {
        return drops && !complete.contains(topic);
    }

    /** A topic of a cluster, for what is known of it. */
    String place(String topic) {
        return kafka.get("bootstrap.servers") + "/" + topic;
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
