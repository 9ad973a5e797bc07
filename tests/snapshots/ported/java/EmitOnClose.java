import java.time.Duration;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** As IotStreamingAggregationEmitOnCloseTumblingWindow of bbejeck/KafkaStreamsInAction2ndEdition has it, without its two
 * logging peeks, and the start and end of a window, which it leaves 0. */
public class EmitOnClose implements Ported.Program {
    static final double THRESHOLD = 115.0;

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("iot-emit-on-close-input", Consumed.with(Serdes.String(), Serdes.Double()))
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .emitStrategy(EmitStrategy.onWindowClose())
            .aggregate(
                () -> Ported.object("highestSeen", 0.0, "temperatureSum", 0.0, "numberReadings", 0,
                    "tempThresholdExceededCount", 0, "readingThreshold", THRESHOLD, "averageReading", 0.0),
                (key, reading, aggregate) -> with(aggregate, reading),
                Materialized.with(Serdes.String(), Ported.OBJECT.serde()))
            .toStream()
            .to("iot-emit-on-close-output",
                Produced.with(Ported.windowed(Duration.ofMinutes(1)).serde(), Ported.OBJECT.serde()));
        return builder.build();
    }

    static JsonNode with(final JsonNode aggregate, final double reading) {
        final double sum = aggregate.get("temperatureSum").asDouble() + reading;
        final int readings = aggregate.get("numberReadings").asInt() + 1;
        return Ported.object(
            "highestSeen", Math.max(aggregate.get("highestSeen").asDouble(), reading),
            "temperatureSum", sum,
            "numberReadings", readings,
            "tempThresholdExceededCount",
            aggregate.get("tempThresholdExceededCount").asInt() + (reading >= THRESHOLD ? 1 : 0),
            "readingThreshold", THRESHOLD,
            "averageReading", sum / readings);
    }

    @Override
    public Map<String, Object> config() {
        // It looks for closed windows once a second of the clock, which does not go on here: let it always look.
        return Map.of(StreamsConfig.InternalConfig.EMIT_INTERVAL_MS_KSTREAMS_WINDOWED_AGGREGATION, 0);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "iot-emit-on-close-input", Ported.of(Ported.STRING, Ported.DOUBLE),
            "iot-emit-on-close-output", Ported.of(Ported.windowed(Duration.ofMinutes(1)), Ported.OBJECT));
    }
}
