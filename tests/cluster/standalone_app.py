"""An application whose Spark is a standalone cluster, which tests start as a process of its own.

It counts the words of a topic, and adds up their lengths with functions of a module of its own, `lengths`,
which executors get from the client. Prints RUNNING when it is; then one line of JSON for each line that it
reads from its input: what its stores have, and its health.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import lengths  # type: ignore[import-not-found]
from answering import answer_lines
from counting import content, counted, lines_of
from pyspark.sql import functions as F

from millstream import (
    KafkaStreams,
    Materialized,
    Serdes,
    StreamsBuilder,
    Topology,
)

WAIT = timedelta(seconds=170)


def topology(topic: str) -> Topology:
    builder = StreamsBuilder()
    lines = lines_of(builder, topic).map_values(lambda line: F.udf(lengths.lower, "string")(line))
    words = counted(lines)
    words.aggregate(lambda: 0, lengths.added, Materialized.as_("lengths").with_value_serde(Serdes.long()))
    return builder.build()


def main(servers: str, application_id: str, topic: str, state_dir: str, settings: str) -> None:
    os.chdir(Path(state_dir).parent)  # so that what is made beside each process is the test's
    config = {
        "application.id": application_id,
        "bootstrap.servers": servers,
        "state.dir": state_dir,
        "processing.guarantee": "exactly_once_v2",
        **json.loads(settings),
    }

    def answer(streams: KafkaStreams, line: str) -> dict[str, Any]:
        return {
            "counts": content(streams, "counts"),
            "lengths": content(streams, "lengths"),
            "health": streams.health.as_dict(),
        }

    answer_lines(topology(topic), config, answer, within=WAIT)


if __name__ == "__main__":
    main(*sys.argv[1:6])
