"""A backlog of several topics, read in small micro-batches, gives what Kafka Streams makes of it."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F
from snapshots.kafka_streams import KafkaStreams as RealKafkaStreams
from snapshots.trace_joins import named, stream, table
from snapshots.trace_programs import BY_KEY, COUNT, TO_STREAM, Op, time
from waiting import wait_until
from world import World

from millstream import (
    Consumed,
    Joined,
    JoinWindows,
    KafkaStreams,
    Materialized,
    Serdes,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    WindowedSerdes,
)
from millstream.checkpoints.fencing import LocalCheckpointFiles
from millstream.checkpoints.offset_log import positions_of
from millstream.dsl.emission import BufferConfig

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
KEYS = ("k", "l", "m")
HOUR = 3_600_000
DAYS = 24 * HOUR
BEGIN = 1_700_000_000_000 // DAYS * DAYS
LENGTH = 14 * DAYS
LATER = BEGIN + 20 * DAYS
COUNTS = {"a": 900, "b": 60, "t": 50}
"""The topics, and how many records each has."""

WITHIN: Op = {"with": "b", "before": 2 * HOUR, "after": 2 * HOUR, "grace": 2 * HOUR}
SUPPRESS: Op = {"op": "suppress", "until": "window closes"}
PROGRAMS: dict[str, list[Op]] = {
    "join": [*named("b", stream("b")), stream("a"), {"op": "join", **WITHIN}],
    "left": [*named("b", stream("b")), stream("a"), {"op": "left_join", **WITHIN}],
    "counts": [
        *named("b", stream("b")),
        stream("a"),
        {"op": "merge", "with": "b"},
        BY_KEY,
        time(6 * HOUR, 6 * HOUR, HOUR),
        COUNT,
        SUPPRESS,
        TO_STREAM,
    ],
    "looked-up": [*named("t", table("t")), stream("a"), {"op": "left_join", "with": "t"}],
    "versions": [
        *named("t", table("t", store="s", history=DAYS)),
        stream("a"),
        {"op": "join", "with": "t", "grace": HOUR},
    ],
}
"""The same programs for Kafka Streams (`snapshots/traces.py`)."""

Sent = tuple[str, str, int, str]
Rows = Counter[tuple[Any, ...]]


def sent() -> list[Sent]:
    """Key, value, time and topic of each record, by time. `a` has most of its records early, `b` late: so a
    tenth of each is not the same stretch of time."""
    rng = random.Random(28)
    spread = {"a": 2.0, "b": 0.6, "t": 1.0}
    times = iter(rng.sample(range(LENGTH // 1_000), sum(COUNTS.values())))
    records = []
    for topic, count in COUNTS.items():
        for number in range(count):
            share = (next(times) * 1_000 / LENGTH) ** spread[topic]
            at = (
                BEGIN + int(share * LENGTH) // 10 * 10 + list(COUNTS).index(topic)
            )  # never the same in two topics
            records.append((rng.choice(KEYS), f"{topic}{number}", at, topic))
    # Of each key a record that is much later: whatever waits for its time comes out.
    records += [(key, "end", LATER + number, "a") for number, key in enumerate(KEYS)]
    return sorted(records, key=lambda record: record[2])


def of_kafka_streams(directory: Path, records: list[Sent]) -> dict[str, Rows]:
    """Its driver is given the records one by one in the order of their times, in which it reads a backlog."""
    read = {"join": "ab", "left": "ab", "counts": "ab", "looked-up": "at", "versions": "at"}
    cases = [
        json.dumps(
            {"name": name, "program": ops, "records": [each for each in records if each[3] in read[name]]}
        )
        for name, ops in PROGRAMS.items()
    ]
    found = {}
    for line in RealKafkaStreams(directory).ask(cases):
        trace = json.loads(line)
        assert not any("error" in step for step in trace["steps"]), trace["steps"]
        rows = [row for step in trace["steps"] for row in step.get("out", ())]
        found[trace["name"]] = Counter(tuple(row) for row in rows)
    return found


def topology(topics: dict[str, str], out: dict[str, str]) -> Topology:
    builder = StreamsBuilder()
    a, b = builder.stream(topics["a"], STRINGS), builder.stream(topics["b"], STRINGS)
    now = builder.table(topics["t"], STRINGS)
    then = builder.table(topics["v"], STRINGS, Materialized.as_("then").with_history(timedelta(days=1)))

    def both(left: Any, right: Any) -> Any:
        return F.concat(left, F.lit("+"), F.coalesce(right, F.lit("_")))

    near = JoinWindows.of_time_difference_and_grace(timedelta(hours=2), timedelta(hours=2))
    a.join(b, both, near).to(out["join"])
    a.left_join(b, both, near).to(out["left"])
    windows = TimeWindows.of_size_and_grace(timedelta(hours=6), timedelta(hours=1))
    a.merge(b).group_by_key().windowed_by(windows).count().suppress(
        Suppressed.until_window_closes(BufferConfig.unbounded())
    ).to_stream().map_values(lambda count: count.cast("string")).to(out["counts"])
    a.left_join(now, both).to(out["looked-up"])
    a.join(then, both, Joined().with_grace_period(timedelta(hours=1))).to(out["versions"])
    return builder.build()


class Backlog:
    """The topics with all records, and what clients make of them."""

    def __init__(self, world: World, records: list[Sent]) -> None:
        self.world = world
        self.topics = {name: world.topic(name, 1) for name in (*COUNTS, "v")}
        # A topic is read as one table only, so the versioned one has a topic of its own.
        copies = [(key, value, at, "v") for key, value, at, topic in records if topic == "t"]
        self.records = len(records) + len(copies)
        for key, value, at, topic in (*records, *copies):
            world.produce(self.topics[topic], [(key.encode(), value.encode())], timestamp=at)

    def committed(self, application: str) -> int:
        """How far all micro-batches together are that have ended; what several queries read counts for
        each."""
        files = LocalCheckpointFiles(self.world.directory / "state" / application / "checkpoints")
        return sum(sum((positions_of(files, pipeline) or {}).values()) for pipeline in files.list())

    def rows(self, topic: str, expected: Rows) -> Rows:
        """What is in an output topic, which has at least so many records."""
        found: Rows = Counter()
        for record in self.world.consume(topic, expected.total()):
            key, value = record.key or b"", (record.value or b"").decode()
            if len(next(iter(expected))) == 3:
                found[key.decode(), value, record.timestamp] += 1
                continue
            windowed = WindowedSerdes.time_windowed_serde_from(Serdes.string(), timedelta(hours=6))
            at = windowed.deserialize(key)
            found[at.key, int(value), record.timestamp, at.window.start_ms, at.window.end_ms] += 1
        return found


@pytest.mark.timeout(400)  # a dozen micro-batches of five stateful programs
def test_a_backlog_gives_what_kafka_streams_makes_of_it_whatever_the_limit(
    world: World, tmp_path: Path
) -> None:
    """Joins, merged windows and tables, exactly once: in one micro-batch, and in many with a restart among
    them. The
    restarted client goes on where the first one was: of what was committed nothing is read again. And a
    client is ready once its pipelines have ended a batch."""
    records = sent()
    expected = of_kafka_streams(tmp_path, records)
    assert 80 < expected["join"].total() < expected["left"].total()
    assert all(rows.total() > 100 for name, rows in expected.items() if name != "join")
    backlog = Backlog(world, records)
    for limit in (100_000, backlog.records // 6):
        name = world.name(f"limit-{limit}")
        out = {each: world.topic(f"{each}-{limit}", 1) for each in PROGRAMS}
        program = topology(backlog.topics, out)
        config = {"processing_guarantee": "exactly_once_v2", "max_batch_records": limit}
        client = world.client(program, name, **config)
        becomes_ready(client)
        assert backlog.committed(name) > 0, "the client is ready, and has done nothing"
        if limit < backlog.records:
            assert client.close(timedelta(seconds=60))
            before = backlog.committed(name)
            assert 0 < before < backlog.records, f"{before} of {backlog.records} records are committed"
            client = world.client(program, name, **config)
            becomes_ready(client)
            assert backlog.committed(name) > before
        for each, rows in expected.items():
            found = backlog.rows(out[each], rows)
            assert found == rows, f"limit {limit}, {each}: {differences(found, rows)}"
        assert client.close(timedelta(seconds=60))


def becomes_ready(client: KafkaStreams) -> None:
    """Wait until the client is ready; until then it says which pipeline has not ended its first batch."""
    told = set()

    def is_ready() -> bool:
        health = client.health
        if not health.ready:
            told.add((health.status, health.reason.partition(":")[0]))
            assert health.live
        return health.ready

    wait_until(is_ready, f"the client is ready; {told}", 120, every_s=0.05)
    assert {status for status, _ in told} <= {"starting", "restoring", "rebalancing", "degraded"}, told
    assert any(reason.endswith("has not finished its first batch") for _, reason in told), told


def differences(found: Rows, expected: Rows) -> str:
    return (
        f"{sorted((expected - found).items())[:5]} missing, {sorted((found - expected).items())[:5]} too many"
    )
