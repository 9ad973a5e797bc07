import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.KeyValueStore;

/** As KafkaMusicExample of confluentinc/kafka-streams-examples has it; its TopFiveSongs is an array here. */
public class KafkaMusic implements Ported.Program {
    private static final long SHORTEST = 30 * 1000L;
    private static final Serde<JsonNode> OBJECT = Ported.OBJECT.serde();

    @Override
    public Topology topology() {
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, JsonNode> events =
            builder.stream("play-events", Consumed.with(Serdes.String(), OBJECT));
        final KTable<Long, JsonNode> songs = builder.table("song-feed",
            Materialized.<Long, JsonNode, KeyValueStore<Bytes, byte[]>>as("all-songs")
                .withKeySerde(Serdes.Long()).withValueSerde(OBJECT));
        final KStream<Long, JsonNode> plays = events
            .filter((region, event) -> event.get("duration").asLong() >= SHORTEST)
            .map((region, event) -> KeyValue.pair(event.get("song_id").asLong(), event))
            .leftJoin(songs, (event, song) -> song, Joined.with(Serdes.Long(), OBJECT, OBJECT));
        final KTable<JsonNode, Long> counts = plays
            .groupBy((id, song) -> song, Grouped.with(OBJECT, OBJECT))
            .count(Materialized.<JsonNode, Long, KeyValueStore<Bytes, byte[]>>as("song-play-count")
                .withKeySerde(OBJECT).withValueSerde(Serdes.Long()));
        counts
            .groupBy((song, played) -> KeyValue.pair(
                    song.get("genre").asText().toLowerCase(Locale.ROOT), playCount(song, played)),
                Grouped.with(Serdes.String(), OBJECT))
            .aggregate(Ported.NODES::arrayNode, KafkaMusic::add, KafkaMusic::remove, topFive("top-five-songs-by-genre"));
        counts
            .groupBy((song, played) -> KeyValue.pair("all", playCount(song, played)),
                Grouped.with(Serdes.String(), OBJECT))
            .aggregate(Ported.NODES::arrayNode, KafkaMusic::add, KafkaMusic::remove, topFive("top-five-songs"));
        return builder.build();
    }

    private static Materialized<String, JsonNode, KeyValueStore<Bytes, byte[]>> topFive(final String name) {
        return Materialized.<String, JsonNode, KeyValueStore<Bytes, byte[]>>as(name)
            .withKeySerde(Serdes.String()).withValueSerde(OBJECT);
    }

    private static JsonNode playCount(final JsonNode song, final long plays) {
        return Ported.object("song_id", song.get("id").asLong(), "plays", plays);
    }

    private static JsonNode add(final String group, final JsonNode added, final JsonNode before) {
        final List<JsonNode> songs = new ArrayList<>();
        before.forEach(each -> {
            if (!each.get("song_id").equals(added.get("song_id"))) {
                songs.add(each);
            }
        });
        songs.add(added);
        songs.sort(Comparator.<JsonNode>comparingLong(each -> -each.get("plays").asLong())
            .thenComparingLong(each -> each.get("song_id").asLong()));
        return array(songs.subList(0, Math.min(5, songs.size())));
    }

    private static JsonNode remove(final String group, final JsonNode removed, final JsonNode before) {
        final List<JsonNode> songs = new ArrayList<>();
        before.forEach(each -> {
            if (!each.get("song_id").equals(removed.get("song_id"))
                || each.get("plays").asLong() != removed.get("plays").asLong()) {
                songs.add(each);
            }
        });
        return array(songs);
    }

    private static ArrayNode array(final List<JsonNode> songs) {
        return Ported.NODES.arrayNode().addAll(songs);
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "play-events", Ported.of(Ported.STRING, Ported.OBJECT),
            "song-feed", Ported.of(Ported.LONG, Ported.OBJECT),
            "all-songs", Ported.of(Ported.LONG, Ported.OBJECT),
            "song-play-count", Ported.of(Ported.OBJECT, Ported.LONG),
            "*", Ported.of(Ported.STRING, Ported.OBJECT));
    }
}
