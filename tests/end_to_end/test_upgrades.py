"""What a new version of a program may change, by doing it.

Versions, one after the other, on one application: what one has counted, the next goes on with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    KStream,
    Materialized,
    Produced,
    Serdes,
    StreamsBuilder,
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


def started_afresh(world: World, program: Program, topics: Topics, app: str, total: int) -> None:
    """Run a version until one more record is counted."""
    builder = StreamsBuilder()
    program(builder, topics)
    client = world.client(builder.build(), app)
    world.produce(topics.source, [(b"a", b"x")])
    store = key_value_store(client, "n")
    wait_until(lambda: content(store) == {"a": total}, f"the count is {total}, and not {content(store)}", 60)
    client.close(timedelta(seconds=30))


def test_what_may_change_goes_on_where_the_version_before_was(world: World) -> None:
    """Nothing is counted twice and nothing left out, through any of these changes."""
    for number, versions in enumerate(ALLOWED.values()):
        topics = Topics(*(world.topic(f"{name}-{number}", 1) for name in ("in", "other", "out", "copy")))
        value = 0
        for program, more in versions:
            value += more
            started_afresh(world, program, topics, world.name(f"app-{number}"), value)
        if versions[0][0] is count:
            copies = [record.value for record in world.consume(topics.copy, 0)]
            assert len(copies) <= len(versions), "an output that is new begins where the program is"
