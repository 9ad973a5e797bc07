import java.time.Duration;
import java.util.Comparator;
import java.util.Map;
import java.util.PriorityQueue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;

/** As TopArticlesLambdaExample of confluentinc/kafka-streams-examples has it; a queue is stored as an array. */
public class TopArticles implements Ported.Program {
    private static final Duration HOUR = Duration.ofHours(1);
    private static final Comparator<JsonNode> MOST_FIRST =
        (one, other) -> (int) (other.get("count").asLong() - one.get("count").asLong());

    @Override
    public Topology topology() {
        final Serde<JsonNode> object = Ported.OBJECT.serde();
        final Serde<Windowed<String>> windowed = Ported.windowed(HOUR).serde();
        final StreamsBuilder builder = new StreamsBuilder();
        builder.stream("PageViews", Consumed.with(Serdes.ByteArray(), object))
            .filter((nothing, view) -> view.get("flags").asText().contains("ARTICLE"))
            .map((nothing, view) -> {
                final JsonNode article =
                    Ported.object("user", "user", "page", view.get("page"), "industry", view.get("industry"));
                return KeyValue.pair(article, article);
            })
            .groupByKey(Grouped.with(object, object))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(HOUR))
            .count()
            .groupBy(
                (article, count) -> {
                    final JsonNode industry = article.key().get("industry");
                    final ObjectNode stats = Ported.object(
                        "user", "user", "page", article.key().get("page"), "industry", industry, "count", count);
                    return KeyValue.pair(new Windowed<>(industry.asText(), article.window()), (JsonNode) stats);
                },
                Grouped.with(windowed, object))
            .aggregate(
                () -> (JsonNode) Ported.NODES.arrayNode(),
                (industry, stats, array) -> {
                    final PriorityQueue<JsonNode> queue = queue(array);
                    queue.add(stats);
                    return array(queue);
                },
                (industry, stats, array) -> {
                    final PriorityQueue<JsonNode> queue = queue(array);
                    queue.remove(stats);
                    return array(queue);
                },
                Materialized.with(windowed, object))
            .mapValues(array -> {
                final PriorityQueue<JsonNode> queue = queue(array);
                final StringBuilder pages = new StringBuilder();
                for (int i = 0; i < 100 && !queue.isEmpty(); i++) {
                    pages.append(queue.poll().get("page").asText()).append("\n");
                }
                return pages.toString();
            })
            .toStream()
            .to("TopNewsPerIndustry", Produced.with(windowed, Serdes.String()));
        return builder.build();
    }

    private static PriorityQueue<JsonNode> queue(final JsonNode array) {
        final PriorityQueue<JsonNode> queue = new PriorityQueue<>(MOST_FIRST);
        array.forEach(queue::add);
        return queue;
    }

    private static JsonNode array(final PriorityQueue<JsonNode> queue) {
        final ArrayNode array = Ported.NODES.arrayNode();
        queue.forEach(array::add);
        return array;
    }

    @Override
    public Map<String, Ported.Kind<?>[]> topics() {
        return Map.of(
            "PageViews", Ported.of(Ported.STRING, Ported.OBJECT),
            "TopNewsPerIndustry", Ported.of(Ported.windowed(HOUR), Ported.STRING));
    }
}
