import java.time.Duration;
import java.util.Map;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/** As VersionedKTableExample of confluentinc/kafka-tutorials has it, without a store supplier that it does not use. */
public class VersionedJoin implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, String> stream =
            builder.stream("stream-input-topic", Consumed.with(Serdes.String(), Serdes.String()));
        final KTable<String, String> table = builder.table(
            "table-input-topic",
            Materialized.<String, String>as(
                    Stores.persistentVersionedKeyValueStore("versioned-ktable-store", Duration.ofMinutes(10)))
                .withKeySerde(Serdes.String())
                .withValueSerde(Serdes.String()));
        stream.join(table, (left, right) -> left + " " + right)
            .peek((key, joined) -> System.out.println(key + ": " + joined))
            .to("output-topic", Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.STRING, Ported.STRING));
    }
}
