"""The common part of the stores that are laid out in an ordered store: the methods that delegate to it, and
the *mark*, the entry that identifies the layout.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from millstream.model import TaskId
from millstream.stores.store_base import OrderedBytesStore, value_of

__all__ = ["MARK", "LaidOutStore", "Local"]

_log = logging.getLogger(__name__)

MARK = b"\xff\xff\xff\xff\xff\xff\xff\xffmillstream.segments"
"""The key of the mark. No other key of any layout starts with it."""

Local = tuple[bytes, bytes | None, int]
"""An entry to put into or delete from the inner store: key, value, timestamp."""


class LaidOutStore:
    """One task's part of a store, in a key-value store of bytes that is used for nothing else."""

    def __init__(self, inner: OrderedBytesStore) -> None:
        self._inner = inner
        self._writing = threading.Lock()
        if hasattr(inner, "properties"):
            # RocksDB's figures, for the metrics. A store in memory has none, and must not appear to.
            self.properties: Callable[[], Mapping[str, int]] = inner.properties

    def _recovered(self, is_ours: Callable[[bytes], bool], before: str) -> bytes | None:
        """The stored mark, if it has this layout; contents in another layout, or without a mark, are wiped.

        Args:
            is_ours: whether a mark's value belongs to this layout.
            before: what the store was before, for the log.
        """
        marked = self._inner.get(MARK)
        if marked is not None and is_ours(value_of(marked)):
            return marked
        if marked is not None or self._inner.position is not None:
            _log.warning(
                "store '%s' of task %s %s; it is wiped, and restored from its changelog",
                self._inner.name,
                self._inner.task_id,
                before,
            )
            self._inner.wipe()
        return None

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def task_id(self) -> TaskId:
        return self._inner.task_id

    @property
    def is_open(self) -> bool:
        return self._inner.is_open

    @property
    def position(self) -> int | None:
        """The changelog offset up to which this store is complete; None if nothing was ever applied."""
        return self._inner.position

    def close(self) -> None:
        """Release all resources, including iterators. Idempotent."""
        self._inner.close()
