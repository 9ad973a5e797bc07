import java.util.Map;
import java.util.Objects;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** As GlobalStoresExample of confluentinc/kafka-streams-examples has it. Its Avro takes no null for a customer or a
 * product. */
public class GlobalStores implements Ported.Program {
    @Override
    public Topology topology() {
        final Serde<JsonNode> object = Ported.OBJECT.serde();
        final StreamsBuilder builder = new StreamsBuilder();
        add(builder, "customer-store", "customer");
        add(builder, "product-store", "product");
        builder.stream("order", Consumed.with(Serdes.Long(), object))
            .processValues(Enrich::new)
            .to("enriched-order", Produced.with(Serdes.Long(), object));
        return builder.build();
    }

    private static void add(final StreamsBuilder builder, final String store, final String topic) {
        final Serde<JsonNode> object = Ported.OBJECT.serde();
        builder.addGlobalStore(
            Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore(store), Serdes.Long(), object),
            topic, Consumed.with(Serdes.Long(), object), () -> new Keep(store));
    }

    /** Puts each record of a topic into a global store. */
    private static class Keep implements Processor<Long, JsonNode, Void, Void> {
        private final String name;
        private KeyValueStore<Long, JsonNode> store;

        Keep(final String name) {
            this.name = name;
        }

        @Override
        public void init(final ProcessorContext<Void, Void> context) {
            store = context.getStateStore(name);
        }

        @Override
        public void process(final Record<Long, JsonNode> record) {
            store.put(record.key(), record.value());
        }
    }

    /** An order together with its customer and product. */
    private static class Enrich implements FixedKeyProcessor<Long, JsonNode, JsonNode> {
        private FixedKeyProcessorContext<Long, JsonNode> context;
        private KeyValueStore<Long, JsonNode> customers;
        private KeyValueStore<Long, JsonNode> products;

        @Override
        public void init(final FixedKeyProcessorContext<Long, JsonNode> context) {
            this.context = context;
            customers = context.getStateStore("customer-store");
            products = context.getStateStore("product-store");
        }

        @Override
        public void process(final FixedKeyRecord<Long, JsonNode> record) {
            final JsonNode order = record.value();
            final JsonNode customer = customers.get(order.get("customer_id").asLong());
            final JsonNode product = products.get(order.get("product_id").asLong());
            context.forward(record.withValue(Ported.object(
                "product", Objects.requireNonNull(product),
                "customer", Objects.requireNonNull(customer),
                "order", order)));
        }
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.LONG, Ported.OBJECT));
    }
}
