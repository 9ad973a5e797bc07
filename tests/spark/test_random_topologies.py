"""Programs at random, run by Spark and by a model of a few lines of Python: the same records and stores."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from driving import STRINGS, pipe, read, rows
from pyspark.sql import functions as F

from millstream import KStream, Materialized, StreamsBuilder
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

Row = tuple[str | None, str | None]
Rows = list[Row]
Step = tuple[Callable[[KStream], KStream], Callable[[Rows], Rows]]


def predicate(letter: str) -> Callable[[str | None], bool | None]:
    return lambda value: None if value is None else letter in value


def steps(letter: str) -> dict[str, Step]:
    """What can be done to a stream, told twice."""
    has = predicate(letter)
    return {
        "filter": (
            lambda s: s.filter(lambda value: value.contains(letter)),
            lambda rows: [(k, v) for k, v in rows if has(v) is True],
        ),
        "filter_not": (
            lambda s: s.filter_not(lambda value: value.contains(letter)),
            lambda rows: [(k, v) for k, v in rows if has(v) is not True],
        ),
        "map": (
            lambda s: s.map(lambda key, value: (value, key)),
            lambda rows: [(v, k) for k, v in rows],
        ),
        "map_values": (
            lambda s: s.map_values(lambda value: F.concat(value, F.lit(letter))),
            lambda rows: [(k, None if v is None else v + letter) for k, v in rows],
        ),
        "select_key": (
            lambda s: s.select_key(lambda value: F.substring(value, 1, 1)),
            lambda rows: [(None if v is None else v[:1], v) for k, v in rows],
        ),
        "flat_map_values": (
            lambda s: s.flat_map_values(lambda value: F.split(value, letter)),
            lambda rows: [(k, part) for k, v in rows if v is not None for part in v.split(letter)],
        ),
        "flat_map": (
            lambda s: s.flat_map(lambda key, value: [(key, value), (value, key)]),
            lambda rows: [pair for k, v in rows for pair in ((k, v), (v, k))],
        ),
        # A cast fails on anything but digits: so it must never meet what the filter dropped.
        "numbers": (
            lambda s: s.filter(lambda value: value.rlike("^[0-9]+$")).map_values(
                lambda value: (value.cast("bigint") + 1).cast("string")
            ),
            lambda rows: [(k, str(int(v) + 1)) for k, v in rows if v is not None and v.isdigit()],
        ),
    }


class Program:
    """A topology and its model, grown together."""

    def __init__(self, seed: int, size: int) -> None:
        self.chance = random.Random(seed)
        self.builder = StreamsBuilder()
        self.topics = ("one", "two")
        self.streams: list[tuple[KStream, Callable[[dict[str, Rows]], Rows]]] = [
            (self.builder.stream(topic, STRINGS), lambda given, topic=topic: given[topic])
            for topic in self.topics
        ]
        self.outputs: dict[str, Callable[[dict[str, Rows]], Rows]] = {}
        self.stores: dict[
            str, tuple[Callable[[dict[str, Rows]], Rows], Callable[[Rows], dict[str, Any]]]
        ] = {}
        for _ in range(size):
            self.grow()
        for stream, model in self.streams[-3:]:
            self.write(stream, model)

    def write(self, stream: KStream, model: Callable[[dict[str, Rows]], Rows]) -> None:
        topic = f"out-{len(self.outputs)}"
        stream.to(topic)
        self.outputs[topic] = model

    def grow(self) -> None:
        stream, model = self.chance.choice(self.streams)
        word = self.chance.choice(["step"] * 5 + ["merge", "split", "to", "to", "count", "max"])
        letter = self.chance.choice("ab1")
        if word == "step":
            _, (does, models) = self.chance.choice(sorted(steps(letter).items()))
            self.streams.append((does(stream), lambda given: models(model(given))))
        elif word == "merge":
            other, other_model = self.chance.choice(self.streams)
            self.streams.append((stream.merge(other), lambda given: model(given) + other_model(given)))
        elif word == "split":
            has = predicate(letter)
            branches = stream.split().branch(lambda value: value.contains(letter)).default_branch().values()
            first, rest = (branch for branch in branches)
            self.streams.append((rest, lambda given: [r for r in model(given) if has(r[1]) is not True]))
            self.streams.append((first, lambda given: [r for r in model(given) if has(r[1]) is True]))
        elif word == "to":
            self.write(stream, model)
        else:
            name = f"store-{len(self.stores)}"
            group = stream.group_by_key()
            if word == "count":
                group.count(Materialized.as_(name))
            else:
                group.reduce(lambda value: F.max(value), Materialized.as_(name))
            self.stores[name] = (model, counted if word == "count" else largest)


def counted(rows: Rows) -> dict[str, Any]:
    return dict(Counter(k for k, v in rows if k is not None and v is not None))


def largest(rows: Rows) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for k, v in rows:
        if k is not None and v is not None:
            result[k] = max(result.get(k, ""), v, key=lambda text: text.encode())
    return result


def changed(changes: list[tuple[str, bytes]]) -> set[str]:
    """The keys in changes that only go up."""
    latest: dict[str, bytes] = {}
    for key, value in changes:
        assert value >= latest.get(key, b"")
        latest[key] = value
    return set(latest)


def batches(chance: random.Random) -> list[tuple[str, Rows]]:
    def text() -> str | None:
        return chance.choice(
            [None, "", "a", "b", "1", "11", "ab1", "bab", "".join(chance.choices("ab1", k=4))]
        )

    return [
        (topic, [(text(), text()) for _ in range(chance.randrange(1, 8))]) for topic in ("one", "two", "one")
    ]


@pytest.mark.parametrize("seed", range(6))
def test_a_program_at_random_does_what_its_model_does(seed: int) -> None:
    """Every output topic has the model's records, every store its rows, after each of three commits. What
    has changed is in the changelog, and only grows."""
    program = Program(seed, size=16)
    given: dict[str, Rows] = {topic: [] for topic in program.topics}
    written: dict[str, Rows] = {topic: [] for topic in program.outputs}
    # Every other one as a client runs it: with code generation.
    config: dict[str, Any] = {"spark.sql.codegen.wholeStage": str(seed % 2 == 0).lower()}
    cached = seed % 3 != 0
    if not cached:
        config["statestore.cache.max.bytes"] = 0
    with TopologyTestDriver(program.builder.build(), config) as driver:
        for topic, batch in batches(program.chance):
            pipe(driver, topic, *batch)
            given[topic] += batch
            for out, model in program.outputs.items():
                written[out] += read(driver, out)
                assert Counter(written[out]) == Counter(model(given)), out
        for name, (model, aggregate) in program.stores.items():
            assert rows(driver, name) == aggregate(model(given)), name
            if not cached:
                changes = read(driver, f"test-{name}-changelog", value="bytes")
                assert changed(changes) == counted(model(given)).keys(), name
    assert any(written.values())
