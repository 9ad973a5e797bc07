import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** As StreamsStockTransactionAggregations of bbejeck/KafkaStreamsInAction2ndEdition has it. */
public class StockAggregations implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("stock-transactions", Consumed.with(Serdes.String(), Ported.OBJECT.serde()))
            .groupBy((key, transaction) -> transaction.get("symbol").asText(),
                Grouped.with(Serdes.String(), Ported.OBJECT.serde()))
            .aggregate(
                () -> aggregate("", 0L, 0L, 0.0, 0.0, 0.0, 0.0),
                StockAggregations::add,
                Materialized.with(Serdes.String(), Ported.OBJECT.serde()))
            .toStream()
            .peek((symbol, aggregate) -> System.out.println(symbol + ": " + aggregate))
            .to("stock-aggregations", Produced.with(Serdes.String(), Ported.OBJECT.serde()));
        return builder.build();
    }

    private static JsonNode add(final String symbol, final JsonNode transaction, final JsonNode before) {
        final int shares = transaction.get("number_shares").asInt();
        final double price = transaction.get("share_price").asDouble();
        final boolean bought = transaction.get("isPurchase").asBoolean();
        double highest = before.get("highest_price").asDouble();
        double lowest = before.get("lowest_price").asDouble();
        if (lowest == 0.0 && highest == 0.0) {
            highest = price;
            lowest = price;
        } else if (price < lowest) {
            lowest = price;
        } else if (price > highest) {
            highest = price;
        }
        return aggregate(
            symbol,
            before.get("sales_share_volume").asLong() + (bought ? 0 : shares),
            before.get("purchase_share_volume").asLong() + (bought ? shares : 0),
            before.get("sales_dollar_amount").asDouble() + (bought ? 0 : shares * price),
            before.get("purchase_dollar_amount").asDouble() + (bought ? shares * price : 0),
            highest, lowest);
    }

    private static JsonNode aggregate(final String symbol, final long sold, final long bought,
                                      final double soldFor, final double boughtFor,
                                      final double highest, final double lowest) {
        return Ported.object("symbol", symbol, "sales_share_volume", sold, "purchase_share_volume", bought,
            "sales_dollar_amount", soldFor, "purchase_dollar_amount", boughtFor,
            "highest_price", highest, "lowest_price", lowest);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
