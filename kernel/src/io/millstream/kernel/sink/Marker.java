package io.millstream.kernel.sink;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.utils.Utils;

/**
 * What was committed last under a transactional.id: an offset of the marker topic, committed in a transaction for a
 * group with the name of the transactional.id.
 *
 * @param next the offset itself: for a sink partition, the first batch that is not written yet; for a run, the number
 *     of sink partitions
 * @param epoch the epoch of the claim that wrote it; in the offset's metadata
 * @param of its owner: the query (as in its checkpoint) that counts these batches, or the run; in the metadata
 */
record Marker(long next, long epoch, String of) {
    static final Marker NONE = new Marker(0, 0, "");

    private static final long AGAIN_MS = 20;

    Map<TopicPartition, OffsetAndMetadata> offsets(Options options) {
        return Map.of(new TopicPartition(options.markerTopic(), 0), new OffsetAndMetadata(next, epoch + " " + of));
    }

    /** How far a query has written; it counts its batches from 0. */
    long nextOf(String query) {
        return of.equals(query) ? next : 0;
    }

    static Marker of(OffsetAndMetadata committed) {
        if (committed == null) {
            return NONE;
        }
        String[] words = committed.metadata().split(" ", 2);
        long epoch = words[0].isEmpty() ? 0 : Long.parseLong(words[0]);
        return new Marker(committed.offset(), epoch, words.length < 2 ? "" : words[1]);
    }

    /**
     * Read several markers; a missing one is {@link #NONE}.
     *
     * @param settled wait up to max.block.ms for commits in progress, which soon end if the earlier producers were
     *     fenced. Otherwise, the current state is returned
     */
    static Map<String, Marker> read(Options options, Collection<String> groups, boolean settled) {
        List<TopicPartition> places = List.of(new TopicPartition(options.markerTopic(), 0));
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        groups.forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec().topicPartitions(places)));
        ListConsumerGroupOffsetsOptions how = new ListConsumerGroupOffsetsOptions().requireStable(settled);
        Map<String, Marker> found = new HashMap<>();
        String patience = options.kafka().getOrDefault(ProducerConfig.MAX_BLOCK_MS_CONFIG, "60000");
        long deadline = System.nanoTime() + 1_000_000 * Long.parseLong(patience);
        try (Admin admin = admin(options)) {
            while (!asked.isEmpty()) {
                // Kafka's client omits what is not settled; null means no offset.
                answered(admin.listConsumerGroupOffsets(asked, how).all())
                        .forEach((group, offsets) -> offsets.values().forEach(offset -> found.put(group, of(offset))));
                asked.keySet().removeAll(found.keySet());
                if (!asked.isEmpty() && System.nanoTime() > deadline) {
                    throw new TimeoutException("Kafka did not return the markers of " + asked.keySet()
                            + ": a transaction that writes them is open, or this user must not Describe " + places);
                }
                Utils.sleep(asked.isEmpty() ? 0 : AGAIN_MS);
            }
        }
        return found;
    }

    static <T> T answered(KafkaFuture<T> answer) {
        try {
            return answer.get();
        } catch (ExecutionException error) {
            throw error.getCause() instanceof KafkaException cause ? cause : new KafkaException(error.getCause());
        } catch (InterruptedException error) {
            throw new InterruptException(error);
        }
    }

    static Admin admin(Options options) {
        Map<String, Object> known = new HashMap<>(options.kafka());
        known.keySet().retainAll(AdminClientConfig.configNames());
        return Admin.create(known);
    }
}
