import java.time.Duration;
import java.util.Locale;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.TimestampExtractor;

/** As SlidingWindow of confluentinc/kafka-tutorials has it. */
public class SlidingWindows implements Ported.Program {
    public static class TimeOfReading implements TimestampExtractor {
        @Override
        public long extract(final ConsumerRecord<Object, Object> record, final long partitionTime) {
            return ((JsonNode) record.value()).get("timestamp").asLong();
        }
    }

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("temp-readings", Consumed.with(Serdes.String(), Ported.OBJECT.serde()))
            .groupByKey()
            .windowedBy(org.apache.kafka.streams.kstream.SlidingWindows
                .ofTimeDifferenceAndGrace(Duration.ofMillis(500), Duration.ofMillis(100)))
            .<JsonNode>aggregate(
                () -> Ported.object("total", 0.0, "num_readings", 0),
                (key, reading, average) -> Ported.object(
                    "total", average.get("total").asDouble() + reading.get("temp").asDouble(),
                    "num_readings", average.get("num_readings").asLong() + 1),
                Materialized.with(Serdes.String(), Ported.OBJECT.serde()))
            .toStream()
            .map((key, average) -> {
                final double mean = average.get("total").asDouble() / average.get("num_readings").asLong();
                return KeyValue.pair(key.key(), Double.parseDouble(String.format(Locale.ROOT, "%.2f", mean)));
            })
            .to("output-topic", Produced.with(Serdes.String(), Serdes.Double()));
        return builder.build();
    }

    @Override
    public Map<String, Object> config() {
        return Map.of(StreamsConfig.DEFAULT_TIMESTAMP_EXTRACTOR_CLASS_CONFIG, TimeOfReading.class.getName());
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "temp-readings", Ported.of(Ported.STRING, Ported.OBJECT),
            "output-topic", Ported.of(Ported.STRING, Ported.DOUBLE));
    }
}
