import java.time.Duration;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.SessionStore;

/** As SessionWindowsExample of confluentinc/kafka-streams-examples has it. */
public class SessionWindows implements Ported.Program {
    @Override
    public Topology topology() {
        final Duration gap = Duration.ofMinutes(30);
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("play-events", Consumed.with(Serdes.String(), Ported.OBJECT.serde()))
            .groupByKey(Grouped.with(Serdes.String(), Ported.OBJECT.serde()))
            .windowedBy(org.apache.kafka.streams.kstream.SessionWindows
                .ofInactivityGapAndGrace(gap, Duration.ofMillis(100)))
            .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("play-events-per-session")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .map((user, plays) ->
                KeyValue.pair(user.key() + "@" + user.window().start() + "->" + user.window().end(), plays))
            .to("play-events-per-session", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "play-events", Ported.of(Ported.STRING, Ported.OBJECT),
            "play-events-per-session", Ported.of(Ported.STRING, Ported.LONG));
    }
}
