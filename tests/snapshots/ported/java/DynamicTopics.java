import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

/** As DynamicOutputTopic of confluentinc/kafka-tutorials has it. */
public class DynamicTopics implements Ported.Program {
    static final double FAKE_PRICE = 0.467423;

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("input", Consumed.with(Serdes.String(), Ported.OBJECT.serde()))
            .<JsonNode>mapValues(order -> Ported.object(
                "id", order.get("id").asText() + "-" + order.get("sku").asText(),
                "name", order.get("name").asText(),
                "amount", order.get("quantity").asLong() * FAKE_PRICE))
            .to((key, completed, record) -> topic(completed.get("id").asText()),
                Produced.with(Serdes.String(), Ported.OBJECT.serde()));
        return builder.build();
    }

    static String topic(final String id) {
        final String sku = id.substring(id.indexOf('-') + 1, 5); // up to the fifth character of the whole id
        return sku.equals("QUA") ? "special-order" : "regular-order";
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
