"""Counts how often each page of a web site is viewed."""

from datetime import timedelta

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
views = builder.stream("views", Consumed.with_(Serdes.string(), Serdes.string()))
counts = views.group_by(lambda user, page: page).count(Materialized.as_("views-per-page"))
counts.to_stream().to("view-counts", Produced.with_(Serdes.string(), Serdes.long()))
topology = builder.build()

if __name__ == "__main__":
    config = {"application.id": "page-views", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        print("running; press Ctrl-C to stop")
        store = streams.store("views-per-page")
        while streams.wait(timedelta(seconds=2)) is KafkaStreams.State.RUNNING:
            print(dict(store.all()))
