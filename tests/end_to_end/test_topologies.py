"""Topologies on real Kafka and real Spark: what goes in, what comes out, what the stores hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import timedelta

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Branched,
    Consumed,
    KafkaStreams,
    Materialized,
    MissingSourceTopicException,
    PipelineException,
    Produced,
    QueryableStoreTypes,
    Repartitioned,
    Serdes,
    StoreQueryParameters,
    StreamsBuilder,
    TopologyException,
    ValueAndTimestamp,
)
from millstream.query.metadata import default_partition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def test_a_word_count_goes_from_topic_to_store_and_output_and_resumes_after_a_restart(world: World) -> None:
    """Counts are exact in the store, its changelog and the output; a new client goes on from there."""
    lines, out = world.topic("lines", 3), world.topic("counts-out")
    builder = StreamsBuilder()
    (
        builder.stream(lines, STRINGS)
        .flat_map_values(lambda line: F.split(line, " "))
        .group_by(lambda key, word: word)
        .count(Materialized.as_("counts"))
        .to_stream()
        .to(out, Produced.with_(Serdes.string(), Serdes.long()))
    )
    topology = builder.build()
    texts = ["to be or not to be", "that is the question", "to die to sleep"]
    expected = Counter(word for text in texts for word in text.split())

    client = world.client(topology)
    world.produce(lines, [(None, text.encode()) for text in texts])
    store = key_value_store(client, "counts")
    wait_until(lambda: content(store) == expected, "the counts are right")

    changelog = world.consume(f"{world.name('app')}-counts-changelog", len(expected))
    assert {r.partition for r in changelog if r.key == b"to"} == {default_partition(b"to", 3)}
    assert [name for name, _ in changelog[0].headers] == ["millstream.parts"]
    latest = {r.key: int.from_bytes(r.value or b"", "big") for r in world.consume(out, len(expected))}
    assert latest == {word.encode(): count for word, count in expected.items()}

    assert client.close(timedelta(seconds=20))
    world.produce(lines, [(None, b"be")])
    again = world.client(topology)
    wait_until(lambda: key_value_store(again, "counts").get("be") == 3, "the count went on from 2")
    assert content(key_value_store(again, "counts")) == {**expected, "be": 3}


def test_a_stateless_step_may_be_added_in_front_of_an_aggregation_between_two_runs(world: World) -> None:
    """State belongs to the store, not to the place of its operator in the program."""
    topic = world.topic("in", 1)

    def topology(extra: bool) -> StreamsBuilder:
        builder = StreamsBuilder()
        stream = builder.stream(topic, STRINGS)
        if extra:
            stream = stream.filter(lambda value: value != "").map_values(lambda value: F.upper(value))
        stream.group_by_key().count(Materialized.as_("n"))
        return builder

    client = world.client(topology(False).build())
    world.produce(topic, [(b"a", b"1"), (b"a", b"2")])
    wait_until(lambda: key_value_store(client, "n").get("a") == 2, "two were counted")
    client.close()
    again = world.client(topology(True).build())
    world.produce(topic, [(b"a", b"3")])
    wait_until(lambda: key_value_store(again, "n").get("a") == 3, "the third was counted too")


def test_branches_reach_their_topics_with_keys_and_headers_and_read_the_source_once(world: World) -> None:
    """A fork of three ways is one pass: Spark reports each record once."""
    source = world.topic("in", 2)
    small, large, everything = world.topic("small", 1), world.topic("large", 1), world.topic("all", 1)
    builder = StreamsBuilder()
    stream = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.json("n INT")))
    branches = (
        stream.split()
        .branch(lambda key, value: value.n < 10, Branched.as_("small"))
        .default_branch(Branched.as_("large"))
    )
    by_end = {name.rpartition("-")[2]: branch for name, branch in branches.items()}
    next(b for name, b in branches.items() if name.endswith("small")).to(small)
    next(b for name, b in branches.items() if name.endswith("large")).map_values(
        lambda value: {"n": value.n, "big": True}
    ).to(large)
    stream.to(everything)
    assert len(by_end) == 2

    client = world.client(builder.build())
    world.produce(
        source, [(f"k{n}".encode(), json.dumps({"n": n}).encode()) for n in range(20)], headers=[("h", b"1")]
    )
    assert sorted(json.loads(r.value or b"")["n"] for r in world.consume(small, 10)) == list(range(10))
    assert all(json.loads(r.value or b"")["big"] for r in world.consume(large, 10))
    copies = world.consume(everything, 20)
    assert {r.key for r in copies} == {f"k{n}".encode() for n in range(20)}
    assert {r.headers for r in copies} == {(("h", b"1"),)}
    (thread,) = client.metadata_for_local_threads()
    (pipeline,) = thread.pipelines
    wait_until(
        lambda: client.metadata_for_local_threads()[0].pipelines[0].records == 20,
        f"20 records were read: {pipeline}",
    )


def test_a_topic_can_be_chosen_by_a_column_and_a_source_can_be_a_pattern(world: World) -> None:
    """`to` with a function routes each record; a pattern reads every topic it matches."""
    one, two = world.topic("part-a", 1), world.topic("part-b", 1)
    odd, even = world.topic("odd", 1), world.topic("even", 1)
    builder = StreamsBuilder()
    pattern = re.compile(rf"part-[ab]-{re.escape(one.rpartition('-')[2])}")
    builder.stream(pattern, Consumed.with_(Serdes.string(), Serdes.long())).to(
        lambda key, value: F.when(value % 2 == 0, F.lit(even)).otherwise(F.lit(odd))
    )
    world.client(builder.build())
    world.produce(one, [(b"a", n.to_bytes(8, "big")) for n in range(4)])
    world.produce(two, [(b"b", n.to_bytes(8, "big")) for n in range(4, 6)])
    assert sorted(int.from_bytes(r.value or b"", "big") for r in world.consume(even, 3)) == [0, 2, 4]
    assert sorted(int.from_bytes(r.value or b"", "big") for r in world.consume(odd, 3)) == [1, 3, 5]


def test_a_repartition_topic_joins_two_pipelines_and_carries_timestamps_and_headers(world: World) -> None:
    """An explicit repartition is a real topic: by murmur2 of the key, with the record's own timestamp."""
    source, out = world.topic("in", 2), world.topic("out", 1)
    builder = StreamsBuilder()
    stream = (
        builder.stream(source, STRINGS)
        .select_key(lambda value: F.upper(value))
        .repartition(Repartitioned.as_("by-value").with_number_of_partitions(3))
    )
    stream.to(out)
    stream.group_by_key().count(Materialized.as_("n"))
    client = world.client(builder.build(), num_stream_threads=2)
    world.produce(
        source, [(b"k", b"x"), (b"k", b"y"), (b"k", b"x")], timestamp=1_000_000, headers=[("h", None)]
    )

    moved = world.consume(f"{world.name('app')}-by-value-repartition", 3)
    assert {r.partition for r in moved if r.key == b"X"} == {default_partition(b"X", 3)}
    assert {(r.headers, r.timestamp) for r in world.consume(out, 3)} == {((("h", None),), 1_000_000)}
    store = client.store(
        StoreQueryParameters.from_name_and_type("n", QueryableStoreTypes.timestamped_key_value_store())
    )
    wait_until(
        lambda: (
            content(store) == {"X": ValueAndTimestamp(2, 1_000_000), "Y": ValueAndTimestamp(1, 1_000_000)}
        ),
        "counts have the records' time",
    )
    for thread in client.metadata_for_local_threads():
        assert [each.name for each in thread.pipelines] == ["p0", "p1"], "each has a task of both"


def test_a_table_is_a_view_of_its_topic_with_deletions(world: World) -> None:
    """A table's store follows the topic itself, before and after the start; there is no copy of it."""
    users = world.topic("users", 2)
    out = world.topic("adults", 1)
    world.produce(users, [(b"ann", b'{"age":30}'), (b"bob", b'{"age":5}')])
    builder = StreamsBuilder()
    table = builder.table(
        users, Consumed.with_(Serdes.string(), Serdes.json("age INT")), Materialized.as_("users")
    )
    table.filter(lambda value: value.age >= 18).to_stream().to(out)
    client = world.client(builder.build())
    store = key_value_store(client, "users")
    assert content(store) == {"ann": {"age": 30}, "bob": {"age": 5}}
    world.produce(users, [(b"ann", None), (b"eve", b'{"age":20}')])
    wait_until(lambda: content(store) == {"bob": {"age": 5}, "eve": {"age": 20}}, "ann was deleted")
    final = {r.key: r.value for r in world.consume(out, 3)}
    assert final == {b"ann": None, b"eve": b'{"age":20}'}  # bob was never there, and is not gone
    assert not [name for name in world.kafka.topics() if name.startswith(f"{world.name('app')}-")]


def test_an_output_record_has_the_time_of_its_record(world: World) -> None:
    """A mapped record keeps it; the result of an aggregation has the largest of its records'."""
    source, out = world.topic("in", 1), world.topic("out", 1)
    builder = StreamsBuilder()
    counted = world.topic("counted", 1)
    stream = builder.stream(source, STRINGS)
    stream.map_values(lambda value: F.upper(value)).to(out)
    stream.group_by_key().count(Materialized.as_("n")).to_stream().to(counted)
    world.client(builder.build())
    world.produce(source, [(b"k", b"v")], timestamp=2_000_000)
    assert [record.timestamp for record in world.consume(counted, 1)] == [2_000_000]
    world.produce(source, [(b"k", b"v")], timestamp=1_000_000)
    assert [record.timestamp for record in world.consume(out, 2)] == [2_000_000, 1_000_000]
    times = [(record.value, record.timestamp) for record in world.consume(counted, 2)]
    assert times[-1] == ((2).to_bytes(8, "big"), 2_000_000)


def test_a_missing_source_topic_is_named_with_what_it_might_have_been(world: World) -> None:
    """By default the client ends in ERROR with everything closed; wait() raises what the handler was
    given.
    """
    orders = world.topic("orders")
    builder = StreamsBuilder()
    builder.stream(orders.replace("orders", "order"), STRINGS).to(orders)
    client = world.created(builder.build())
    client.start()
    with pytest.raises(MissingSourceTopicException, match=f"did you mean '{orders}'") as raised:
        client.wait(timedelta(seconds=30))
    assert raised.value.topics == (orders.replace("orders", "order"),)
    assert client._closed.wait(30)
    assert client.state is KafkaStreams.State.ERROR
    client.check()


def test_a_mistake_in_a_lambda_ends_the_client_before_any_record_is_written(world: World) -> None:
    """All pipelines are compiled before one starts; wait() raises what was wrong, with its line."""
    source, out = world.topic("in", 1), world.topic("out", 1)
    world.produce(source, [(b"k", b"v")])
    builder = StreamsBuilder()
    stream = builder.stream(source, STRINGS)
    stream.to(out)
    stream.filter(lambda key, value: value.nothing and value).to(out, named="second")
    client = world.created(builder.build())
    client.start()
    with pytest.raises(TopologyException, match=r"test_topologies\.py:\d+ <lambda>"):
        client.wait(timedelta(seconds=60))
    assert client.state is KafkaStreams.State.ERROR


def test_a_record_that_does_not_fit_its_serde_stops_the_client_and_is_not_lost(world: World) -> None:
    """The error names topic, partition and offset; a client with the right serde then gets the record."""
    source, out = world.topic("in", 1), world.topic("out", 1)
    builder = StreamsBuilder()
    builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long())).map_values(
        lambda value: value + 1
    ).to(out)
    client = world.client(builder.build())
    world.produce(source, [(b"k", (7).to_bytes(8, "big")), (b"k", b"seven")])
    with pytest.raises(
        PipelineException, match=rf"{source}-0 offset 1 value: serde 'long' cannot read these 5 bytes"
    ):
        client.wait(timedelta(seconds=60))
    repaired = StreamsBuilder()
    repaired.stream(source, Consumed.with_(Serdes.string(), Serdes.bytes())).to(out)
    world.client(repaired.build())
    wait_until(lambda: b"seven" in [r.value for r in world.consume(out, 1)], "the record was read again")
