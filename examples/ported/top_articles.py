"""Lists the hundred most read articles of each industry, hour by hour.

Ported from: TopArticlesLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: A key with a window is a struct of Columns, put together by hand. The queue is a list in Avro,
    sorted when it is read, so it needs no serde of its own. Of articles that are read equally often, the one
    that reached the number first comes first; in the original, the queue decides.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    WindowedSerdes,
    avro_record,
)

AVRO = "io.confluent.examples.streams.avro"
HOUR = timedelta(hours=1)


PAGE_VIEW = avro_record(
    f"{AVRO}.PageView", user="string", page="string", industry="string", flags=["null", "string"]
)
PAGE_VIEW_STATS = avro_record(
    f"{AVRO}.PageViewStats", user="string", page="string", industry="string", count="long"
)

page_view_serde, stats_serde = Serdes.avro(PAGE_VIEW), Serdes.avro(PAGE_VIEW_STATS)
queue_serde = Serdes.avro({"type": "array", "items": PAGE_VIEW_STATS})
windowed_serde = WindowedSerdes.time_windowed_serde_from(Serdes.string(), HOUR)


def article_of(view):
    """The same article whoever reads it."""
    return F.struct(
        F.lit("user").alias("user"), view.page, view.industry, F.lit(None).cast("string").alias("flags")
    )


def by_industry(article, count):
    key = F.struct(article.key.industry.alias("key"), article.window.alias("window"))
    return key, F.struct(article.key.user, article.key.page, article.key.industry, count.alias("count"))


def top_pages(queue):
    most_first = F.array_sort(queue, lambda one, other: (other["count"] - one["count"]).cast("int"))
    return F.concat_ws(
        "", F.transform(F.slice(most_first, 1, 100), lambda each: F.concat(each.page, F.lit("\n")))
    )


builder = StreamsBuilder()
view_counts = (
    builder.stream("PageViews", Consumed.with_(Serdes.string(), page_view_serde))
    .filter(lambda view: view.flags.contains("ARTICLE"))
    .map(lambda ignored_key, view: (article_of(view), article_of(view)))
    .group_by_key(Grouped.with_(page_view_serde, page_view_serde))
    .windowed_by(TimeWindows.of_size_with_no_grace(HOUR))
    .count()
)
(
    view_counts.group_by(by_industry, Grouped.with_(windowed_serde, stats_serde))
    .aggregate(
        list,
        lambda industry, stats, queue: [*queue, stats],
        lambda industry, stats, queue: [each for each in queue if each != stats],
        Materialized.with_(windowed_serde, queue_serde),
    )
    .map_values(top_pages)
    .to_stream()
    .to("TopNewsPerIndustry", Produced.with_(windowed_serde, Serdes.string()))
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "top-articles-lambda-example",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
