import java.time.Duration;
import java.util.Map;

import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** As PageViewRegionLambdaExample of confluentinc/kafka-streams-examples has it. */
public class PageViewRegion implements Ported.Program {
    @Override
    public Topology topology() {
        final Serde<String> text = Serdes.String();
        final Serde<JsonNode> object = Ported.OBJECT.serde();
        final StreamsBuilder builder = new StreamsBuilder();
        final KStream<String, JsonNode> views = builder.stream("PageViews", Consumed.with(text, object))
            .map((nothing, view) -> KeyValue.pair(view.get("user").asText(), view));
        final KTable<String, String> regions = builder.table("UserProfiles", Consumed.with(text, object))
            .mapValues(profile -> profile.get("region").asText());
        views
            .leftJoin(
                regions,
                (view, region) -> (JsonNode) Ported.object(
                    "user", view.get("user"), "page", view.get("page"), "region", region),
                Joined.with(text, object, text))
            .map((user, view) -> KeyValue.pair(view.get("region").asText(), view))
            .groupByKey(Grouped.with(text, object))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofMinutes(5)).advanceBy(Duration.ofMinutes(1)))
            .count()
            .toStream((region, count) -> region.toString())
            .to("PageViewsByRegion", Produced.with(text, Serdes.Long()));
        return builder.build();
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "PageViews", Ported.of(Ported.STRING, Ported.OBJECT),
            "UserProfiles", Ported.of(Ported.STRING, Ported.OBJECT),
            "PageViewsByRegion", Ported.of(Ported.STRING, Ported.LONG));
    }
}
