import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** As UserRegionLambdaExample of confluentinc/kafka-streams-examples has it. */
public class UserCountsPerRegion implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.table("UserRegions", Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy(
                (user, region) -> KeyValue.pair(region, region), Grouped.with(Serdes.String(), Serdes.String()))
            .count()
            .filter((region, users) -> users >= 2)
            .toStream()
            .filter((region, users) -> users != null)
            .to("LargeRegions", Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "UserRegions", Ported.of(Ported.STRING, Ported.STRING),
            "LargeRegions", Ported.of(Ported.STRING, Ported.LONG));
    }
}
