import java.util.Map;
import java.util.stream.StreamSupport;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.ForeachAction;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;

/** As ZMartKafkaStreamsFilteringBranchingApp of bbejeck/KafkaStreamsInAction2ndEdition has it, without the fields that it
 * never sets. */
public class Zmart implements Ported.Program {
    private static final Serde<JsonNode> OBJECT = Ported.OBJECT.serde();

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final Produced<String, JsonNode> produced = Produced.with(Serdes.String(), OBJECT);

        final KStream<String, JsonNode> purchases =
            builder.stream("transactions", Consumed.with(Serdes.String(), OBJECT)).mapValues(Zmart::masked);

        purchases
            .flatMap((key, purchase) -> StreamSupport.stream(purchase.get("purchasedItems").spliterator(), false)
                .map(item -> KeyValue.pair(purchase.get("zipCode").asText(), item)).toList())
            .mapValues(item -> (JsonNode) Ported.object(
                "item", item.get("item"), "date", item.get("purchaseDate"), "amount", item.get("price")))
            .to("patterns", produced);

        purchases
            .filter((key, purchase) -> total(purchase) > 10.00)
            .mapValues(Zmart::reward)
            .peek((key, reward) ->
                System.out.println("A reward for buying for " + reward.get("purchaseTotal")))
            .to("rewards", produced);

        final ForeachAction<String, JsonNode> print = (key, purchase) -> System.out.println(
            purchase.get("department").asText() + ": " + purchase.get("purchasedItems").size() + " items bought");
        purchases.split()
            .branch((key, purchase) -> purchase.get("department").asText().equalsIgnoreCase("coffee"),
                Branched.withConsumer(coffee -> coffee.peek(print).to("coffee-topic", produced)))
            .branch((key, purchase) -> purchase.get("department").asText().equalsIgnoreCase("electronics"),
                Branched.withConsumer(electronics -> electronics.peek(print).to("electronics-topic", produced)))
            .defaultBranch(Branched.withConsumer(retail -> retail.peek(print).to("purchases", produced)));
        return builder.build();
    }

    private static JsonNode masked(final JsonNode purchase) {
        final String[] parts = purchase.get("creditCardNumber").asText().split("-");
        return ((ObjectNode) purchase).put("creditCardNumber", "xxxx-xxxx-xxxx-" + parts[parts.length - 1]);
    }

    private static double total(final JsonNode purchase) {
        return StreamSupport.stream(purchase.get("purchasedItems").spliterator(), false)
            .mapToDouble(item -> item.get("quantity").asInt() * item.get("price").asDouble()).sum();
    }

    private static JsonNode reward(final JsonNode purchase) {
        final double total = total(purchase);
        return Ported.object("customerId", purchase.get("purchasedItems").get(0).get("customerId"),
            "purchaseTotal", total, "totalRewardPoints", (int) total * 4);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
