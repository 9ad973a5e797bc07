package io.millstream.kernel.sink;

import io.millstream.kernel.Constants;
import java.io.Serializable;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * The options of the sink: those of a Spark writer, which are texts.
 *
 * <ul>
 *   <li>{@code kafka.*}: options of the producer, by Kafka's names.
 *   <li>{@code partitions.<topic>}: the number of a topic's partitions, for records with a route; by default, the
 *       producer is asked.
 *   <li>{@code on.refused}: {@code continue} drops records that Kafka refuses, {@code ask} lets Python decide; by
 *       default, the task fails.
 *   <li>{@code asking.secret}: the program that decides, see {@link io.millstream.kernel.python.Asking}. It may contain
 *       secrets; because of this name, Spark does not show it.
 *   <li>{@code complete.<topic>}: no record for this topic may be dropped, whatever {@code on.refused} says.
 *   <li>{@code dead.letter.topic}: the topic for dropped records.
 *   <li>{@code transactional.prefix}: write exactly once; prefix and sink partition form the transactional.id.
 *   <li>{@code marker.topic}: offsets of its partition 0 record which batches were written.
 *   <li>{@code epoch}: the epoch of the claim that the query runs under; lower ones must not write any more.
 *   <li>{@code run}: identifies one run of one query; no other run uses its transactional producers.
 *   <li>{@code real.time.run}: the query runs in Real-Time Mode, under this name; a failure ends its batch at once.
 *   <li>{@code query}: identifies the query for as long as its checkpoint lives; the query counts the batches.
 * </ul>
 */
public record Options(
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

    public static Options of(Map<String, String> given) {
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
                given.get(Constants.OPTION_RUN),
                given.getOrDefault("query", ""));
    }

    /** Whether a refused record for a topic may be dropped. */
    boolean drops(String topic) {
        return drops && !complete.contains(topic);
    }

    /** The name under which facts about a cluster's topic are kept. */
    String place(String topic) {
        return kafka.get("bootstrap.servers") + "/" + topic;
    }

    boolean transactional() {
        return transactionalPrefix != null;
    }

    /** The transactional.id with which a run takes over from all earlier ones; it writes no records. */
    String runId() {
        return transactionalPrefix + "-run";
    }

    String transactionalId(int sinkPartition) {
        return transactionalPrefix + "-" + sinkPartition;
    }
}
