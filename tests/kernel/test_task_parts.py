"""Parts of a task on their own: the order of its records, its state, the notes of its offsets, its memory."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from java_programs import KernelJava
from snapshots.kafka_streams import KafkaStreams

HERE = Path(__file__).parent
JUDGE = HERE / "streams" / "OrderAll.java"
PACKAGE = "io.millstream.kernel.task"

pytestmark = pytest.mark.disk


def schedules(seed: int, count: int) -> list[str]:
    """Random lines for groups: equal timestamps, unknown lags, each kind of max.task.idle.ms."""
    dice = random.Random(seed)
    lines = []
    for _ in range(count):
        topics = [f"t{i}" for i in range(dice.randint(1, 5))]
        lines.append(f"group {dice.choice((-1, 0, 0, 1, 30))} {' '.join(topics)}")
        now = 0
        for _ in range(40):
            topic = dice.choice(topics)
            now += dice.choice((0, 0, 1, 10))
            match dice.randint(0, 5):
                case 0 | 1:
                    times = " ".join(str(dice.randint(0, 4)) for _ in range(dice.randint(1, 4)))
                    lines.append(f"add {topic} {times}")
                case 2:
                    lines.append(f"lag {topic} {dice.choice((0, 0, 3))}")
                case _:
                    lines.append(f"take {now}")
    return lines


def test_records_are_taken_in_kafkas_order(kernel_java: KernelJava, tmp_path: Path) -> None:
    """Kafka Streams' own PartitionGroup is the judge (KIP-695): each record, wait and stream time."""
    lines = schedules(seed=5, count=300)
    sources = [JUDGE, JUDGE.with_name("Group.java")]
    wanted = KafkaStreams(tmp_path, JUDGE, sources).ask(lines)
    found = kernel_java(f"{PACKAGE}.HeadsMain", "".join(f"{line}\n" for line in lines)).splitlines()
    assert len(found) > 5000
    assert found == wanted


def test_a_range_is_what_there_was_when_it_was_opened(kernel_java: KernelJava, tmp_path: Path) -> None:
    """On disk and in memory, both ways, whatever is put, deleted, committed and taken back meanwhile."""
    for seed in range(1, 6):
        cursors = int(kernel_java(f"{PACKAGE}.StateMain", "", str(tmp_path / str(seed)), str(seed), "6000"))
        assert cursors > 1000


def test_notes_are_spread_over_the_offsets_of_a_task(kernel_java: KernelJava) -> None:
    """They come back whole, in texts no longer than the broker takes; else the error says what to raise."""

    def noted(*numbers: int) -> list[str]:
        return kernel_java(f"{PACKAGE}.OffsetNotesMain", "", *map(str, numbers)).splitlines()

    assert noted(1, 2, 16, 4096) == ["183", "times true", "ids 3", "clocks true"]
    length, *same = noted(3, 100, 5000, 4096)
    assert int(length) <= 4096
    assert same == ["times true", "ids 103", "clocks true"]
    (error,) = noted(1, 100, 5000, 4096)
    assert "takes 7440 bytes, but there is room for 3039 beside each of 1 offsets" in error
    assert "raise offset.metadata.max.bytes" in error
    # A source that is gone takes its piece along, but each of the others has the ids of all.
    assert noted(3, 10, 5000, 4096, 0)[1:] == ["times false", "ids 13", "clocks false"]


def test_memory_follows_the_container(kernel_java: KernelJava) -> None:
    """Half of what is beside the heap and the rest of the JVM, within bounds."""
    found = kernel_java(f"{PACKAGE}.MemoryMain", "", "2048:1024", "1024:900", "64000:2048").split()
    assert found == ["312", "32", "512", "3072", "2097152", "17"]


def test_the_driver_knows_what_executors_have_done(kernel_java: KernelJava) -> None:
    """A task's newest owner counts, a report that is repeated counts once, and nobody waits for an executor
    that is lost. What it has counted is handed over once; offsets stay."""
    *tasks, before, unfinished, after = kernel_java(f"{PACKAGE}.RemoteMain").splitlines()
    assert tasks == [
        *("true", "false", "true", "{0=5, 1=9} {t-0=10, t-1=12} 22", "a b null", "[a, b]"),
        *("[g] false", "false", "true {}", "23 null", "false", "true"),
    ]
    dropped = {"null": 1, "null:in": ["t-0"], "late": 1, "late:latest": [7, 1]}
    assert reported(before) == ({"t": {"0": 3}}, {"t": {"0": 5}}, dropped)
    assert unfinished == '{"t":{"0":5}} {"t":{"0":8}}'
    assert reported(after) == ({"t": {"0": 5}}, {"t": {"0": 8}}, {"late": 2, "late:latest": [9, 2]})


def reported(figures: str) -> tuple[object, object, object]:
    """Offsets before and after, and what was dropped."""
    report = json.loads(figures)
    (source,) = report["sources"]
    (observed,) = report["observedMetrics"].values()
    return source["startOffset"], source["endOffset"], observed
