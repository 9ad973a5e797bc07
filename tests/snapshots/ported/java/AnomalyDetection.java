import java.time.Duration;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** As AnomalyDetectionLambdaExample of confluentinc/kafka-streams-examples has it. */
public class AnomalyDetection implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("UserClicks", Consumed.with(Serdes.String(), Serdes.String()))
            .map((nothing, user) -> KeyValue.pair(user, user))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(1)))
            .count()
            .filter((user, clicks) -> clicks >= 3)
            .toStream()
            .filter((user, clicks) -> clicks != null)
            .map((user, clicks) -> KeyValue.pair(user.toString(), clicks))
            .to("AnomalousUsers", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "UserClicks", Ported.of(Ported.STRING, Ported.STRING),
            "AnomalousUsers", Ported.of(Ported.STRING, Ported.LONG));
    }
}
