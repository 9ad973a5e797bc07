import java.time.Duration;
import java.util.Map;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.WindowedSerdes;

/** As TemperatureDemo of apache/kafka has it, but for the size of its windows' serde, which there is 5 ms; only reading
 * needs it. */
public class Temperature implements Ported.Program {
    private static final int THRESHOLD = 20;
    private static final Duration SIZE = Duration.ofSeconds(5);

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> source = builder.stream("iot-temperature");
        final KStream<Windowed<String>, String> max = source
            .selectKey((key, value) -> "temp")
            .groupByKey()
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, Duration.ofHours(24)))
            .reduce((one, other) -> Integer.parseInt(one) > Integer.parseInt(other) ? one : other)
            .toStream()
            .filter((key, value) -> Integer.parseInt(value) > THRESHOLD);
        final Serde<Windowed<String>> windowed =
            WindowedSerdes.timeWindowedSerdeFrom(String.class, SIZE.toMillis());
        max.to("iot-temperature-max", Produced.with(windowed, Serdes.String()));
        return builder.build();
    }

    @Override
    public Map<String, Object> config() {
        return Map.of(
            StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class,
            StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "iot-temperature", Ported.of(Ported.STRING, Ported.STRING),
            "iot-temperature-max", Ported.of(Ported.windowed(SIZE), Ported.STRING));
    }
}
