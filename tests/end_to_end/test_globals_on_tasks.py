"""Global tables and sources that grow, where subtopologies are tasks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import functions as F
from waiting import wait_until
from world import World

from millstream import Consumed, Serdes, StreamsBuilder, Topology

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def with_towns(orders: str, towns: str, out: str) -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table(towns, STRINGS)
    stream = builder.stream(orders, STRINGS)
    joined = stream.left_join(table, lambda value: value, lambda value, town: F.concat_ws("+", value, town))
    joined.to(out)
    return builder.build()


@pytest.mark.parametrize("keeps", ["its directory", "nothing"])
def test_a_table_is_whole_before_the_first_record_and_goes_on_by_itself(world: World, keeps: str) -> None:
    """Rows of all partitions, deleted ones, later ones; also for the next client."""
    orders, towns, out = world.topic("orders"), world.topic("towns", 3), world.topic("out", 1)
    rows = {f"t{number}": f"town {number}" for number in range(100)}
    world.produce(towns, [(key.encode(), b"old") for key in rows])
    world.produce(towns, [(key.encode(), value.encode()) for key, value in rows.items()])
    world.produce(towns, [(b"t7", None)])
    world.produce(orders, [(b"k", key.encode()) for key in rows])
    client = world.client(with_towns(orders, towns, out))
    found = {record.value.decode() for record in world.consume(out, 100) if record.value}
    assert found == {f"{key}+{value}" for key, value in rows.items() if key != "t7"} | {"t7"}

    asked = 100

    def joined(key: str) -> bytes | None:
        nonlocal asked
        world.produce(orders, [(b"k", key.encode())])
        asked += 1
        return world.consume(out, asked)[-1].value

    world.produce(towns, [(b"t7", b"again")])
    wait_until(lambda: joined("t7") == b"t7+again", "a later row is found", 60)
    client.close()
    if keeps == "nothing":
        shutil.rmtree(Path(world.directory, "state"))
    world.produce(towns, [(b"t8", b"later")])
    world.client(with_towns(orders, towns, out))
    assert joined("t8") == b"t8+later"
    assert joined("t9") == b"t9+town 9"


def test_a_topic_that_was_made_anew_is_another_table(world: World) -> None:
    """While no client ran: what the directory has is the old one's."""
    orders, towns, out = world.topic("orders", 1), world.topic("towns", 1), world.topic("out", 1)
    world.produce(towns, [(b"a", b"old"), (b"b", b"old")])
    world.produce(orders, [(b"k", b"a")])
    client = world.client(with_towns(orders, towns, out))
    assert [record.value for record in world.consume(out, 1)] == [b"a+old"]
    client.close()
    world.kafka.delete_topic(towns)
    wait_until(lambda: towns not in world.kafka.topics(), "it is gone")
    world.kafka.create_topic(towns, 1)
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    for value in (b"new", b"newer", b"newest"):
        producer.produce(towns, value, b"b")
    assert producer.flush(30) == 0
    world.client(with_towns(orders, towns, out))
    world.produce(orders, [(b"k", b"a"), (b"k", b"b")])
    assert [record.value for record in world.consume(out, 3)[1:]] == [b"a", b"b+newest"]


def test_topics_and_partitions_that_come_later_are_read(world: World) -> None:
    """A topic that a pattern matches, and partitions of one that is read: the query begins anew."""
    one, out = world.topic("logs-1", 1), world.topic("out", 1)
    number = one.rpartition("-")[2]
    builder = StreamsBuilder()
    builder.stream(re.compile(f"logs-[0-9]+-{number}"), STRINGS).to(out)
    world.client(builder.build())
    world.produce(one, [(b"k", b"a")])
    assert [record.value for record in world.consume(out, 1)] == [b"a"]
    two = world.topic("logs-2", 2)
    world.produce(two, [(b"k", b"b")], partition=1)
    assert [record.value for record in world.consume(out, 2)] == [b"a", b"b"]
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers})
    for future in admin.create_partitions([NewPartitions(one, 3)]).values():
        future.result()
    # One that has not heard of the topic before.
    producer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers})
    producer.produce(one, b"c", b"k", partition=2)
    assert producer.flush(30) == 0
    assert [record.value for record in world.consume(out, 3)] == [b"a", b"b", b"c"]
