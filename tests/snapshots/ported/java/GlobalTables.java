import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.GlobalKTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/** As GlobalKTablesExample of confluentinc/kafka-streams-examples has it. */
public class GlobalTables implements Ported.Program {
    @Override
    public Topology topology() {
        final Serde<JsonNode> object = Ported.OBJECT.serde();
        final StreamsBuilder builder = new StreamsBuilder();
        final GlobalKTable<Long, JsonNode> customers = builder.globalTable("customer", stored("customer-store"));
        final GlobalKTable<Long, JsonNode> products = builder.globalTable("product", stored("product-store"));
        builder.stream("order", Consumed.with(Serdes.Long(), object))
            .join(
                customers,
                (id, order) -> order.get("customer_id").asLong(),
                (order, customer) -> Ported.object("customer", customer, "order", order))
            .join(
                products,
                (id, both) -> both.get("order").get("product_id").asLong(),
                (both, product) -> (JsonNode) Ported.object(
                    "product", product, "customer", both.get("customer"), "order", both.get("order")))
            .to("enriched-order", Produced.with(Serdes.Long(), object));
        return builder.build();
    }

    private static Materialized<Long, JsonNode, KeyValueStore<Bytes, byte[]>> stored(final String name) {
        return Materialized.<Long, JsonNode, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(Serdes.Long()).withValueSerde(Ported.OBJECT.serde());
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.LONG, Ported.OBJECT));
    }
}
