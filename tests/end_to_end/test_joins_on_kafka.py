"""Joins and grouped tables on real Kafka and real Spark: what goes in, what comes out, what stores hold."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Serdes,
    StreamJoined,
    StreamsBuilder,
    TableJoined,
    Topology,
    TopologyException,
)
from millstream.kafka.topics import KafkaTopics
from millstream.model import KafkaRecord, TopicPartition
from millstream.query.metadata import default_partition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
CUSTOMERS = Consumed.with_(Serdes.string(), Serdes.json("name STRING, city STRING"))
PARTITIONS = 3


@dataclass(frozen=True)
class Shop:
    """The topics of a program that has all kinds of joins."""

    customers: str
    orders: str
    calls: str
    points: str
    bills: str
    payments: str
    rates: str
    billed: str
    called: str
    paid: str
    rated: str

    @classmethod
    def of(cls, world: World) -> Shop:
        return cls(*(world.topic(each.name, PARTITIONS) for each in fields(cls)))

    def topology(self) -> Topology:
        """Orders and calls look customers up; customers have points and are counted by city; bills wait for
        their payments, and orders for the rates of their time."""
        builder = StreamsBuilder()
        customers = builder.table(self.customers, CUSTOMERS, Materialized.as_("customers"))
        orders = builder.stream(self.orders, STRINGS)
        orders.join(customers, lambda order, customer: F.concat_ws(" ", order, customer["name"])).to(
            self.billed
        )
        orders.join(
            builder.table(self.rates, STRINGS, Materialized.as_("rates").with_history(timedelta(minutes=1))),
            lambda order, rate: F.concat_ws(" ", order, rate),
            Joined().with_grace_period(timedelta(milliseconds=2_500)),
        ).to(self.rated)
        builder.stream(self.calls, STRINGS).select_key(
            lambda call: F.substring_index(call, ":", 1)
        ).left_join(customers, lambda key, call, customer: F.concat_ws(" ", key, call, customer.city)).to(
            self.called
        )
        customers.left_join(
            builder.table(self.points, Consumed.with_(Serdes.string(), Serdes.long())),
            lambda customer, points: F.struct(customer["name"].alias("of"), points.alias("points")),
            Materialized.as_("with-points"),
        )
        customers.group_by(lambda key, customer: (customer.city, customer["name"])).count(
            Materialized.as_("per-city")
        )
        builder.stream(self.bills, STRINGS).left_join(
            builder.stream(self.payments, STRINGS),
            lambda bill, payment: F.concat_ws(" ", bill, F.coalesce(payment, F.lit("unpaid"))),
            JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=10)),
        ).to(self.paid)
        return builder.build()


def customer(name: str, city: str) -> bytes:
    return json.dumps({"name": name, "city": city}).encode()


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def said(records: Iterable[KafkaRecord]) -> list[tuple[str, str, int]]:
    """Key, value and time of each, by time."""
    entries = [((r.key or b"-").decode(), (r.value or b"-").decode(), r.timestamp) for r in records]
    return sorted(entries, key=lambda entry: (entry[2], entry[0]))


def has(client: KafkaStreams, store: str, expected: dict[str, Any]) -> None:
    """Wait until a store has exactly this."""

    def found() -> dict[str, Any]:
        return content(key_value_store(client, store))

    with suppress(AssertionError):
        wait_until(lambda: found() == expected, f"'{store}' has what it should have")
    assert found() == expected


def latest(world: World, topic: str) -> dict[bytes | None, bytes]:
    """What a changelog has, as far as it is there, without what is deleted."""
    records = world.consume(topic, 1)
    assert all(r.partition == default_partition(r.key, PARTITIONS) for r in records if r.key is not None)
    last = {r.key: r.value for r in records}
    return {key: value for key, value in last.items() if value is not None}


def have_read(world: World, client: KafkaStreams, topic: str) -> None:
    """Wait until all of a topic is committed."""
    topics = KafkaTopics(client._config)
    parts = [TopicPartition(topic, number) for number in range(topics.describe([topic])[topic].partitions)]

    def is_read() -> bool:
        committed, ends = topics.committed(world.name("app"), parts), topics.end_offsets(parts)
        return all(committed.get(each, 0) == end for each, end in ends.items())

    wait_until(is_read, f"all of {topic} is committed")
    topics.close()


def test_joins_and_grouped_tables_go_on_through_restarts(world: World) -> None:
    """Each record is joined with the row that was there; stores and changelogs have what tables have; and a
    new client goes on with all of it, twice."""
    shop = Shop.of(world)
    # All of it is there before the client starts: the times say what was before what.
    world.produce(
        shop.customers, [(b"a", customer("Ann", "Rome")), (b"b", customer("Bob", "Rome"))], timestamp=1_000
    )
    world.produce(shop.orders, [(b"a", b"book"), (b"x", b"car")], timestamp=2_000, headers=[("h", b"1")])
    world.produce(shop.customers, [(b"a", None), (b"b", customer("Bob", "Oslo"))], timestamp=3_000)
    world.produce(shop.orders, [(b"a", b"pen"), (b"b", b"hat")], timestamp=4_000)
    world.produce(shop.calls, [(None, b"b:hello"), (None, b"x:hello")], timestamp=5_000)
    world.produce(shop.points, [(b"b", number(7)), (b"y", number(1))], timestamp=6_000)
    for at, key, bill in ((1_000, b"p", b"rent"), (2_000, b"q", b"gas"), (30_000, b"q", b"more gas")):
        world.produce(shop.bills, [(key, bill)], timestamp=at)
    world.produce(shop.payments, [(b"p", b"cash")], timestamp=5_000)
    world.produce(shop.rates, [(b"b", b"low")], timestamp=1_000)

    client = world.client(shop.topology())
    billed = world.consume(shop.billed, 2)
    assert said(billed) == [("a", "book Ann", 2_000), ("b", "hat Bob", 4_000)]
    assert {record.value: record.headers for record in billed} == {
        b"book Ann": (("h", b"1"),),
        b"hat Bob": (),
    }
    assert said(world.consume(shop.called, 2)) == [
        ("b", "b b:hello Oslo", 5_000),
        ("x", "x x:hello", 5_000),
    ]
    assert said(world.consume(shop.paid, 2)) == [("q", "gas unpaid", 2_000), ("p", "rent cash", 5_000)]
    has(client, "customers", {"b": {"name": "Bob", "city": "Oslo"}})
    has(client, "with-points", {"b": {"of": "Bob", "points": 7}})
    has(client, "per-city", {"Oslo": 1, "Rome": 0})
    changelog = f"{world.name('app')}-with-points-changelog"
    bob = {b"b": b'{"of":"Bob","points":7}'}  # how much is in one commit, and so has one record, is open
    wait_until(lambda: latest(world, changelog) == bob, f"{changelog} has what the table has")
    assert client.close(timedelta(seconds=30))

    client = world.client(shop.topology())
    world.produce(shop.rates, [(b"b", b"high")], timestamp=5_000)
    world.produce(shop.rates, [(b"b", b"fair")], timestamp=3_500)
    have_read(world, client, shop.rates)  # the order could be in sooner
    world.produce(shop.orders, [(b"b", b"bag")], timestamp=7_000)
    world.produce(shop.points, [(b"b", number(8))], timestamp=7_000)
    world.produce(shop.customers, [(b"c", customer("Cid", "Oslo"))], timestamp=8_000)
    world.produce(shop.payments, [(b"q", b"card")], timestamp=31_000)
    assert said(world.consume(shop.billed, 3))[2:] == [("b", "bag Bob", 7_000)]
    assert said(world.consume(shop.rated, 1)) == [("b", "hat fair", 4_000)]
    assert said(world.consume(shop.paid, 3))[2:] == [("q", "more gas card", 31_000)]
    has(client, "with-points", {"b": {"of": "Bob", "points": 8}, "c": {"of": "Cid", "points": None}})
    has(client, "per-city", {"Oslo": 2, "Rome": 0})
    assert client.close(timedelta(seconds=30))

    client = world.client(shop.topology())
    world.produce(shop.customers, [(b"b", customer("Bea", "Rome")), (b"c", None)], timestamp=9_000)
    has(client, "per-city", {"Oslo": 0, "Rome": 1})
    has(client, "with-points", {"b": {"of": "Bea", "points": 8}})
    has(client, "customers", {"b": {"name": "Bea", "city": "Rome"}})
    world.produce(shop.calls, [(None, b"b:again"), (None, b"c:again")], timestamp=10_000)
    world.produce(shop.orders, [(b"b", b"cup")], timestamp=10_000)
    assert said(world.consume(shop.called, 4))[2:] == [
        ("b", "b b:again Rome", 10_000),
        ("c", "c c:again", 10_000),
    ]
    assert said(world.consume(shop.billed, 4))[3:] == [("b", "cup Bea", 10_000)]
    assert said(world.consume(shop.rated, 2))[1:] == [("b", "bag high", 7_000)]
    assert len(said(world.consume(shop.paid, 3))) == 3


@pytest.mark.timeout(300)  # two programs of three queries, each started twice
def test_foreign_keys_go_on_through_restarts(world: World) -> None:
    """Tables with different numbers of partitions: the result follows both of them, whatever client runs; and
    what is between them are topics with Kafka's names."""
    orders, users, bought = (world.topic(*each) for each in (("orders", 2), ("users", 3), ("bought", 2)))
    builder = StreamsBuilder()
    people = builder.table(users, CUSTOMERS, Materialized.as_("users"))
    ordered = builder.table(orders, Consumed.with_(Serdes.string(), Serdes.json("user STRING, item STRING")))
    ordered.left_join(
        people,
        lambda order: order.user,
        lambda order, user: F.struct(order["item"].alias("item"), user["name"].alias("by")),
        TableJoined.as_("by"),
        Materialized.as_("orders-by"),
    )
    ordered.join(
        people,
        lambda order: order.user,
        lambda key, order, user: F.concat_ws(" ", key, order["item"], user.city),
    ).to_stream().to(bought)
    topology = builder.build()

    def order(user: str | None, item: str) -> bytes:
        return json.dumps({"user": user, "item": item}).encode()

    hat = {"item": "hat", "by": None}
    client = world.client(topology)
    world.produce(users, [(b"u", customer("Uma", "Rome"))], timestamp=1_000)
    has(client, "users", {"u": {"name": "Uma", "city": "Rome"}})
    world.produce(
        orders,
        [(b"a", order("u", "bag")), (b"b", order("w", "cup")), (b"c", order(None, "hat"))],
        timestamp=2_000,
    )
    has(client, "orders-by", {"a": {"item": "bag", "by": "Uma"}, "b": {"item": "cup", "by": None}, "c": hat})
    assert said(world.consume(bought, 1)) == [("a", "a bag Rome", 2_000)]
    told = world.consume(f"{world.name('app')}-by-subscription-registration-topic", 3)
    assert {(r.key, (r.value or b"")[:2], (r.value or b"")[18:]) for r in told} == {
        (key, b"\1\2", name + default_partition(name, 2).to_bytes(4, "big"))
        for key, name in ((b"u", b"a"), (b"w", b"b"), (None, b"c"))
    }
    answered = world.consume(f"{world.name('app')}-by-subscription-response-topic", 3)
    assert all(r.partition == default_partition(r.key, 2) for r in answered if r.key is not None)
    assert client.close(timedelta(seconds=30))

    client = world.client(topology)
    world.produce(users, [(b"w", customer("Wim", "Oslo")), (b"u", None)], timestamp=3_000)
    has(client, "orders-by", {"a": {"item": "bag", "by": None}, "b": {"item": "cup", "by": "Wim"}, "c": hat})
    world.produce(orders, [(b"a", order("w", "bag")), (b"b", None)], timestamp=4_000)
    has(client, "orders-by", {"a": {"item": "bag", "by": "Wim"}, "c": hat})
    found = said(world.consume(bought, 5))
    assert [each for each in found if each[2] > 2_000] == [
        ("a", "-", 3_000),
        ("b", "b cup Oslo", 3_000),
        ("a", "a bag Oslo", 4_000),
        ("b", "-", 4_000),
    ]


@dataclass(frozen=True)
class Version:
    """A program with a join of a stream with a table and one of two streams, with what may change."""

    left_table: bool = False
    seconds: int = 10
    step: bool = False
    second_table: bool = False

    def topology(self, topics: dict[str, str]) -> Topology:
        builder = StreamsBuilder()
        clicks = builder.stream(topics["clicks"], STRINGS)
        if self.step:
            clicks = clicks.filter(lambda value: value != "no")
        users = builder.table(topics["users"], STRINGS, Materialized.as_("users"))

        def together(one: Any, other: Any) -> Any:
            return F.concat_ws("+", one, other)

        (clicks.left_join if self.left_table else clicks.join)(users, together).to(topics["named"])
        if self.second_table:
            more = builder.table(topics["more"], STRINGS, Materialized.as_("more"))
            clicks.join(more, together).to(topics["named"])
        windows = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=self.seconds))
        clicks.join(
            builder.stream(topics["views"], STRINGS), together, windows, StreamJoined.as_("pairs")
        ).to(topics["pairs"])
        return builder.build()


def test_a_join_that_changes_goes_on_with_its_state(world: World) -> None:
    """As in Kafka Streams: with other windows, one more table, and as a left join behind another step."""
    topics = {name: world.topic(name, 1) for name in ("clicks", "users", "more", "views", "named", "pairs")}
    client = world.client(Version().topology(topics))
    world.produce(topics["users"], [(b"u", b"Uma")], timestamp=1_000)
    world.produce(topics["more"], [(b"u", b"more")], timestamp=1_000)
    world.produce(topics["views"], [(b"u", b"page")], timestamp=2_000)
    world.produce(topics["clicks"], [(b"u", b"c1")], timestamp=3_000)
    named, pairs = {"c1+Uma"}, {"c1+page"}

    def check() -> None:
        for topic, expected in (("named", named), ("pairs", pairs)):
            found = said(world.consume(topics[topic], len(expected)))
            assert sorted(value for _, value, _ in found) == sorted(expected)
        assert client.close(timedelta(seconds=30))

    check()
    client = world.client(Version(seconds=20).topology(topics))
    world.produce(topics["clicks"], [(b"u", b"c2")], timestamp=13_000)
    named |= {"c2+Uma"}
    pairs |= {"c2+page"}
    check()
    world.produce(topics["clicks"], [(b"u", b"c3")], timestamp=14_000)
    client = world.client(Version(seconds=20, second_table=True).topology(topics))
    named |= {"c3+Uma", "c3+more"}
    pairs |= {"c3+page"}
    check()
    client = world.client(Version(left_table=True, step=True, seconds=20).topology(topics))
    world.produce(topics["clicks"], [(b"u", b"c4"), (b"w", b"c5")], timestamp=15_000)
    named |= {"c4+Uma", "c5"}
    pairs |= {"c4+page"}
    check()


def start_and_wait(client: KafkaStreams) -> None:
    client.start()
    client.wait(timedelta(seconds=60))


def test_an_aborted_row_is_neither_in_a_store_nor_in_a_join(world: World) -> None:
    """This holds with at-least-once too: both read committed records. Kafka Streams would read it in both."""
    users, clicks, out = world.topic("users", 1), world.topic("clicks", 1), world.topic("out", 1)
    writer = Producer({"bootstrap.servers": world.kafka.bootstrap_servers, "transactional.id": users})
    writer.init_transactions(30)
    writer.begin_transaction()
    writer.produce(users, b"good", b"u", timestamp=1_000)
    writer.commit_transaction(30)
    writer.begin_transaction()
    writer.produce(users, b"aborted", b"u", timestamp=2_000)
    writer.flush(30)  # so that the broker has it
    writer.abort_transaction(30)
    world.produce(clicks, [("u", "click")], timestamp=3_000)
    builder = StreamsBuilder()
    table = builder.table(users, STRINGS, Materialized.as_("users"))
    builder.stream(clicks, STRINGS).join(table, lambda click, user: F.concat_ws("+", click, user)).to(out)
    client = world.client(builder.build())
    assert said(world.consume(out, 1)) == [("u", "click+good", 3_000)]
    has(client, "users", {"u": "good"})


def test_sides_that_do_not_fit_are_refused_with_a_sentence(world: World) -> None:
    """Topics of different numbers of partitions, and keys of different types."""
    users, few, many, out = (
        world.topic(*each) for each in (("users", 3), ("few", 2), ("many", 3), ("out", 1))
    )

    def topology(source: str, *, numbered: bool = False) -> Topology:
        builder = StreamsBuilder()
        table = builder.table(users, STRINGS, Materialized.as_("users"))
        clicks = builder.stream(source, STRINGS)
        if numbered:
            clicks = clicks.select_key(lambda value: F.length(value))
        clicks.join(table, lambda click, user: user).to(out)
        return builder.build()

    client = world.created(topology(few))
    with pytest.raises(TopologyException, match=rf"{few} has 2, {users} has 3 partitions; KSTREAM-JOIN"):
        start_and_wait(client)
    client = world.created(topology(many, numbered=True), world.name("numbered"))
    told = r"keys of the same type on both sides, but the keys of KSTREAM-\S+ are int, the keys of KTABLE-"
    with pytest.raises(TopologyException, match=told):
        start_and_wait(client)


def test_no_record_of_a_backlog_overtakes_the_table_that_it_looks_up(world: World) -> None:
    """More records than one poll hands over wait in front of the table's rows, which are older."""
    sizes = {"rows": 400, "orders": 6_000}
    builder, outputs = StreamsBuilder(), []
    for number in range(2):
        rows, orders, out = (world.topic(f"{name}-{number}", 4) for name in ("rows", "orders", "out"))
        for topic, at in ((orders, 2_000), (rows, 1_000)):
            size = sizes["rows" if topic == rows else "orders"]
            records = [(b"k%d" % (each % sizes["rows"]), b"%d" % each) for each in range(size)]
            world.produce(topic, records, timestamp=at)
        found = builder.stream(orders, STRINGS).left_join(builder.table(rows, STRINGS), lambda _, row: row)
        found.to(out)
        outputs.append(out)
    client = world.client(builder.build(), consumer_max_poll_records=100)
    for out in outputs:
        records = world.consume(out, sizes["orders"])
        assert len(records) == sizes["orders"]
        assert [record for record in records if record.value is None] == []
    assert client.close(timedelta(seconds=30))
