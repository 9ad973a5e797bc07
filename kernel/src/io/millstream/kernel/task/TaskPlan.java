package io.millstream.kernel.task;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.millstream.kernel.python.Program;
import io.millstream.kernel.sink.Options;
import java.io.Serializable;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Pattern;

/**
 * How the tasks of one subtopology read, write and commit, as Python has decided it. It is sent to where they run.
 *
 * @param run the name of one run of the query, under which its source, operators and sink meet
 * @param application the application.id, which is the group whose offsets are committed
 * @param subtopology its number
 * @param topics what is read, each with the number of its partitions; 0 before that is known
 * @param patterns what is read besides, all topics whose names match one of them; and where these begin
 * @param consumer settings of the consumer, by Kafka's names
 * @param producer settings of the producer, likewise
 * @param isExactlyOnce whether all outputs are part of the transaction; the state, the offsets and what is written
 *     for other tasks are in any case
 * @param commitMs the shortest time from one commit to the next
 * @param idleMs how long a partition without records is waited for while others have some
 * @param hasHeaders whether headers of records are read
 * @param directory where the state of its tasks is kept between runs
 * @param stores its stores, in the order of their numbers
 * @param tables topics that are read as tables, and are their stores' changelogs
 * @param outputs topics that it writes beside changelogs, as far as they are known
 * @param internal those of them that only tasks of the application read
 * @param purged topics that only this subtopology reads: what is committed of them is deleted
 * @param purgeMs repartition.purge.interval.ms: how often that is done
 * @param resets where topics are read from that have no committed offset: earliest, latest, none, or
 *     by_duration: and an ISO duration; those that are not here as auto.offset.reset of the consumer says
 * @param sink further options of the sink ({@link Options})
 * @param buffered buffered.records.per.partition
 * @param timeoutMs task.timeout.ms: how long an operation that times out is tried again
 * @param metadataBytes offset.metadata.max.bytes of the brokers
 * @param readsLostAnew source.lost.policy: whether a source topic that was made anew, or has lost records before they
 *     were read, is read from its beginning; otherwise tasks fail
 * @param globals the global tables that it looks rows up in, in the order of their numbers
 * @param times the timestamp extractors of sources that have not Kafka's default
 */
public record TaskPlan(
        String run,
        String application,
        int subtopology,
        Map<String, Integer> topics,
        Map<String, String> patterns,
        Map<String, String> consumer,
        Map<String, String> producer,
        boolean isExactlyOnce,
        long commitMs,
        long idleMs,
        boolean hasHeaders,
        String directory,
        List<Store> stores,
        List<String> tables,
        List<String> outputs,
        List<String> internal,
        List<String> purged,
        long purgeMs,
        Map<String, String> resets,
        Map<String, String> sink,
        int buffered,
        long timeoutMs,
        int metadataBytes,
        boolean readsLostAnew,
        List<Global> globals,
        List<Times> times)
        implements Serializable {
    private static final String DERIVED = "derived";
    private static final int BUFFERED = 1_000;
    private static final int TIMEOUT_MS = 300_000;
    private static final int METADATA_BYTES = 4_096;
    private static final long PURGE_MS = 30_000;

    /**
     * Part of a task's state.
     *
     * @param changelog the topic that it is logged to; empty: to none
     * @param isInMemory whether it is not kept on disk
     * @param layout empty if its entries are logged as they are; otherwise how those of a processor's store lie
     *     (see {@link LaidOut}), of which the changelog hears by {@link State#log}
     * @param source the topic that fills a processor's store, which others write, up to the task's offset; empty for
     *     none
     * @param isDerived whether what it has follows from other stores, from topics that are read as tables, or from all
     *     records of its changelog
     * @param isVersioned whether each put is logged
     * @param form how its changelog is that of Kafka Streams and no more: `values`; or `held`, `held windows` or `held
     *     sessions` (see {@link Held}); empty if a header has the parts of values
     */
    public record Store(
            String name,
            String changelog,
            boolean isInMemory,
            String layout,
            String source,
            boolean isDerived,
            boolean isVersioned,
            String form)
            implements Serializable {
        Store(String name, String changelog, boolean isInMemory) {
            this(name, changelog, isInMemory, "", "", false, false, "");
        }

        boolean isLogged() {
            return !changelog.isEmpty();
        }

        /** Whether its changelog has all that it has. */
        boolean isRestored() {
            return isLogged() && !isDerived;
        }

        /** Whether its entries have no parts, because their values say them. */
        boolean isOfValues() {
            return !form.isEmpty();
        }
    }

    /**
     * A topic that each client has whole.
     *
     * @param isWhole whether the changes of a transaction are seen at once
     * @param consumer settings of its consumer, by Kafka's names
     * @param filling the processor that fills it from the records of the topic; null: it has the last value of each key
     */
    public record Global(String topic, boolean isWhole, Map<String, String> consumer, Program filling)
            implements Serializable {
        /** Without settings, which may have passwords. */
        @Override
        public String toString() {
            return "global table of " + topic;
        }
    }

    /** From Python's description. */
    public static TaskPlan of(String json) {
        return of(json, List.of(), Map.of());
    }

    /** The same, with timestamp extractors, and the processors that fill global tables, by their topics. */
    static TaskPlan of(String json, List<Times> times, Map<String, Program> fillings) {
        JsonNode node;
        try {
            node = new ObjectMapper().readTree(json);
        } catch (JsonProcessingException error) {
            throw new IllegalArgumentException("the description of a task is not JSON", error);
        }
        Map<String, Integer> topics = new TreeMap<>();
        node.get("topics").forEach(topic -> topics.put(topic.asText(), 0));
        Map<String, String> patterns = node.has("patterns") ? texts(node.get("patterns")) : Map.of();
        List<Store> stores = new ArrayList<>();
        node.get("stores")
                .forEach(store -> stores.add(new Store(
                        store.get("name").asText(),
                        store.get("changelog").asText(),
                        store.get("in_memory").asBoolean(),
                        store.path("layout").asText(""),
                        store.path("source").asText(""),
                        store.path("derived").asBoolean(),
                        store.path("versioned").asBoolean(),
                        store.path("form").asText(""))));
        List<Global> globals = new ArrayList<>();
        node.path("globals")
                .forEach(each -> globals.add(new Global(
                        each.get("topic").asText(),
                        each.get("whole").asBoolean(),
                        texts(node.get("global_consumer")),
                        fillings.get(each.get("topic").asText()))));
        return new TaskPlan(
                node.get("run").asText(),
                node.get("application").asText(),
                node.get("subtopology").asInt(),
                topics,
                patterns,
                texts(node.get("consumer")),
                texts(node.get("producer")),
                node.get("exactly_once").asBoolean(),
                node.get("commit_ms").asLong(),
                node.get("idle_ms").asLong(),
                node.get("headers").asBoolean(),
                node.get("directory").asText(),
                stores,
                list(node.path("tables")),
                list(node.path("outputs")),
                list(node.path("internal")),
                list(node.path("purged")),
                node.path("purge_ms").asLong(PURGE_MS),
                node.has("resets") ? texts(node.get("resets")) : Map.of(),
                node.has("sink") ? texts(node.get("sink")) : Map.of(),
                node.path("buffered").asInt(BUFFERED),
                node.path("timeout_ms").asLong(TIMEOUT_MS),
                node.path("metadata_bytes").asInt(METADATA_BYTES),
                node.path("reads_lost_anew").asBoolean(),
                globals,
                List.copyOf(times));
    }

    private static List<String> list(JsonNode node) {
        List<String> texts = new ArrayList<>();
        node.forEach(each -> texts.add(each.asText()));
        return texts;
    }

    private static Map<String, String> texts(JsonNode node) {
        Map<String, String> texts = new TreeMap<>();
        node.properties().forEach(entry -> texts.put(entry.getKey(), entry.getValue().asText()));
        return texts;
    }

    /** Without settings, which may have passwords. */
    @Override
    public String toString() {
        return "tasks of subtopology " + subtopology + " of " + application;
    }

    /** The same plan, with the number of partitions of each topic that is read, and where each of them begins. */
    TaskPlan with(Map<String, Integer> partitions, Map<String, String> begins) {
        return new TaskPlan(
                run,
                application,
                subtopology,
                new TreeMap<>(partitions),
                patterns,
                consumer,
                producer,
                isExactlyOnce,
                commitMs,
                idleMs,
                hasHeaders,
                directory,
                stores,
                tables,
                outputs,
                internal,
                purged,
                purgeMs,
                begins,
                sink,
                buffered,
                timeoutMs,
                metadataBytes,
                readsLostAnew,
                globals,
                times);
    }

    /** The options of its sink. */
    Options options() {
        return Options.of(producer, sink);
    }

    /** The number of the store for what follows from the others, which is not logged; -1: there is none. */
    int local() {
        for (int i = 0; i < stores.size(); i++) {
            if (stores.get(i).name().equals(DERIVED)) {
                return i;
            }
        }
        return -1;
    }

    /** Whether a store has what follows from others. */
    boolean isAnyDerived() {
        return stores.stream().anyMatch(Store::isDerived);
    }

    /** Whether its records come from a program, and its state is not kept. */
    boolean isInMemory() {
        return consumer.isEmpty();
    }

    /** Whether it reads a topic only because its name matches a pattern. */
    boolean isByPattern(String topic) {
        return patterns.keySet().stream().anyMatch(each -> Pattern.matches(each, topic));
    }

    /** Those of these partitions that a topic has. */
    List<Integer> existing(List<Integer> partitions) {
        int count = count();
        return partitions.stream().filter(each -> isInMemory() || each < count).toList();
    }

    /** How many tasks its topics make, of all clients. */
    int count() {
        return topics.values().stream().mapToInt(Integer::intValue).max().orElse(0);
    }

    /** What its stores are logged to. */
    List<String> changelogs() {
        return stores.stream()
                .filter(Store::isLogged)
                .map(Store::changelog)
                .distinct()
                .toList();
    }

    /** Whether any of its stores is kept on disk. */
    boolean isOnDisk() {
        return !stores.stream().allMatch(Store::isInMemory);
    }

    /** Where a task's state is kept between runs. */
    Path directory(int partition) {
        return Path.of(directory, name(partition));
    }

    /** The name of a task, as Kafka Streams writes it. */
    String name(int partition) {
        return subtopology + "_" + partition;
    }
}
