package io.millstream.kernel.sink;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * What was committed last under a transactional.id: an offset of the marker topic that is committed in a transaction,
 * under a group that is called as the transactional.id.
 *
 * @param next of a sink partition, the first batch that is not written yet; of a run, how many sink partitions there
 *     are; the offset itself
 * @param epoch of the claim that wrote it; in the offset's metadata
 * @param of whose it is: the query (as its checkpoint has it) that counts these batches, or the run; in the metadata
 */
record Marker(long next, long epoch, String of) {
    static final Marker NONE = new Marker(0, 0, "");

    private static final long AGAIN_MS = 20;

    Map<TopicPartition, OffsetAndMetadata> offsets(Options options) {
        return Map.of(place(options), new OffsetAndMetadata(next, epoch + " " + of));
    }

    /** How far a query has written, which counts its batches from 0 on. */
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

    /** Read it, once what is being committed is settled. */
    static Marker read(Options options, String group) {
        return read(options, List.of(group)).get(group);
    }

    /**
     * Read several, once what is being committed is settled; each is there, or {@link #NONE}. That is soon, where the
     * producers before were fenced.
     *
     * @throws TimeoutException it was not settled within max.block.ms
     */
    static Map<String, Marker> read(Options options, Collection<String> groups) {
        return read(options, groups, true);
    }

    /** Read several, as they are for now: what is being committed may come to be. */
    static Map<String, Marker> glance(Options options, Collection<String> groups) {
        return read(options, groups, false);
    }

    private static Map<String, Marker> read(Options options, Collection<String> groups, boolean settled) {
        if (groups.isEmpty()) {
            return Map.of();
        }
        TopicPartition place = place(options);
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        groups.forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec().topicPartitions(List.of(place))));
        Map<String, Marker> found = new HashMap<>();
        String patience = options.kafka().getOrDefault(ProducerConfig.MAX_BLOCK_MS_CONFIG, "60000");
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Long.parseLong(patience));
        try (Admin admin = admin(options)) {
            while (true) {
                admin.listConsumerGroupOffsets(asked, new ListConsumerGroupOffsetsOptions().requireStable(settled))
                        .all()
                        .get()
                        .forEach((group, offsets) -> {
                            // Kafka's client leaves out what is not settled; null is no offset.
                            if (offsets.containsKey(place)) {
                                found.put(group, of(offsets.get(place)));
                            }
                        });
                asked.keySet().removeAll(found.keySet());
                if (asked.isEmpty()) {
                    return found;
                }
                if (System.nanoTime() > deadline) {
                    throw new TimeoutException(
                            "Kafka has not told the markers of " + asked.keySet() + " in topic '" + place.topic()
                                    + "' for " + patience + " ms (max.block.ms): a transaction that writes them is "
                                    + "open, or this client's user may not Describe the topic");
                }
                TimeUnit.MILLISECONDS.sleep(AGAIN_MS);
            }
        } catch (ExecutionException error) {
            throw error.getCause() instanceof KafkaException cause ? cause : new KafkaException(error.getCause());
        } catch (InterruptedException error) {
            throw new org.apache.kafka.common.errors.InterruptException(error);
        }
    }

    static Admin admin(Options options) {
        Map<String, Object> known = new HashMap<>(options.kafka());
        known.keySet().retainAll(AdminClientConfig.configNames());
        return Admin.create(known);
    }

    private static TopicPartition place(Options options) {
        return new TopicPartition(options.markerTopic(), 0);
    }
}
