import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** As SumLambdaExample of confluentinc/kafka-streams-examples has it. */
public class Sum implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("numbers-topic", Consumed.with(Serdes.Integer(), Serdes.Integer()))
            .filter((nothing, number) -> number % 2 != 0)
            .selectKey((nothing, number) -> 1)
            .groupByKey(Grouped.with(Serdes.Integer(), Serdes.Integer()))
            .reduce(Integer::sum)
            .toStream()
            .to("sum-of-odd-numbers-topic", Produced.with(Serdes.Integer(), Serdes.Integer()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.INTEGER, Ported.INTEGER));
    }
}
