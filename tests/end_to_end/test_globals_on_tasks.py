"""Global tables and sources that grow, where subtopologies are tasks."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import functions as F
from waiting import wait_until
from world import World

from millstream import (
    Consumed,
    Materialized,
    Processor,
    ProcessorContext,
    Produced,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    Topology,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

register_pickle_by_value(sys.modules[__name__])  # workers cannot import it

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


class Filling(Processor):
    """Fills a global store in its own way: it numbers keys, after those that it has."""

    def init(self, context: ProcessorContext) -> None:
        self.numbers = context.get_state_store("numbers")

    def process(self, record: Record) -> None:
        if record.value is None:
            self.numbers.put(record.key, None)
        elif self.numbers.get(record.key) is None:
            with self.numbers.all() as rows:
                taken = [int(number) for _, number in rows]
            self.numbers.put(record.key, str(max(taken, default=0) + 1))


class Looking(Processor):
    """Forwards what global stores have."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.towns = context.get_state_store("towns")
        self.numbers = context.get_state_store("numbers")

    def process(self, record: Record) -> None:
        key = record.value
        found = self.towns.get(key)
        told = {
            "get": found and f"{found.value}@{found.timestamp}",
            "all": self.listed(self.towns.all()),
            "from": self.listed(self.towns.range(key, None)),
            "to": self.listed(self.towns.reverse_range(None, key)),
            "like": self.listed(self.towns.prefix_scan(key[:1], Serdes.string())),
            "numbers": self.listed(self.numbers.reverse_all()),
        }
        assert self.towns.approximate_num_entries() >= 0
        self.context.forward(record.with_value("; ".join(f"{name} {each}" for name, each in told.items())))

    def listed(self, entries: Any) -> str:
        with entries as rows:
            return " ".join(f"{key}={getattr(row, 'value', row)}" for key, row in rows)


def looking(orders: str, towns: str, names: str, out: str) -> Topology:
    builder = StreamsBuilder()
    builder.global_table(towns, STRINGS, Materialized.as_("towns"))
    kept = Stores.key_value_store_builder(
        Stores.persistent_key_value_store("numbers"), Serdes.string(), Serdes.string()
    )
    builder.add_global_store(kept.with_logging_disabled(), names, STRINGS, Filling)
    builder.stream(orders, STRINGS).process(Looking).to(out, Produced.with_(Serdes.string(), Serdes.string()))
    return builder.build()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("keeps", ["its directory", "nothing"])
def test_processors_read_all_rows_of_global_stores(world: World, keeps: str) -> None:
    """With their times, in both orders, those of a prefix; and what another processor has made of a topic,
    from all records before. The next client has the same."""
    orders, out = world.topic("orders", 1), world.topic("out", 1)
    towns, names = world.topic("towns", 3), world.topic("names", 1)
    for number, town in enumerate(("aa", "ab", "ba", "bb", "c")):
        world.produce(towns, [(town.encode(), b"%d" % number)], timestamp=1_000 + number)
    world.produce(towns, [(b"bb", None)])
    world.produce(names, [(name, b"") for name in (b"y", b"x", b"z", b"y")])
    world.produce(names, [(b"x", None)])
    asked = 0

    def told(key: str) -> str:
        nonlocal asked
        world.produce(orders, [(b"k", key.encode())])
        asked += 1
        return (world.consume(out, asked, 120)[-1].value or b"").decode()

    client = world.client(looking(orders, towns, names, out))
    rows = "all aa=0 ab=1 ba=2 c=4; from ab=1 ba=2 c=4; to ab=1 aa=0; like aa=0 ab=1"
    assert told("ab") == f"get 1@1001; {rows}; numbers z=3 y=1"
    world.produce(towns, [(b"ba", None)])
    world.produce(names, [(b"x", b"")])
    rows = "all aa=0 ab=1 c=4; from c=4; to ab=1 aa=0; like "
    wait_until(lambda: told("b") == f"get None; {rows}; numbers z=3 y=1 x=4", "later rows are found", 60)
    client.close()
    if keeps == "nothing":
        shutil.rmtree(Path(world.directory, "state"))
    world.produce(names, [(b"y", None), (b"v", b"")])
    world.client(looking(orders, towns, names, out))
    assert told("b") == f"get None; {rows}; numbers z=3 x=4 v=5"
