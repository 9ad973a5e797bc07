"""Records with everything in them that Kafka takes, a program that meets them in every kind of source, and
what is to come of it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from millstream import (
    Consumed,
    Materialized,
    Repartitioned,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    TimeWindows,
    Topology,
)
from millstream.kernel.constants import HEADER_PARTS
from millstream.model import MAX_TIMESTAMP_MS, MIN_TIMESTAMP_MS

__all__ = ["GAP_MS", "SIZE_MS", "Fuzzed", "counted", "fuzzed", "is_good", "program", "sessions", "windows"]

Header = tuple[str, bytes | None]

SIZE_MS = 10_000
GAP_MS = 1_000
EVER = timedelta(days=4_000_000)
"""The grace of windows: nothing is late."""

_KEYS = (None, b"", b"k", b"key \xe2\x98\x83", b"\xff\xfe", b"\0" * 12, b"long " * 2000)
_VALUES = (
    None,
    b"",
    b"\0" * 8,
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"seven b",
    b"nine byte",
    b"{",
    b"x" * 9000,
)
_HEADERS: tuple[tuple[Header, ...], ...] = (
    (),
    ((HEADER_PARTS, b"\xff" * 8),),
    ((HEADER_PARTS, b"\x7f" + b"\xff" * 7),),
    ((HEADER_PARTS, b"\x80" + b"\0" * 7),),
    ((HEADER_PARTS, b"\xff" * 16),),
    ((HEADER_PARTS, b"\1\2\3"), ("h", b"\xff" * 8)),
    ((HEADER_PARTS, None),),
    ((HEADER_PARTS, b""), ("h", b"1")),
    (("", b""), ("", None)),
    (("\u2603", b"\xff\xfe"),),
    ((HEADER_PARTS, b"\xff" * 8), ("h", b"\0" * 8)),
    (("__streams.errors.topic", b"elsewhere"), ("traceparent", b"\0")),
    (("many", b"x"),) * 1000,
)
_DAY_MS = 86_400_000


@dataclass(frozen=True)
class Fuzzed:
    """A record to be."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[Header, ...]


def is_good(record: Fuzzed) -> bool:
    """Whether the serdes of `program` can read it."""
    return record.value is None or len(record.value) == 8


def fuzzed(timestamps: Sequence[int], count: int) -> list[Fuzzed]:
    """The same ones every time: each key, value, headers and timestamp at least once, mixed at random."""
    pick = random.Random(1_708)
    columns = (_KEYS, _VALUES, timestamps, _HEADERS)
    records = [
        Fuzzed(*(column[number % len(column)] for column in columns))  # type: ignore[arg-type]
        for number in range(max(map(len, columns)))
    ]
    records += [
        Fuzzed(pick.choice(_KEYS), pick.choice(_VALUES), pick.choice(timestamps), pick.choice(_HEADERS))
        for _ in range(count - len(records))
    ]
    pick.shuffle(records)
    return records


def program(*, prefix: str = "") -> Topology:
    """Reads `in` as a stream, `table` as a table, and `global` as a global table; all are numbers."""
    numbers = Consumed.with_(Serdes.string(), Serdes.long())
    builder = StreamsBuilder()
    stream = builder.stream(f"{prefix}in", numbers)
    stream.to(f"{prefix}copy")
    again = Repartitioned.with_(Serdes.string(), Serdes.long()).with_name("again")
    stream.repartition(again).group_by_key().count(Materialized.as_("counts"))
    grouped = stream.group_by_key()
    size, gap = timedelta(milliseconds=SIZE_MS), timedelta(milliseconds=GAP_MS)
    windowed = grouped.windowed_by(TimeWindows.of_size_and_grace(size, EVER))
    windowed.count(Materialized.as_("windows")).to_stream().to(f"{prefix}windows")
    sessions = SessionWindows.of_inactivity_gap_and_grace(gap, EVER)
    grouped.windowed_by(sessions).count(Materialized.as_("sessions")).to_stream().to(f"{prefix}sessions")
    table = builder.table(f"{prefix}table", numbers, Materialized.as_("table"))
    table.filter(lambda value: value == 0, Materialized.as_("zeros"))
    builder.global_table(f"{prefix}global", numbers, Materialized.as_("everywhere"))
    return builder.build()


def is_timed(record: Fuzzed) -> bool:
    """Whether LogAndSkipOnInvalidTimestamp takes it."""
    return record.timestamp >= 0


def clamped(record: Fuzzed) -> int:
    """The time that it is taken for."""
    return min(max(record.timestamp, MIN_TIMESTAMP_MS), MAX_TIMESTAMP_MS)


def _windowed(records: Iterable[Fuzzed]) -> list[Fuzzed]:
    # A null value counts in time windows and sessions, as in Kafka Streams.
    return [r for r in records if is_good(r) and r.key is not None and is_timed(r)]


def counted(records: Iterable[Fuzzed]) -> dict[str, int]:
    """How often each key has a value."""
    good = [
        r.key.decode(errors="replace")
        for r in records
        if r.key is not None and r.value and is_good(r) and is_timed(r)
    ]
    return dict(Counter(good))


def windows(records: Iterable[Fuzzed]) -> dict[tuple[bytes, int], int]:
    """How many there are in each window, by key and start."""
    return dict(Counter((r.key or b"", clamped(r) // SIZE_MS * SIZE_MS) for r in _windowed(records)))


def sessions(records: Iterable[Fuzzed]) -> int:
    """How many records are in sessions."""
    return len(_windowed(records))
