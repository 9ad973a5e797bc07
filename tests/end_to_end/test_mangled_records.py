"""Mangled bytes through a client, in every serde: a record comes out, or is among the dead letters, once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import Producer
from mangling import mangled, seeds
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, key_value_store

from millstream import (
    Consumed,
    Grouped,
    KafkaStreams,
    Materialized,
    Serde,
    Serdes,
    SerializationException,
    StreamsBuilder,
)
from millstream.kernel.constants import HEADER_PARTS
from millstream.model import KafkaRecord
from millstream.registry.http import RegistryServer

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

EACH = int(os.environ.get("MILLSTREAM_MANGLED", "2000")) // 20
"""How many records of each serde there are; with MILLSTREAM_MANGLED=100000, so many of all together."""
GUARANTEES = ("exactly_once_v2", "at_least_once")[: 2 if "MILLSTREAM_MANGLED" in os.environ else 1]
KEYS = (None, b"", b"k", b"\xff\xfe", b"key \xe2\x98\x83", b"long " * 500)
HEADERS: tuple[tuple[str, bytes | None], ...] = (
    (HEADER_PARTS, b"\xff" * 8),
    ("", None),
    ("\u2603", b"\xff"),
    ("__streams.errors.topic", b"elsewhere"),
)
NOW_MS = 1_700_000_000_000
TIMES = (1, NOW_MS, NOW_MS + 1, 10**12)
NUMBER = "number"
"""The header with a record's number."""
FIELDS = "a INT, b STRING, c DECIMAL(10,2), d TIMESTAMP, e ARRAY<DOUBLE>, f MAP<STRING, DATE>"
DOCUMENTS = (
    b'{"a":1,"b":"x","c":1.25,"d":"2024-02-29T10:00:00Z","e":[1,null,2.5],"f":{"k":"2024-02-29"}}',
    b'{"c":"12,50"}',
    b'{"c":1e10000000}',
    b'{"d":1691241070123}',
    b'{"b":"\\ud800","a":null}',
    b"{",
    b"null",
    b'{"a":1,"a":2}',
)


def serdes(server: RegistryServer) -> Mapping[Serde, list[bytes]]:
    """Every serde that is written as it is read, and some bytes."""
    found = {serde: data for serde, data in seeds(server).items() if "windowed" not in serde.name}
    return {**found, Serdes.json(FIELDS): list(DOCUMENTS)}


def is_good(serde: Serde, data: bytes) -> bool:
    try:
        serde.deserialize(data)
    except SerializationException:
        return False
    return True


def program(every: Mapping[Serde, list[bytes]], prefix: str) -> Any:
    """Each serde's records go through to a topic of their own; all are counted together."""
    builder = StreamsBuilder()
    together = None
    for number, serde in enumerate(every):
        stream = builder.stream(f"{prefix}in-{number}", Consumed.with_(Serdes.bytes(), serde))
        stream.to(f"{prefix}out-{number}")
        same = stream.map(lambda key, value: (F.lit("all"), F.lit("record")))
        together = same if together is None else together.merge(same)
    assert together is not None
    together.group_by_key(Grouped.with_(Serdes.string(), Serdes.string())).count(Materialized.as_("counted"))
    return builder.build()


def numbers(records: list[KafkaRecord]) -> Counter[int]:
    return Counter(int(dict(record.headers)[NUMBER]) for record in records)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_is_sent_comes_out_or_is_a_dead_letter(world: World, guarantee: str) -> None:
    """Once each, whatever its bytes, and nothing fails."""
    chance = random.Random(17)
    server = RegistryServer()
    prefix, application_id = world.name("mangled-"), world.name("app")
    every = serdes(server)
    for number in range(len(every)):
        world.kafka.create_topic(f"{prefix}in-{number}", 1)
        world.kafka.create_topic(f"{prefix}out-{number}", 1)
    world.kafka.create_topic(f"{prefix}dead", 1)
    client = world.client(
        program(every, prefix),
        application_id,
        processing_guarantee=guarantee,
        deserialization_exception_handler="continue",
        errors_dead_letter_queue_topic_name=f"{prefix}dead",
        schema_registry_url=server.url,
    )
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers, "linger.ms": 5})
    good: dict[int, set[int]] = {}
    bad: set[int] = set()
    sent = 0
    for number, (serde, seed) in enumerate(every.items()):
        good[number] = set()
        for data in mangled(seed, EACH, chance):
            (good[number] if is_good(serde, data) else bad).add(sent)
            producer.produce(
                f"{prefix}in-{number}",
                data,
                chance.choice(KEYS),
                timestamp=chance.choice(TIMES),
                headers=[chance.choice(HEADERS), (NUMBER, b"%d" % sent)],
            )
            producer.poll(0)
            sent += 1
    assert producer.flush(60) == 0
    try:
        for number, expected in good.items():
            came = world.consume(f"{prefix}out-{number}", len(expected), 300)
            assert numbers(came) == Counter(expected), f"serde {list(every)[number]!r}"
        letters = world.consume(f"{prefix}dead", len(bad), 300)
        assert numbers(letters) == Counter(bad)
        total = sent - len(bad)
        wait_until(lambda: counted(client) == total, f"{total} are counted", 120)
        assert client.failures == ()
        assert client.state is KafkaStreams.State.RUNNING
    finally:
        server.close()


def counted(client: KafkaStreams) -> int:
    return int(key_value_store(client, "counted").get("all") or 0)
