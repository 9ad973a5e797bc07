package io.millstream.kernel.sink;

import java.util.Map;

/**
 * What happens to the records that a task writes, if Kafka refuses them.
 *
 * <ul>
 *   <li>{@code on.refused}: {@code continue} drops such records, {@code ask} lets Python decide; by default, the task
 *       fails.
 *   <li>{@code asking.secret}: the program that decides, see {@link io.millstream.kernel.python.Asking}. It may contain
 *       secrets; because of this name, Spark does not show it.
 *   <li>{@code dead.letter.topic}: the topic for dropped records.
 * </ul>
 *
 * @param kafka the options of the producer, by Kafka's names
 */
public record Options(
        Map<String, String> kafka, boolean drops, boolean asks, String asking, String deadLetterTopic) {

    public static Options of(Map<String, String> kafka, Map<String, String> given) {
        String refused = given.get("on.refused");
        return new Options(
                kafka,
                "continue".equals(refused) || "ask".equals(refused),
                "ask".equals(refused),
                given.get("asking.secret"),
                given.get("dead.letter.topic"));
    }

    /** The name under which facts about a cluster's topic are kept. */
    String place(String topic) {
        return kafka.get("bootstrap.servers") + "/" + topic;
    }
}
