"""One task: the processors of a graph, for the records of one partition, one after the other.

Kafka Streams' rules: `forward` goes depth first, and returns when everything behind it has been done; stream
time is the newest timestamp so far, and what is due by it is punctuated after the record that brought it.

It knows bytes only through a `Home`, which is the kernel's operator, or in tests some dictionaries.

Source: org.apache.kafka.streams.processor.internals.StreamTask, ProcessorContextImpl, PunctuationQueue,
    PunctuationSchedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from millstream.model import TaskId
from millstream.processors.api import Headers, PunctuationType
from millstream.processors.graph import Graph

__all__ = ["ByteStore", "Home", "ProcessorTask", "RawRecord"]


class RawRecord(NamedTuple):
    """A record as it comes into a task, or leaves it.

    What leaves has the topic, the partition and the offset of the record that it came of; there is none
    (None, -1, -1) of what a punctuator forwards.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()
    topic: str | None = None
    partition: int = -1
    offset: int = -1


class ByteStore(Protocol):
    """An ordered map of bytes, which shows what was put into it at once.

    What it holds is laid out by the classes of `processors/stores.py`; their docstrings say how.
    """

    def get(self, key: bytes, /) -> bytes | None:
        """What was put under the key."""

    def put(self, key: bytes, value: bytes | None, /) -> None:
        """Put it, or with None delete it."""

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False, /
    ) -> Iterator[tuple[bytes, bytes]]:
        """The entries from the key `first`, included, to the key `end`, which is not, in the order of bytes.

        None: from the first, to the last. Puts and deletes are allowed while it is read. Whether it shows
        them is open; an entry that nobody touches is shown exactly once.
        """

    def approximate_num_entries(self) -> int:
        """How many entries there are, about."""


class Home(Protocol):
    """Where a task runs."""

    def store(self, number: int, /) -> ByteStore:
        """What the store of this number of the graph holds, in this task."""

    def changed(self, store: int, key: bytes, value: bytes | None, timestamp: int, /) -> None:
        """A record for the store's changelog, in Kafka's layout. Not called of stores that are not logged."""

    def out(self, outside: int, record: RawRecord, /) -> None:
        """A record for a step outside, by its number in the graph."""

    def now_ms(self) -> int:
        """The time of day, as processors see it; milliseconds since the epoch."""


class ProcessorTask:
    """The processors of one task; the first call makes and initializes them.

    Attributes:
        stream_time_ms: the newest timestamp so far; None: there was none.

    Args:
        stream_time_ms: that of an earlier task whose records this one goes on with.
    """

    def __init__(
        self, graph: Graph, task_id: TaskId, home: Home, *, stream_time_ms: int | None = None
    ) -> None:
        self.stream_time_ms = stream_time_ms
        self._graph = graph
        self._task_id = task_id
        self._home = home

    def init(self) -> None:
        """Make the processors and call their `init`. Idempotent; the other calls do it by themselves."""

    def process(self, input: int, record: RawRecord) -> None:
        """Give a record to the processors of an input, by its number in the graph; then punctuate what is due
        by stream time."""

    def advance_wall_clock(self, now_ms: int) -> None:
        """Punctuate what is due by the time of day."""

    def next_due(self, type: PunctuationType) -> int | None:
        """When the next punctuation is due, in milliseconds of that time; None: nothing is scheduled."""

    def end_chunk(self) -> None:
        """From now on, until the next call, stores raise when they are used: their records' task is over."""

    def close(self) -> None:
        """Call `close` of the processors."""
