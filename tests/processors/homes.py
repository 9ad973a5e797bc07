"""Where tasks run in these tests: in memory, with everything that they did in lists."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from millstream.model import TaskId
from millstream.processors.api import Headers
from millstream.processors.graph import GraphPlan, plan_graph
from millstream.processors.task import ProcessorTask, RawRecord
from millstream.serdes.serdes import Serdes
from millstream.topology.nodes import Node
from millstream.topology.pipeline import linked
from millstream.topology.topology import Topology

__all__ = ["Bytes", "MemoryHome", "plan_of", "task_of"]


class Bytes:
    """A ByteStore in memory."""

    def __init__(self) -> None:
        self.content: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []

    def get(self, key: bytes) -> bytes | None:
        return self.content.get(key)

    def put(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            if self.content.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]
            return
        if key not in self.content:
            insort(self._keys, key)
        self.content[key] = value

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        low = 0 if first is None else bisect_left(self._keys, first)
        high = len(self._keys) if end is None else bisect_left(self._keys, end)
        keys = self._keys[low:high]
        for key in reversed(keys) if reverse else keys:
            if key in self.content:
                yield key, self.content[key]

    def approximate_num_entries(self) -> int:
        return len(self.content)


class MemoryHome:
    """A Home in memory. `goes_on`: a record at which a processor raises is given up; `writes_on`: one that a
    sink cannot write is, too."""

    def __init__(self, *, goes_on: bool = False, writes_on: bool = False) -> None:
        self.stores: dict[int, Bytes] = {}
        self.changes: list[tuple[int, bytes, bytes | None, int]] = []
        self.left: list[tuple[int, RawRecord]] = []
        self.failures: list[tuple[int, Any, Exception]] = []
        self.now = 0
        self.unwritable: list[tuple[int, str, Exception]] = []
        self.goes_on = goes_on
        self.writes_on = writes_on

    def store(self, number: int) -> Bytes:
        return self.stores.setdefault(number, Bytes())

    def changed(self, store: int, key: bytes, value: bytes | None, timestamp: int) -> None:
        self.changes.append((store, key, value, timestamp))

    def out(
        self,
        outside: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        of: RawRecord | None,
    ) -> None:
        place = (None, -1, -1) if of is None else (of.topic, of.partition, of.offset)
        self.left.append((outside, RawRecord(key, value, timestamp, headers, *place)))

    def now_ms(self) -> int:
        return self.now

    def failed(self, processor: int, record: Any, error: Exception) -> None:
        self.failures.append((processor, record, error))
        if not self.goes_on:
            raise error

    def unwritten(self, outside: int, part: str, error: Exception) -> None:
        self.unwritable.append((outside, part, error))
        if not self.writes_on:
            raise error


def plan_of(topology: Topology, config: Mapping[str, Any] | None = None) -> GraphPlan:
    """The graph of a topology with one group of processors; what it reads, and defaults, are strings."""

    def serdes(node: Node) -> tuple[Any, Any]:
        of = node
        while of.parents:
            of = of.parents[0]
        key, value = getattr(of, "key_serde", None), getattr(of, "value_serde", None)
        return key or Serdes.string(), value or Serdes.string()

    nodes = topology.pipelines[0].nodes
    (group,) = linked(nodes)
    return plan_graph(
        group,
        nodes,
        serdes,
        application_id="calls",
        config=config or {},
        default=(Serdes.string(), Serdes.string()),
    )


def task_of(plan: GraphPlan, home: MemoryHome) -> ProcessorTask:
    """Its task 0_0."""
    return ProcessorTask(plan.graph, TaskId(0, 0), home)


def fed(task: ProcessorTask, records: Iterable[tuple[str | None, str | None, int]]) -> None:
    """Give a task records of its first input, with offsets in order."""
    for offset, (key, value, timestamp) in enumerate(records):
        task.process(0, raw(key, value, timestamp, offset=offset))


def raw(
    key: str | None,
    value: str | None,
    timestamp: int,
    headers: tuple[tuple[str, bytes | None], ...] = (),
    *,
    offset: int = 0,
) -> RawRecord:
    """A record of strings, of the topic `in`."""
    encoded = (None if text is None else text.encode() for text in (key, value))
    return RawRecord(*encoded, timestamp, headers, "in", 0, offset)
