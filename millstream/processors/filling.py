"""A client's global store with its own processor, which processes the topic's records and fills the store.

Queries read this store. Spark's processors have the same contents in their own state (graph.py), filled in
the same way from the same topic.

Source: org.apache.kafka.streams.processor.internals.GlobalStateUpdateTask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from millstream.clock import SystemClock
from millstream.errors import StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.ports import BytesStore, KeyValueBytesStore
from millstream.processors.graph import filling_graph, with_serdes
from millstream.processors.task import ProcessorTask, RawRecord
from millstream.topology.nodes import GlobalTable
from millstream.topology.topology import Topology

__all__ = ["filled"]


def filled(
    store: BytesStore,
    topology: Topology,
    changelog: TopicPartition,
    *,
    application_id: str,
    config: Mapping[str, Any],
    default: tuple[Any, Any],
    bound: Callable[..., Any],
) -> BytesStore:
    """A part of a global store, filled by its processor in the topology; unchanged if it has none.

    Args:
        changelog: the topic partition that fills it.
        default: the configured serdes.
        bound: configures a serde for that topic; called with the serde and `is_key`.
    """
    for node in topology.nodes:
        if isinstance(node, GlobalTable) and node.stored.name == store.name and node.supplier is not None:
            kept = cast("KeyValueBytesStore", store)
            return cast("BytesStore", _Filled(kept, node, changelog, application_id, config, default, bound))
    return store


class _Filled:
    """The store with a different `apply`; also the Home of the processor."""

    def __init__(
        self,
        inner: KeyValueBytesStore,
        table: GlobalTable,
        changelog: TopicPartition,
        application_id: str,
        config: Mapping[str, Any],
        default: tuple[Any, Any],
        bound: Callable[..., Any],
    ) -> None:
        self._inner = inner
        self._table = table
        self._changelog = changelog
        self._entries = _Entries(inner)
        self._changes: list[tuple[bytes, bytes | None, int]] = []
        graph = filling_graph(table, application_id=application_id, config=config, default=default)
        # Here, each change is noted as for a changelog.
        graph = with_serdes(replace(graph, stores=(replace(graph.stores[0], logged=True),)), bound)
        self._task = ProcessorTask(graph, TaskId(inner.task_id.subtopology, changelog.partition), self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def apply(self, entries: Sequence[tuple[bytes, bytes | None, int]], next_offset: int) -> None:
        """Like `BytesStore.apply`, for the entries that the processor puts when it processes the given ones.

        Raises:
            StreamsException: the processor raised.
        """
        self._changes = []
        for key, value, timestamp in entries:
            self._task.process(0, RawRecord(key, value, timestamp, (), *self._changelog))
        self._inner.apply(self._changes, next_offset)
        self._entries.begin()

    # --- the home of the processor -----------------------------------------------------------------------

    def store(self, _: int, /) -> _Entries:
        return self._entries

    def changed(self, _: int, key: bytes, value: bytes | None, timestamp: int, /) -> None:
        self._changes.append((key, value, timestamp))

    def out(self, *record: object) -> None:
        raise AssertionError(f"a global store's processor has no steps after it: {record}")

    def unwritten(self, *failure: object) -> None:
        raise AssertionError(f"a global store's processor has no steps after it: {failure}")

    def now_ms(self) -> int:
        return SystemClock().epoch_ms()

    def failed(self, _: int, record: Any, error: Exception, /) -> None:
        raise StreamsException(
            f"{self._table.name}, the processor of the global store '{self._table.stored.name}', raised "
            f"{type(error).__name__}: {error}, at a record of {self._changelog}"
        ) from error


class _Entries:
    """The processor's view of the store: its contents, and the puts since the last batch."""

    def __init__(self, inner: KeyValueBytesStore) -> None:
        self._inner = inner
        self._written: dict[bytes, bytes | None] = {}

    def begin(self) -> None:
        self._written = {}

    def get(self, key: bytes, /) -> bytes | None:
        return self._written[key] if key in self._written else self._inner.get(key)

    def put(self, key: bytes, value: bytes | None, /) -> None:
        self._written[key] = value

    def range(
        self, first: bytes | None, end: bytes | None, reverse: bool = False, /
    ) -> Iterator[tuple[bytes, bytes]]:
        found: dict[bytes, bytes | None] = dict(self._inner.range(first, end, end_inclusive=False))
        for key, value in self._written.items():
            if (first is None or key >= first) and (end is None or key < end):
                found[key] = value
        for key in sorted(found, reverse=reverse):
            if (value := found[key]) is not None:
                yield key, value

    def approximate_num_entries(self) -> int:
        return self._inner.approximate_num_entries() + len(self._written)
