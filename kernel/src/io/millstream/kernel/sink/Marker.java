package io.millstream.kernel.sink;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsOptions;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

/**
 * How far a sink partition has written, as Kafka has it: an offset of the marker topic that is committed in the same
 * transaction as the records, under a group that is called as the transactional.id.
 *
 * @param next the first batch that is not written yet; the offset itself
 * @param epoch of the claim that wrote it; the offset's metadata
 */
record Marker(long next, long epoch) {
    static final Marker NONE = new Marker(0, 0);

    Map<TopicPartition, OffsetAndMetadata> offsets(Options options) {
        return Map.of(place(options), new OffsetAndMetadata(next, Long.toString(epoch)));
    }

    static Marker of(OffsetAndMetadata committed) {
        if (committed == null) {
            return NONE;
        }
        String epoch = committed.metadata();
        return new Marker(committed.offset(), epoch.isEmpty() ? 0 : Long.parseLong(epoch));
    }

    /** Read it, once what is being committed is settled. */
    static Marker read(Options options, String group) {
        Map<String, Object> known = new HashMap<>(options.kafka());
        known.keySet().retainAll(AdminClientConfig.configNames());
        try (Admin admin = Admin.create(known)) {
            return of(admin.listConsumerGroupOffsets(
                            group, new ListConsumerGroupOffsetsOptions().requireStable(true))
                    .partitionsToOffsetAndMetadata()
                    .get()
                    .get(place(options)));
        } catch (ExecutionException error) {
            throw error.getCause() instanceof KafkaException cause ? cause : new KafkaException(error.getCause());
        } catch (InterruptedException error) {
            throw new org.apache.kafka.common.errors.InterruptException(error);
        }
    }

    private static TopicPartition place(Options options) {
        return new TopicPartition(options.markerTopic(), 0);
    }
}
