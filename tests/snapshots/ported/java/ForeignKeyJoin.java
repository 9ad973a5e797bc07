import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;

/** As FkJoinTableToTable of confluentinc/kafka-tutorials has it. */
public class ForeignKeyJoin implements Ported.Program {
    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KTable<Long, JsonNode> albums =
            builder.table("albums", Consumed.with(Serdes.Long(), Ported.OBJECT.serde()));
        final KTable<Long, JsonNode> purchases =
            builder.table("purchases", Consumed.with(Serdes.Long(), Ported.OBJECT.serde()));
        final KTable<Long, JsonNode> interests = purchases.join(
            albums,
            purchase -> purchase.get("album_id").asLong(),
            (purchase, album) -> Ported.object(
                "id", album.get("id").asText() + "-" + purchase.get("id").asText(),
                "genre", album.get("genre").asText(),
                "artist", album.get("artist").asText()));
        interests.toStream().to("music-interest", Produced.with(Serdes.Long(), Ported.OBJECT.serde()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of("*", Ported.of(Ported.LONG, Ported.OBJECT));
    }
}
