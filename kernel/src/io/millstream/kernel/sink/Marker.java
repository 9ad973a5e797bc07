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
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

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

    /** Read several; each is there, or {@link #NONE}. */
    static Map<String, Marker> read(Options options, Collection<String> groups) {
        if (groups.isEmpty()) {
            return Map.of();
        }
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        groups.forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec()));
        Map<String, Marker> found = new HashMap<>();
        try (Admin admin = admin(options)) {
            admin.listConsumerGroupOffsets(asked, new ListConsumerGroupOffsetsOptions().requireStable(true))
                    .all()
                    .get()
                    .forEach((group, offsets) -> found.put(group, of(offsets.get(place(options)))));
        } catch (ExecutionException error) {
            throw error.getCause() instanceof KafkaException cause ? cause : new KafkaException(error.getCause());
        } catch (InterruptedException error) {
            throw new org.apache.kafka.common.errors.InterruptException(error);
        }
        return found;
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
