"""What a new version of a program may change: each row of the table in docs/semantics.md, by doing it.

Two versions, one after the other, on one application: what the first has counted, the second goes on with, or
start() refuses it before anything runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.checkpoints.offset_log import positions_of
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    KafkaStreams,
    KStream,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
    TimeWindows,
    TopologyException,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
COUNTS = Produced.with_(Serdes.string(), Serdes.long())


@dataclass(frozen=True)
class Topics:
    source: str
    other: str
    out: str
    copy: str


Program = Callable[[StreamsBuilder, Topics], object]


def stream(builder: StreamsBuilder, topics: Topics) -> KStream:
    return builder.stream(topics.source, STRINGS)


def count(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).group_by_key().count(Materialized.as_("n"))


def count_and_output(builder: StreamsBuilder, topics: Topics) -> None:
    counts = stream(builder, topics).group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(topics.out, COUNTS)


def count_and_copy(builder: StreamsBuilder, topics: Topics) -> None:
    records = stream(builder, topics)
    records.map_values(lambda value: F.upper(value)).to(topics.copy)
    records.group_by_key().count(Materialized.as_("n"))


def count_and_all_outputs(builder: StreamsBuilder, topics: Topics) -> None:
    records = stream(builder, topics)
    counts = records.group_by_key().count(Materialized.as_("n"))
    counts.to_stream().to(topics.out, COUNTS)
    records.filter(lambda value: value != "").to(topics.copy)


def steps_in_front(builder: StreamsBuilder, topics: Topics) -> None:
    records = stream(builder, topics).filter(lambda value: value != "no")
    trimmed = records.map_values(lambda value: F.trim(value))
    trimmed.group_by_key().count(Materialized.as_("n"))


def total(builder: StreamsBuilder, topics: Topics) -> None:
    """The same aggregation, with another function of the same type."""
    stream(builder, topics).group_by_key().aggregate(
        lambda key, value: F.sum(F.length(value).cast("bigint")), Materialized.as_("n")
    )


def doubled(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).group_by_key().aggregate(
        lambda key, value: F.sum((F.length(value) * 2).cast("bigint")), Materialized.as_("n")
    )


ALLOWED: dict[str, list[tuple[Program, int]]] = {
    # Programs, one after the other on the same application, each with what one more record adds for its key.
    "outputs beside and behind an aggregation come and go": [
        (count, 1),
        (count_and_copy, 1),
        (count_and_all_outputs, 1),
        (count_and_output, 1),
        (count, 1),
        (count_and_all_outputs, 1),
        (count, 1),
    ],
    "stateless steps come and go": [(count, 1), (steps_in_front, 1), (count, 1)],
    "a function changes, for the records that come": [(total, 1), (doubled, 2)],
}


def started_afresh(world: World, program: Program, topics: Topics, app: str, total: int, read: int) -> None:
    """Run a version until one more record of each partition is counted and committed."""
    builder = StreamsBuilder()
    program(builder, topics)
    client = world.client(builder.build(), app)
    world.produce(topics.source, [(b"a", b"x")])
    store = key_value_store(client, "n")
    wait_until(lambda: content(store) == {"a": total}, f"the count is {total}, and not {content(store)}", 60)
    files = LocalCheckpointFiles(world.directory / "state" / app / "checkpoints")
    wait_until(lambda: sum((positions_of(files, "p0") or {}).values()) == read, "it is committed", 60)
    client.close(timedelta(seconds=30))


def test_what_may_change_goes_on_where_the_version_before_was(world: World) -> None:
    """Nothing is counted twice and nothing left out, through any of these changes."""
    for number, versions in enumerate(ALLOWED.values()):
        topics = Topics(*(world.topic(f"{name}-{number}", 1) for name in ("in", "other", "out", "copy")))
        value = 0
        for read, (program, more) in enumerate(versions, 1):
            value += more
            started_afresh(world, program, topics, world.name(f"app-{number}"), value, read)
        if versions[0][0] is count:
            copies = [record.value for record in world.consume(topics.copy, 0)]
            assert len(copies) <= len(versions), "an output that is new begins where the program is"


def renamed(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).group_by_key().count(Materialized.as_("m"))


def two_aggregations(builder: StreamsBuilder, topics: Topics) -> None:
    records = stream(builder, topics).group_by_key()
    records.count(Materialized.as_("n"))
    records.count(Materialized.as_("m"))


def windowed(builder: StreamsBuilder, topics: Topics) -> None:
    windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=1))
    stream(builder, topics).group_by_key().windowed_by(windows).count(Materialized.as_("n"))


def folded(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).group_by_key().aggregate(
        lambda: 0,
        lambda key, value, so_far: so_far + 1,
        Materialized.as_("n").with_value_serde(Serdes.long()),
    )


def two_sources(builder: StreamsBuilder, topics: Topics) -> None:
    builder.stream([topics.source, topics.other], STRINGS).group_by_key().count(Materialized.as_("n"))


def none_at_all(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).to(topics.copy)


REFUSED: dict[str, tuple[Program, str]] = {
    "a store has another name": (renamed, "fills stores: was 'Aggregate n', now 'Aggregate m'"),
    "an aggregation is added": (two_aggregations, "fills stores: was 'Aggregate n', now"),
    "an aggregation is taken away": (none_at_all, "fills stores: was 'Aggregate n', now none"),
    "windows are added": (windowed, "fills stores: was 'Aggregate n', now 'Aggregate n by"),
    "Spark's function becomes a fold in Python": (folded, "keeps state: was 'n aggregate', now 'n fold in"),
    "a source topic is added": (two_sources, "reads: was "),
}


def largest(builder: StreamsBuilder, topics: Topics) -> None:
    """Keeps a number, as a total does: for Spark it is the same state."""
    stream(builder, topics).group_by_key().aggregate(
        lambda key, value: F.max(F.length(value).cast("bigint")), Materialized.as_("n")
    )


def average(builder: StreamsBuilder, topics: Topics) -> None:
    stream(builder, topics).group_by_key().aggregate(
        lambda key, value: F.avg(F.length(value)).cast("bigint"), Materialized.as_("n")
    )


def start_and_wait(client: KafkaStreams) -> None:
    client.start()
    client.wait(timedelta(seconds=60))


MISREAD: dict[str, tuple[Program, str]] = {
    "another function that keeps the same type": (largest, "now 'whole of max bigint;"),
    "another function whose result has the same type": (average, "now 'whole of sum double, sum bigint;"),
}


def refused(
    world: World, program: Program, topics: Topics, app: str, start: Callable[[KafkaStreams], object]
) -> str:
    """How the program is refused when a client of it is started so."""
    builder = StreamsBuilder()
    program(builder, topics)
    client = world.created(builder.build(), app)
    with pytest.raises(TopologyException) as raised:
        start(client)
    client.close(timedelta(seconds=30))
    return str(raised.value)


def test_another_aggregate_function_is_refused_before_it_reads_the_state(world: World) -> None:
    """It comes when the program is compiled; what there is goes on with the version before."""
    topics = Topics(*(world.topic(name, 1) for name in ("in", "other", "out", "copy")))
    app = world.name("app")
    started_afresh(world, total, topics, app, 1, 1)
    for program, told in MISREAD.values():
        refusal = refused(world, program, topics, app, start_and_wait)
        assert "was 'whole of sum bigint;" in refusal
        assert told in refusal
        assert "`millstream reset`" in refusal
    started_afresh(world, total, topics, app, 2, 2)


def test_what_may_not_change_is_refused_by_start_and_harms_nothing(world: World) -> None:
    """The error says what differs and what to do, before Spark is started. The earlier version then runs
    again."""
    topics = Topics(*(world.topic(name, 1) for name in ("in", "other", "out", "copy")))
    app = world.name("app")
    started_afresh(world, count, topics, app, 1, 1)
    for program, told in REFUSED.values():
        refusal = refused(world, program, topics, app, KafkaStreams.start)
        assert told in refusal
        assert "clean_up(checkpoints=True)" in refusal
    started_afresh(world, count, topics, app, 2, 2)
