import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.TextNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.processor.api.RecordMetadata;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** As event_consumer.clj of dlebrero/kafka-gdpr-event-sourcing has it; transform is process today. */
public class GdprTombstones implements Ported.Program {
    static final String KEYS = "encryption-keys-local";
    static final String WAITING = "waiting-for-encryption-keys-local";
    static final TextNode TOMBSTONE = TextNode.valueOf("forget-me!");

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(KEYS), Serdes.String(), Ported.OBJECT.serde())
            .withCachingEnabled().withLoggingDisabled());
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(WAITING), Serdes.String(), Ported.OBJECT.serde())
            .withCachingEnabled());
        builder.stream(List.of("encryption-keys", "user-info.encrypted"),
                Consumed.with(Serdes.String(), Ported.OBJECT.serde()))
            .process(Decrypt::new, WAITING, KEYS)
            .mapValues(GdprTombstones::decrypted)
            .groupByKey(Grouped.with(Serdes.String(), Ported.OBJECT.serde()))
            .reduce(
                (all, next) -> all.equals(TOMBSTONE) || next.equals(TOMBSTONE)
                    ? TOMBSTONE : TextNode.valueOf(all.asText() + "," + next.asText()),
                Materialized.with(Serdes.String(), Ported.OBJECT.serde()))
            .toStream()
            .to("user-info", Produced.with(Serdes.String(), Ported.OBJECT.serde())); // the original prints it
        return builder.build();
    }

    static JsonNode decrypted(final JsonNode pair) {
        final JsonNode key = pair.get("key");
        if (key.equals(TOMBSTONE)) {
            return key;
        }
        if (key.equals(pair.get("item").get("encryption_key"))) {
            return pair.get("item").get("val");
        }
        throw new IllegalStateException("the item has another key");
    }

    static class Decrypt extends ContextualProcessor<String, JsonNode, String, JsonNode> {
        @Override
        public void process(final Record<String, JsonNode> record) {
            final KeyValueStore<String, JsonNode> keys = context().getStateStore(KEYS);
            final KeyValueStore<String, JsonNode> waiting = context().getStateStore(WAITING);
            final RecordMetadata metadata = context().recordMetadata().orElseThrow();
            if (metadata.topic().equals("encryption-keys")) {
                key(record, keys, waiting);
                return;
            }
            final JsonNode key = keys.get(record.key());
            if (key == null) {
                waiting.put(place(record.key(), metadata.partition(), metadata.offset()), record.value());
            } else {
                context().forward(record.withValue(Ported.object("key", key, "item", record.value())));
            }
        }

        private void key(
            final Record<String, JsonNode> record,
            final KeyValueStore<String, JsonNode> keys,
            final KeyValueStore<String, JsonNode> waiting) {
            final JsonNode key = record.value();
            keys.put(record.key(), key);
            final List<KeyValue<String, JsonNode>> found = new ArrayList<>();
            try (KeyValueIterator<String, JsonNode> items = waiting.range(
                place(record.key(), 0, 0), place(record.key(), Integer.MAX_VALUE, Integer.MAX_VALUE))) {
                items.forEachRemaining(found::add);
            }
            for (final KeyValue<String, JsonNode> each : found) {
                waiting.delete(each.key);
                if (!key.equals(TOMBSTONE)) {
                    context().forward(record.withValue(Ported.object("key", key, "item", each.value)));
                }
            }
            if (key.equals(TOMBSTONE)) {
                context().forward(record.withValue(Ported.object("key", key, "item", null)));
            }
        }

        private static String place(final String key, final long partition, final long offset) {
            return String.format("%s-%04d-%030d", key, partition, offset);
        }
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
