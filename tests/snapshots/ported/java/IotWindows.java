import java.time.Duration;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** As IotStreamingAggregationMapWindowTimeTumblingWindows of bbejeck/KafkaStreamsInAction2ndEdition has it. */
public class IotWindows implements Ported.Program {
    private static final double THRESHOLD = 115.0;

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("heat-sensor-input", Consumed.with(Serdes.String(), Serdes.Double()))
            .peek((sensor, reading) -> System.out.println(sensor + " reads " + reading))
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .aggregate(
                () -> aggregation(0, 0, 0, 0, 0),
                IotWindows::add,
                Materialized.with(Serdes.String(), Ported.OBJECT.serde()))
            .toStream()
            .map((windowed, aggregation) -> KeyValue.pair(
                windowed.key(),
                (JsonNode) ((ObjectNode) aggregation)
                    .put("windowStart", windowed.window().start())
                    .put("windowEnd", windowed.window().end())))
            .peek((sensor, aggregation) -> System.out.println(sensor + " by the minute: " + aggregation))
            .to("sensor-agg-output-tumbling", Produced.with(Serdes.String(), Ported.OBJECT.serde()));
        return builder.build();
    }

    private static JsonNode add(final String sensor, final double reading, final JsonNode before) {
        final double sum = before.get("temperatureSum").asDouble() + reading;
        final int readings = before.get("numberReadings").asInt() + 1;
        final double highest = before.get("highestSeen").asDouble();
        final int exceeded = before.get("tempThresholdExceededCount").asInt();
        return aggregation(highest < reading ? reading : highest, sum, readings,
            reading >= THRESHOLD ? exceeded + 1 : exceeded, sum / readings);
    }

    private static JsonNode aggregation(final double highest, final double sum, final int readings,
                                        final int exceeded, final double average) {
        return Ported.object("highestSeen", highest, "temperatureSum", sum, "numberReadings", readings,
            "tempThresholdExceededCount", exceeded, "readingThreshold", THRESHOLD,
            "windowStart", 0L, "windowEnd", 0L, "averageReading", average);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "heat-sensor-input", Ported.of(Ported.STRING, Ported.DOUBLE),
            "sensor-agg-output-tumbling", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
