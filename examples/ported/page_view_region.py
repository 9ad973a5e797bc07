"""Counts page views by the region of the user, in windows of five minutes that begin every minute.

Ported from: PageViewRegionLambdaExample.java of confluentinc/kafka-streams-examples (Apache License 2.0)
What it cost: Next to nothing. A view by a user without a profile has no region and is not counted; the
    original ends with a NullPointerException.
"""

from datetime import timedelta

from pyspark.sql import functions as F

from millstream import (
    Consumed,
    Grouped,
    KafkaStreams,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    avro_record,
    windowed_text,
)

AVRO = "io.confluent.examples.streams.avro"

page_view_serde = Serdes.avro(
    avro_record(f"{AVRO}.PageView", user="string", page="string", industry="string", flags=["null", "string"])
)
user_profile_serde = Serdes.avro(
    avro_record(f"{AVRO}.UserProfile", experience=["string", "null"], region="string")
)
view_with_region_serde = Serdes.avro(
    avro_record(f"{AVRO}.PageViewWithRegion", user="string", page="string", region="string")
)

builder = StreamsBuilder()
views_by_user = builder.stream("PageViews", Consumed.with_(Serdes.string(), page_view_serde)).map(
    lambda ignored_key, view: (view.user, view)
)
user_regions = builder.table("UserProfiles", Consumed.with_(Serdes.string(), user_profile_serde)).map_values(
    lambda profile: profile.region
)
views_by_region = (
    views_by_user.left_join(
        user_regions, lambda view, region: F.struct(view.user, view.page, region.alias("region"))
    )
    .map(lambda user, view: (view.region, view))
    .group_by_key(Grouped.with_(Serdes.string(), view_with_region_serde))
    .windowed_by(TimeWindows.of_size_with_no_grace(timedelta(minutes=5)).advance_by(timedelta(minutes=1)))
    .count()
)
views_by_region.to_stream(lambda region, count: windowed_text(region)).to(
    "PageViewsByRegion", Produced.with_(Serdes.string(), Serdes.long())
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "pageview-region-lambda-example",
        "bootstrap.servers": "localhost:9092",
        "schema.registry.url": "http://localhost:8081",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
