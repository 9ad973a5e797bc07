"""A client that tests start as a process of its own, and kill: keeps a topic as a table until its input ends.

Prints RUNNING when it is.
"""

from __future__ import annotations

import sys

from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder


def main(servers: str, application_id: str, topic: str, state_dir: str) -> None:
    builder = StreamsBuilder()
    builder.global_table(topic, Consumed.with_(Serdes.bytes(), Serdes.bytes()), Materialized.as_("table"))
    config = {"application.id": application_id, "bootstrap.servers": servers, "state.dir": state_dir}
    with KafkaStreams(builder.build(), config):
        print("RUNNING", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:5])
