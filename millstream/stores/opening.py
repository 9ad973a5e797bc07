"""Opens one task's part of a store, of the kind in the topology, on disk or in memory."""

from __future__ import annotations

import logging
from pathlib import Path

from millstream.errors import ProcessorStateException
from millstream.model import StoreKind, TaskId
from millstream.ports import BytesStore
from millstream.stores.laid_out import MARK
from millstream.stores.segments import DuplicatesStore, SegmentedSessionStore, SegmentedWindowStore
from millstream.stores.store_base import MAX_ITERATORS, OrderedBytesStore
from millstream.stores.versioned import VersionedStore
from millstream.topology.nodes import Store

__all__ = ["open_store"]

_log = logging.getLogger(__name__)


def open_store(
    store: Store,
    task_id: TaskId,
    path: Path | None,
    *,
    in_memory: bool = False,
    topic_id: str | None = None,
    max_iterators: int = MAX_ITERATORS,
) -> BytesStore:
    """Open a store of the topology; files of a store of another kind, or of another topic, are wiped.

    Args:
        store: its name, its kind, and whether it should be persistent.
        path: its directory; None for a store in memory.
        in_memory: keep a persistent store in memory too, unless the program specifies its type.
        topic_id: the id of the topic that fills it, as `RocksDBStore` takes it.

    Raises:
        LockException: the directory is open elsewhere, in this process or another.
        ProcessorStateException: it cannot be opened, for example without permission or on a full disk.
        ValueError: a window or session store without a retention.
    """
    kind, retention = store.kind, store.retention_ms
    if kind is not StoreKind.KEY_VALUE and (retention is None or retention <= 0):
        raise ValueError(
            f"{kind.value} store '{store.name}' is declared with a retention of {retention} ms; the "
            f"retention must be positive"
        )
    for is_again in (False, True):
        inner = _open_inner(store, task_id, path, in_memory, topic_id, max_iterators)
        try:
            return _laid_out(store, inner)
        except BaseException as error:
            inner.close()
            if is_again or not isinstance(error, ProcessorStateException):
                raise
            # The mark is damaged. The directory now records that, so the next open starts from scratch.
            _log.warning("%s", error)
    raise AssertionError("unreachable")


def _laid_out(store: Store, inner: OrderedBytesStore) -> BytesStore:
    """The store of the declared kind in `inner`, which is wiped if it has another kind."""
    retention = store.retention_ms
    if store.kind is StoreKind.WINDOW and retention is not None:
        return (DuplicatesStore if store.duplicates else SegmentedWindowStore)(inner, retention)
    if store.kind is StoreKind.SESSION and retention is not None:
        return SegmentedSessionStore(inner, retention)
    if store.history_ms is not None:
        return VersionedStore(inner, store.history_ms)
    if inner.get(MARK) is not None:
        _log.warning(
            "store '%s' of task %s was a window store, a session store or a store with history; it is wiped, "
            "and restored from its changelog",
            store.name,
            inner.task_id,
        )
        inner.wipe()
    return inner


def _open_inner(
    store: Store,
    task_id: TaskId,
    path: Path | None,
    in_memory: bool,
    topic_id: str | None,
    max_iterators: int,
) -> OrderedBytesStore:
    if (in_memory and store.type_is_default) or not store.persistent or path is None:
        from millstream.stores.memory_store import MemoryStore

        return MemoryStore(store.name, task_id, max_iterators=max_iterators)
    from millstream.stores.rocksdb_store import RocksDBStore

    return RocksDBStore(store.name, task_id, path, topic_id=topic_id, max_iterators=max_iterators)
