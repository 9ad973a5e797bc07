import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** As StreamsPokerGameReducer of bbejeck/KafkaStreamsInAction2ndEdition has it. */
public class Poker implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("poker-game", Consumed.with(Serdes.String(), Serdes.Double()))
            .groupByKey()
            .reduce(Double::sum, Materialized.with(Serdes.String(), Serdes.Double()))
            .toStream()
            .peek((player, score) -> System.out.println(player + ": " + score))
            .to("total-scores", Produced.with(Serdes.String(), Serdes.Double()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.DOUBLE));
    }
}
