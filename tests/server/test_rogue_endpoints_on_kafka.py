"""A stranger who can join the group on a real broker, and announces an endpoint of his own."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from fake_world import FakeWorld
from traps import trap
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.model import TopicPartition
from millstream.query.metadata import default_partition
from millstream.runtime.client import KafkaStreams
from millstream.runtime.wiring import real_parts
from millstream.serdes.serdes import Serdes

SOON = timedelta(seconds=60)
TOKEN = "s3cret-token-of-all"


@contextmanager
def client(
    world: FakeWorld, kafka: EmbeddedKafka, group: str, topic: str, path: Path, **options: Any
) -> Iterator[KafkaStreams]:
    """One in the real group of a real broker, with a real query server; Spark is a fake."""
    builder = StreamsBuilder()
    stream = builder.stream(topic, Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    config = {
        "application.id": group,
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(path / uuid.uuid4().hex),
        **{key.replace("__", "."): value for key, value in options.items()},
    }
    real = real_parts()
    parts = replace(world.parts(), query_server=real.query_server, membership=real.membership)
    streams = KafkaStreams(builder.build(), config, parts=parts)
    try:
        yield streams
    finally:
        streams.close(SOON)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port: int = unused.getsockname()[1]
        return port


def answer(streams: KafkaStreams, target: str) -> tuple[int, dict[str, Any]]:
    url = streams.query_server_url
    assert url is not None
    connection = HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.request("GET", target, headers={"authorization": f"Bearer {TOKEN}"})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


@pytest.mark.kafka
def test_who_has_joined_the_group_hears_no_token_and_answers_for_nobody(
    kafka: EmbeddedKafka, tmp_path: Path
) -> None:
    """Sixty questions about keys that are said to be there, and ranges: the trap hears only who it is asked
    to be, and what it says is never an answer."""
    group = f"rogue-{uuid.uuid4().hex[:8]}"
    topic = f"lines-{group}"
    kafka.create_topic(topic, 3)
    world = FakeWorld({topic: 3, "out": 1})
    for number in range(60):
        key = f"key-{number}".encode()
        partition = TopicPartition(f"{group}-counts-changelog", default_partition(key, 3))
        world.log.append(partition, (key, number.to_bytes(8, "big"), 1))
    with (
        trap() as made,
        client(
            world,
            kafka,
            group,
            topic,
            tmp_path,
            application__server=f"localhost:{free_port()}",
            query__server__enabled=True,
            query__server__token=TOKEN,
        ) as honest,
        client(world, kafka, group, topic, tmp_path, application__server=str(made.address)) as rogue,
    ):
        honest.start()
        rogue.start()
        honest.wait_until_running(SOON)
        rogue.wait_until_running(SOON)

        def trapped() -> list[str]:
            keys = [f"key-{number}" for number in range(60)]
            return [
                key
                for key in keys
                if honest.query_metadata_for_key("counts", key).active_host == made.address
            ]

        refused = 0
        while refused < 60:
            keys = wait_until(trapped, "the group says that the trap has a part", SOON.total_seconds())
            for key in keys[: 60 - refused]:
                status, body = answer(honest, f"/v1/stores/counts/keys/{key}")
                if status == 200:  # the group has moved it to the honest client meanwhile
                    assert body["value"] == int(key.removeprefix("key-")), body
                    continue
                assert (status, body.get("error")) == (502, "BadGateway"), key
                refused += 1
        assert answer(honest, "/v1/stores/counts/entries")[0] == 502
        assert answer(honest, "/v1/stores/counts/count")[0] == 502
        assert made.heard
        assert TOKEN not in made.all_heard
        assert "key-" not in made.all_heard
    world.close()
