"""The common part of all store handles: they turn a method's arguments into a `Read`, and a reader's answer
into the user's objects. The reader reads the stores on this client (local.py), or queries another process
(remote/store.py).
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from millstream.display import block, note, table, title
from millstream.errors import InvalidStateStoreException, StreamsException
from millstream.query.iterators import EntryViews, KeyValueIterator
from millstream.query.read import Read, ResultForm
from millstream.query.store_codecs import Codecs
from millstream.stores.store_base import ClosedStoreError

if TYPE_CHECKING:
    from millstream.query.store_tables import OpenTable

__all__ = ["StoreHandle", "StoreReader"]

K = TypeVar("K")
V = TypeVar("V")

_log = logging.getLogger(__name__)

_SHOWN = 10
"""The number of entries that a notebook shows."""


class StoreReader(Protocol):
    """Answers reads of one store. Thread-safe.

    Attributes:
        of: the settings of all its reads: the store, its kind, and optionally a partition, staleness and a
            time.
        deprecates_milliseconds: whether times as numbers are deprecated, as in Kafka Streams.
    """

    deprecates_milliseconds: bool

    @property
    def of(self) -> Read: ...

    @property
    def codecs(self) -> Codecs:
        """How keys and values are written and read."""

    def get(self, key: Any) -> Any:
        """The value of a key of a key-value store, in the fastest way."""

    def answer(self, read: Read) -> Any:
        """The result of a read, as `reading.of_part` documents it; an iterator's entries as a
        `merged.Source`."""

    def as_of(self, at_ms: int) -> StoreReader:
        """A reader of the same store as of a point in time."""

    def table(self) -> OpenTable:
        """All entries, as a table."""

    def lost(self, error: ClosedStoreError) -> Exception:
        """The exception of an open iterator whose store was closed."""

    def check(self) -> None:
        """Raise what a read would raise, unless at least one requested part can be read."""

    def described(self) -> str:
        """The store, described in words."""


class StoreHandle(EntryViews[K, V]):
    """One store. `K` is the key type of its iterators.

    Raises, from every read of the stores on this client:
        StreamsRebalancingException: a partition that it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: a partition that it read before has left this client; get a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the requested partition is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: the files on disk are damaged or cannot be read.
    """

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._of = reader.of
        self._name = reader.of.store

    def approximate_num_entries(self) -> int:
        """The approximate number of entries here; too high until updates are compacted."""
        count: int = self._reader.answer(replace(self._of, form=ResultForm.COUNT))
        return count

    def check(self) -> None:
        """Raise what a read would raise, unless at least one requested part can be read."""
        self._reader.check()

    def __repr__(self) -> str:
        head = f"{type(self).__name__} '{self._name}'"
        try:
            return f"<{head} {self._reader.described()}>"
        except InvalidStateStoreException as error:
            return f"<{head}, not readable now: {type(error).__name__}>"

    def _repr_html_(self) -> str:
        """The notebook display: the first entries, with a column for each field."""
        from millstream.query.store_tables import first_rows

        kind = f"{self._of.kind.value} store"
        try:
            opened, columns = self._table()
            try:
                first = first_rows(opened, columns, _SHOWN + 1)
            finally:
                opened.close()
        except (ClosedStoreError, StreamsException) as error:
            return block(title(kind, self._name), note(f"{type(error).__name__}: {error}"))
        rows = list(zip(*(column.to_pylist() for column in first.columns), strict=True))
        more = f"the first {_SHOWN}; to_pandas() has all" if len(rows) > _SHOWN else ""
        shown = table(first.column_names, rows[:_SHOWN], more) if rows else note("It is empty.")
        return block(title(kind, self._name), shown)

    # --- reading -----------------------------------------------------------------------------------------

    def _value(self, read: Read) -> tuple[bool, V | None]:
        """The value, and whether there is one."""
        stored = self._reader.answer(replace(read, form=ResultForm.VALUE))
        return stored is not None, None if stored is None else self._reader.codecs.decode(stored)

    def _entries(
        self, read: Read, kind: type[KeyValueIterator[Any, V]] = KeyValueIterator, *, starts: bool = False
    ) -> Any:
        """An iterator over a range; with `starts`, its keys are the starts of windows."""
        reader = self._reader
        chunks = reader.codecs.chunks(starts=starts)
        return kind(self._name, reader.answer(read), chunks, reader.lost)

    def _table(self) -> tuple[OpenTable, list[str]]:
        from millstream.query.store_tables import columns_of

        timestamped = self._reader.codecs.timestamped
        columns = [name for name in columns_of(self._of.kind) if name != "timestamp" or timestamped]
        return self._reader.table(), columns

    def _table_lost(self, error: ClosedStoreError) -> Exception:
        return self._reader.lost(error)

    # --- creating reads ----------------------------------------------------------------------------------

    def _of_key(self, key: Any, method: str) -> Read:
        """A read of this key; `method` is the calling method."""
        return replace(self._of, key=self._reader.codecs.key_bytes(key, f"{method}()"))

    def _of_range(self, from_: Any, to: Any, method: str, *, reverse: bool) -> Read:
        """A read of the keys in a range; None leaves that side open."""
        codecs = self._reader.codecs
        low = None if from_ is None else codecs.key_bytes(from_, f"{method}()")
        high = None if to is None else codecs.key_bytes(to, f"{method}()")
        if low is not None and high is not None and low > high:
            _log.warning(
                "store '%s': the range of %s() is empty, because its first key comes after its last one in "
                "the order of their bytes, in which negative numbers come after positive ones",
                self._name,
                method,
            )
        return replace(self._of, low=low, high=high, reverse=reverse)
