"""Counts keys in Real-Time Mode until it is killed.

Run with the servers, the state directory, the application's id, the source and the output topic.
"""

from __future__ import annotations

import sys

from spark_start import SLOTS, java_options

from millstream import Consumed, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder
from millstream.topology.topology import Topology


def topology(source: str, out: str) -> Topology:
    builder = StreamsBuilder()
    keys = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    counts = keys.count(Materialized.as_("counts"))
    counts.to_stream().to(out, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def main(servers: str, directory: str, application: str, source: str, out: str) -> None:
    config = {
        "application.id": application,
        "bootstrap.servers": servers,
        "state.dir": directory,
        "processing.mode": "real-time",
        "real.time.batch.ms": 1500,
        "spark.driver.extraJavaOptions": java_options(),
        **SLOTS,
    }
    with KafkaStreams(topology(source, out), config) as streams:
        streams.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
