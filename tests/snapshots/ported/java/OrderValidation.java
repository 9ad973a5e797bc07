import java.time.Duration;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** As InventoryService, FraudService and ValidationsAggregatorService of confluentinc/kafka-streams-examples have it, in one
 * application: they share the filter of new orders, which InventoryService has after its selectKey. */
public class OrderValidation implements Ported.Program {
    private static final Serde<JsonNode> OBJECT = Ported.OBJECT.serde();
    private static final Produced<String, JsonNode> PRODUCED = Produced.with(Serdes.String(), OBJECT);
    private static final String RESERVED = "store-of-reserved-stock";

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, JsonNode> orders = builder
            .stream("orders", Consumed.with(Serdes.String(), OBJECT))
            .filter((id, order) -> order.get("state").asText().equals("CREATED"));
        final KStream<String, JsonNode> validations =
            builder.stream("order-validations", Consumed.with(Serdes.String(), OBJECT));
        fraud(orders);
        inventory(builder, orders);
        aggregated(orders, validations);
        return builder.build();
    }

    private static void inventory(final StreamsBuilder builder, final KStream<String, JsonNode> orders) {
        final KTable<String, Integer> stock =
            builder.table("warehouse-inventory", Consumed.with(Serdes.String(), Serdes.Integer()));
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore(RESERVED), Serdes.String(), Serdes.Long()));
        orders
            .selectKey((id, order) -> order.get("product").asText())
            .join(stock, KeyValue::new, Joined.with(Serdes.String(), OBJECT, Serdes.Integer()))
            .process(InventoryValidator::new, RESERVED)
            .to("order-validations", PRODUCED);
    }

    static class InventoryValidator implements Processor<String, KeyValue<JsonNode, Integer>, String, JsonNode> {
        private ProcessorContext<String, JsonNode> context;
        private KeyValueStore<String, Long> stock;

        @Override
        public void init(final ProcessorContext<String, JsonNode> context) {
            this.context = context;
            stock = context.getStateStore(RESERVED);
        }

        @Override
        public void process(final Record<String, KeyValue<JsonNode, Integer>> record) {
            final JsonNode order = record.value().key;
            final long quantity = order.get("quantity").asLong();
            final Long found = stock.get(record.key());
            final long reserved = found == null ? 0 : found;
            final boolean enough = record.value().value - reserved - quantity >= 0;
            if (enough) {
                stock.put(record.key(), reserved + quantity);
            }
            final JsonNode validated = validation(order, "INVENTORY_CHECK", enough);
            context.forward(record.withKey(order.get("id").asText()).withValue(validated));
        }
    }

    private static void fraud(final KStream<String, JsonNode> orders) {
        final Map<String, KStream<String, JsonNode>> forks = orders
            .groupBy((id, order) -> order.get("customerId").asLong(), Grouped.with(Serdes.Long(), OBJECT))
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofHours(1)))
            .aggregate(
                () -> Ported.object("value", 0.0),
                (customer, order, total) -> orderValue(order,
                    total.get("value").asDouble()
                        + order.get("quantity").asInt() * order.get("price").asDouble()),
                (customer, one, other) -> orderValue(other.get("order"),
                    (one == null ? 0 : one.get("value").asDouble()) + other.get("value").asDouble()),
                Materialized.with(null, OBJECT))
            .toStream((windowed, total) -> windowed.key())
            .filter((customer, total) -> total != null)
            .selectKey((customer, total) -> total.get("order").get("id").asText())
            .split(Named.as("limit-"))
            .branch((id, total) -> total.get("value").asDouble() >= 2000, Branched.as("above"))
            .branch((id, total) -> total.get("value").asDouble() < 2000, Branched.as("below"))
            .noDefaultBranch();
        forks.get("limit-above").mapValues(total -> validation(total.get("order"), "FRAUD_CHECK", false))
            .to("order-validations", PRODUCED);
        forks.get("limit-below").mapValues(total -> validation(total.get("order"), "FRAUD_CHECK", true))
            .to("order-validations", PRODUCED);
    }

    private static void aggregated(
            final KStream<String, JsonNode> orders, final KStream<String, JsonNode> validations) {
        final JoinWindows near = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(5));
        validations
            .groupByKey(Grouped.with(Serdes.String(), OBJECT))
            .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(Duration.ofMinutes(5)))
            .aggregate(
                () -> 0L,
                (id, result, total) -> result.get("validationResult").asText().equals("PASS") ? total + 1 : total,
                (id, one, other) -> other == null ? one : other,
                Materialized.with(null, Serdes.Long()))
            .toStream((windowed, total) -> windowed.key())
            .filter((id, total) -> total != null)
            .filter((id, total) -> total >= 3)
            .join(orders, (total, order) -> withState(order, "VALIDATED"), near,
                StreamJoined.with(Serdes.String(), Serdes.Long(), OBJECT))
            .to("orders", PRODUCED);
        validations
            .filter((id, rule) -> rule.get("validationResult").asText().equals("FAIL"))
            .join(orders, (rule, order) -> withState(order, "FAILED"), near,
                StreamJoined.with(Serdes.String(), OBJECT, OBJECT))
            .groupByKey(Grouped.with(Serdes.String(), OBJECT))
            .reduce((order, other) -> order)
            .toStream()
            .to("orders", PRODUCED);
    }

    private static JsonNode orderValue(final JsonNode order, final double value) {
        return Ported.object("order", order, "value", value);
    }

    private static JsonNode validation(final JsonNode order, final String type, final boolean passed) {
        return Ported.object(
            "orderId", order.get("id"), "checkType", type, "validationResult", passed ? "PASS" : "FAIL");
    }

    private static JsonNode withState(final JsonNode order, final String state) {
        return ((ObjectNode) order.deepCopy()).put("state", state);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "warehouse-inventory", Ported.of(Ported.STRING, Ported.INTEGER),
            RESERVED, Ported.of(Ported.STRING, Ported.LONG),
            "*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
