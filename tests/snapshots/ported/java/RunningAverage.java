import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;

/** As RunningAverage of confluentinc/kafka-tutorials has it. */
public class RunningAverage implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("ratings", Consumed.with(Serdes.Long(), Ported.OBJECT.serde()))
            .map((key, rating) -> KeyValue.pair(rating.get("movie_id").asLong(), rating.get("rating").asDouble()))
            .groupByKey(Grouped.with(Serdes.Long(), Serdes.Double()))
            .<JsonNode>aggregate(
                () -> Ported.object("count", 0, "sum", 0.0),
                (key, rating, soFar) -> Ported.object(
                    "count", soFar.get("count").asLong() + 1, "sum", soFar.get("sum").asDouble() + rating),
                Materialized.with(Serdes.Long(), Ported.OBJECT.serde()))
            .mapValues(
                all -> all.get("sum").asDouble() / all.get("count").asLong(), Materialized.as("average-ratings"))
            .toStream()
            .to("rating-averages");
        return builder.build();
    }

    @Override
    public Map<String, Object> config() {
        return Map.of(
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.LongSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.DoubleSerde.class);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "ratings", Ported.of(Ported.LONG, Ported.OBJECT),
            "*", Ported.of(Ported.LONG, Ported.DOUBLE));
    }
}
