"""What contestants are compared by: records to read, results to expect, and how to tell that all are there.

Records are generated from seeds, so they are the same for all contestants and all runs. Results are known
beforehand: how many there are, or what the last ones of all keys add up to.
"""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from bench.joins import pairs_of
from bench.lab import Lab
from bench.words import PARTITIONS, QUIET, produce, producer_options

__all__ = ["BEGIN_MS", "LONG", "TEXT", "WINDOW", "WORKLOADS", "Input", "Tally", "Workload", "finish"]

BEGIN_MS = 1_700_000_000_000
KEYS = 10_000
_WORDS = 5
_APART_MS = 5_000
_CHECK_EVERY_S = 0.5

Record = Mapping[str, Any]
_MURMUR = {"partitioner": "murmur2_random"}
"""The partitioner of Kafka's own clients, so that a stream and its table are co-partitioned for everyone."""


@dataclass(frozen=True, slots=True)
class Input:
    """The records written beforehand, and their expected results.

    Attributes:
        size: how many records count for the rate.
        expected: how many results there are; with `Workload.adds_up`, the sum of the last ones.
    """

    size: int
    left: str
    right: str
    expected: int


@dataclass(frozen=True, slots=True)
class Workload:
    """One job that all contestants do.

    Attributes:
        make: given a number of records, returns those of the left topic and of the right one, and what to
            expect.
        adds_up: results are counts, and the last ones of all keys add up to what is expected.
        size, quick: how many records a run has.
        slow: the fraction of them that Quix Streams gets, which takes it as long as others take for all.
        without: which contestants do not take part, and why.
    """

    name: str
    title: str
    make: Callable[[int], tuple[Iterator[Record], Iterator[Record], int]]
    adds_up: bool
    size: int
    quick: int
    slow: float = 1.0
    without: Mapping[str, str] = field(default_factory=dict)

    def write(self, lab: Lab, size: int) -> Input:
        """Create its topics and fill them."""
        left, right, expected = self.make(size)
        topics = []
        for kind, records in (("left", left), ("right", right)):
            topics.append(lab.topic(f"{self.name}-{kind}", PARTITIONS))
            producer = Producer({**producer_options(lab.bootstrap_servers), **_MURMUR})
            produce(lab.bootstrap_servers, topics[-1], records, producer)
        return Input(size, *topics, expected)


# --- records ---------------------------------------------------------------------------------------------


def _lines(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    """Lines of 100 characters; one in ten is filtered out."""
    texts = [hashlib.shake_128(b"%d" % number).hexdigest(48)[:95] for number in range(1000)]
    records = (
        {
            "key": b"k%05d" % (number % KEYS),
            "value": f"{'drop' if number % 10 == 0 else 'keep'}-{texts[number % 1000]}",
        }
        for number in range(size)
    )
    return records, iter(()), size - (size + 9) // 10


def _words(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    """Lines of five words, drawn from ten thousand words, all equally likely."""
    chosen = random.Random(1)
    vocabulary = [f"word{number:05d}" for number in range(KEYS)]
    records = ({"value": " ".join(chosen.choices(vocabulary, k=_WORDS))} for _ in range(size))
    return records, iter(()), size * _WORDS


def _events(seed: int, size: int, name: bytes = b"e", first_ms: int = BEGIN_MS) -> Iterator[Record]:
    """A record each millisecond, of any key. A key has one every ten seconds."""
    chosen = random.Random(seed)
    for number in range(size):
        yield {
            "key": b"key-%05d" % chosen.randrange(KEYS),
            "value": b"%s-%07d" % (name, number),
            "timestamp": first_ms + number,
        }


def _counted(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    return _events(3, size), iter(()), size


def _two_streams(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    def left() -> Iterator[Record]:
        return _events(4, size // 2, b"left")

    def right() -> Iterator[Record]:
        return _events(5, size // 2, b"right")

    return left(), right(), sum(1 for _ in pairs_of(left(), right(), _APART_MS))


def _lookups(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    """A stream after a table of a quarter as many rows; one key in ten is not in the table."""
    rows = size // 4

    def stream() -> Iterator[Record]:
        chosen = random.Random(6)
        for number in range(size):
            yield {
                "key": b"key-%07d" % chosen.randrange(rows + rows // 9),
                "value": b"record-%07d" % number,
                "timestamp": BEGIN_MS + rows + number,
            }

    table = (
        {"key": b"key-%07d" % number, "value": b"row-%060d" % number, "timestamp": BEGIN_MS + number}
        for number in range(rows)
    )
    last = b"key-%07d" % rows
    return stream(), table, sum(1 for record in stream() if record["key"] < last)


def _orders(size: int) -> Iterator[Record]:
    chosen = random.Random(7)
    for _ in range(size):
        user = f"user-{chosen.randrange(KEYS):05d}"
        yield {"key": user, "value": json.dumps({"user": user, "amount": chosen.randrange(1, 100)})}


def _folded(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    return _orders(size), iter(()), sum(json.loads(record["value"])["amount"] for record in _orders(size))


def _doubled(size: int) -> tuple[Iterator[Record], Iterator[Record], int]:
    return _orders(size), iter(()), size


WORKLOADS: Mapping[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("map", "filter and map, 100 bytes", _lines, False, 600_000, 200_000, slow=0.1),
        Workload("words", "word count, lines of 5 words", _words, True, 1_000_000, 100_000, slow=0.02),
        Workload("windows", "count in tumbling windows", _counted, True, 500_000, 100_000, slow=0.04),
        Workload(
            "sessions",
            "count in sessions",
            _counted,
            True,
            200_000,
            100_000,
            slow=0.05,
            without={
                "spark": "Structured Streaming writes a session only when it is over",
            },
        ),
        Workload("join", "join of two streams", _two_streams, False, 200_000, 60_000, slow=0.05),
        Workload(
            "lookup",
            "join of a stream with a table",
            _lookups,
            False,
            500_000,
            100_000,
            slow=0.04,
            without={"spark": "Structured Streaming has no table that changes"},
        ),
        Workload("fold", "fold in Python, 10,000 keys", _folded, True, 300_000, 60_000, slow=0.2),
        Workload("udf", "function of a record in Python", _doubled, False, 400_000, 60_000, slow=0.1),
    )
}


# --- results ---------------------------------------------------------------------------------------------

LONG: Callable[[bytes, bytes], tuple[bytes, int]] = lambda key, value: (key, int.from_bytes(value, "big"))  # noqa: E731
TEXT: Callable[[bytes, bytes], tuple[bytes, int]] = lambda key, value: (key, int(value))  # noqa: E731


def WINDOW(key: bytes, value: bytes) -> tuple[bytes, int]:  # noqa: N802
    """A window in JSON, as Quix Streams writes it. Its start is part of the key."""
    window = json.loads(value)
    return b"%s@%d" % (key, window["start"]), int(window["value"])


class Tally:
    """Adds up results as they come. The last one of each key counts; one without a value removes the key."""

    def __init__(self, decode: Callable[[bytes, bytes], tuple[bytes, int]] = LONG) -> None:
        self._decode = decode
        self._latest: dict[bytes, int] = {}
        self.total = 0
        self.records = 0

    def add(self, key: bytes, value: bytes | None) -> None:
        self.records += 1
        if value is None:
            self.total -= self._latest.pop(key, 0)
            return
        key, number = self._decode(key, value)
        self.total += number - self._latest.get(key, 0)
        self._latest[key] = number


@dataclass(frozen=True, slots=True)
class Finish:
    """When the last result was written, by the broker's clock, and how many there are."""

    at: float
    written: int


def finish(
    lab: Lab,
    output: str,
    expected: int,
    tally: Tally | None,
    deadline: float,
    check: Callable[[], None],
) -> Finish:
    """Wait until all results are there. Without a tally, only their number counts.

    Args:
        deadline: by `time.monotonic()`.
        check: raises the error that ended the contestant, if it has ended.

    Raises:
        TimeoutError: they were not there in time.
        RuntimeError: there are more than expected.
    """
    check = _now_and_then(check)
    consumer = Consumer(
        {
            "bootstrap.servers": lab.bootstrap_servers,
            "group.id": f"finish-{output}",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "fetch.message.max.bytes": 4_000_000,
            **QUIET,
        }
    )
    try:
        parts = [TopicPartition(output, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
        if tally is None:
            return _counted_finish(consumer, parts, expected, deadline, check)
        consumer.assign(parts)
        at = 0
        while tally.total != expected:
            for message in consumer.consume(20_000, 0.02):
                if message.error() is None:
                    tally.add(message.key() or b"", message.value())
                    at = max(at, message.timestamp()[1])
            if tally.total > expected:
                raise RuntimeError(f"results add up to {tally.total}, not {expected}")
            _go_on(deadline, check, f"{tally.total:,} of {expected:,} counted")
        return Finish(at / 1000, tally.records)
    finally:
        consumer.close()


def _counted_finish(
    consumer: Consumer,
    parts: Iterable[TopicPartition],
    expected: int,
    deadline: float,
    check: Callable[[], None],
) -> Finish:
    """Count by the ends of the partitions, so that nobody has to read the records."""
    parts = list(parts)
    while True:
        ends = dict.fromkeys((part.partition for part in parts), 0)
        with suppress(KafkaException):  # the topic is new
            ends = {part.partition: consumer.get_watermark_offsets(part, timeout=10)[1] for part in parts}
        written = sum(ends.values())
        if written >= expected:
            break
        _go_on(deadline, check, f"{written:,} of {expected:,} written")
        time.sleep(0.02)
    consumer.assign(
        [
            TopicPartition(part.topic, part.partition, ends[part.partition] - 1)
            for part in parts
            if ends[part.partition]
        ]
    )
    at, seen = 0, set()
    while len(seen) < sum(1 for end in ends.values() if end):
        for message in consumer.consume(1000, 0.05):
            if message.error() is None:
                seen.add(message.partition())
                at = max(at, message.timestamp()[1])
        _go_on(deadline, check, "the last results")
    if written > expected:
        raise RuntimeError(f"{written} results were written, not {expected}")
    return Finish(at / 1000, written)


def _now_and_then(check: Callable[[], None]) -> Callable[[], None]:
    """The same check, but not so often that it costs the contestant much."""
    last = 0.0

    def seldom() -> None:
        nonlocal last
        if time.monotonic() - last > _CHECK_EVERY_S:
            check()
            last = time.monotonic()

    return seldom


def _go_on(deadline: float, check: Callable[[], None], what: str) -> None:
    check()
    if time.monotonic() > deadline:
        raise TimeoutError(f"it took too long: {what}")
