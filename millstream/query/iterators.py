"""What a range of a store gives: an iterator that one can look ahead in, and that one closes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial, wraps
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from millstream.coroutines import awaitable, run
from millstream.errors import IllegalStateException, SetupException
from millstream.model import KeyValue
from millstream.query.codec import Chunk, Unfit
from millstream.query.merged import Source
from millstream.stores.api import ClosedStoreError

if TYPE_CHECKING:
    import pyarrow

    from millstream.query.tables import OpenTable

__all__ = ["AsyncKeyValueIterator", "EntryViews", "KeyValueIterator", "WindowStoreIterator", "iterable_async"]

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")


class KeyValueIterator(Iterator[KeyValue[K, V]], Generic[K, V]):
    """Entries of a store as they were when the query was made, in the order of their keys' bytes.

    A Python iterator and a context manager; close it, or read it to its end. Used by one thread at a time.

        with store.range("a", "c") as entries:
            for key, value in entries: ...

    Once a store that it reads is closed, because its task has left or the client ends, nothing of what was
    read ahead is given any more: `next`, `has_next` and `peek_next_key` raise at once, the same each time.
    An iterator of a RemoteStore reads pages of another process's store: what is in a page that has come
    is given; the next page raises.

    Raises, from every read:
        IllegalStateException: it was closed.
        StateStoreMigratedException: its store has left this client.
        StateStoreNotAvailableException: the client is stopping or has stopped.

    Source: org.apache.kafka.streams.state.KeyValueIterator.
    Differs: `next` and `peek_next_key` raise StopIteration at the end, as Python's iterators do.
    """

    __slots__ = ("_ahead", "_closed", "_on_closed_store", "_source", "_store")

    def __init__(
        self,
        store: str,
        source: Source,
        chunk: Chunk,
        on_closed_store: Callable[[ClosedStoreError], Exception],
    ) -> None:
        self._store = store
        self._source: Source = source
        self._on_closed_store = on_closed_store
        self._closed = False
        source.through(chunk)
        # What was read ahead; whoever closes a store that it comes from empties it.
        self._ahead = source.ahead

    def __next__(self) -> KeyValue[K, V]:
        while True:
            try:
                entry: Any = self._ahead.popleft()
            except IndexError:
                self._read_ahead()
                continue
            if entry.__class__ is Unfit:
                raise entry.error
            return entry  # type: ignore[no-any-return]

    def _peek(self) -> KeyValue[K, V]:
        """The next entry, which stays the next."""
        while True:
            try:
                entry: Any = self._ahead[0]
                if entry.__class__ is not Unfit:
                    return entry  # type: ignore[no-any-return]
                self._ahead.popleft()
            except IndexError:
                self._read_ahead()
                continue
            raise entry.error

    def _read_ahead(self) -> None:
        try:
            self._source.fill()
        except ClosedStoreError as error:
            raise self._lost(error) from error

    def next(self) -> KeyValue[K, V]:
        """The next entry.

        Raises:
            StopIteration: there are no more.
        """
        return next(self)

    def has_next(self) -> bool:
        """Whether there is another entry."""
        try:
            self._peek()
        except StopIteration:
            return False
        return True

    @property
    def has_read_ahead(self) -> bool:
        """Whether the next entry is here already, so that taking it reads nothing."""
        return bool(self._ahead)

    def peek_next_key(self) -> K:
        """The key of the next entry, which stays the next.

        Raises:
            StopIteration: there are no more.
        """
        return self._peek().key

    def close(self) -> None:
        """Release what it holds of the store. Idempotent."""
        if not self._closed:
            self._closed = True
            self._release(self._already_closed)

    def _lost(self, error: ClosedStoreError) -> Exception:
        """The store was closed under it: from now on every read raises the same."""
        translated = self._on_closed_store(error)

        def raise_again() -> Exception:
            return translated

        self._release(raise_again)
        return translated

    def _release(self, error: Callable[[], Exception]) -> None:
        self._source.close()
        self._source = _Ended(error)
        self._ahead = self._source.ahead

    def _already_closed(self) -> Exception:
        return IllegalStateException(f"Iterator for store {self._store} has already been closed.")

    def __enter__(self) -> KeyValueIterator[K, V]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of store '{self._store}'{', closed' if self._closed else ''}>"


class WindowStoreIterator(KeyValueIterator[int, V]):
    """One key's windows: (start in milliseconds since the epoch, value), first window first or last first.

    Source: org.apache.kafka.streams.state.WindowStoreIterator.
    """

    __slots__ = ()


class AsyncKeyValueIterator(AsyncIterator[KeyValue[K, V]], Generic[K, V]):
    """The same entries for coroutines: a store is opened and read on a thread, and not on the event loop.

        async for key, value in store.range_async("a", "c"): ...

    Leave the loop early within `async with`, which closes it:

        async with store.range_async("a", "c") as entries:
            async for key, value in entries: ...

    It raises what a `KeyValueIterator` raises, when the first entry is asked for or later. Used by one task
    at a time.
    """

    __slots__ = ("_closed", "_entries", "_lock", "_open")

    def __init__(self, open: Callable[[], KeyValueIterator[K, V]]) -> None:
        self._open = open
        self._entries: KeyValueIterator[K, V] | None = None
        self._lock = threading.Lock()
        """One call at a time: one goes on after the task that made it was cancelled."""
        self._closed = False

    def __aiter__(self) -> AsyncKeyValueIterator[K, V]:
        return self

    async def __anext__(self) -> KeyValue[K, V]:
        entries = self._entries
        if entries is None or not entries.has_read_ahead:
            entries = await run(self._with_next)
            if entries is None:
                raise StopAsyncIteration
        return next(entries)

    async def aclose(self) -> None:
        """Release what it holds of the store. Idempotent."""
        self._closed = True
        await run(self._close)

    def _with_next(self) -> KeyValueIterator[K, V] | None:
        """The iterator, with an entry read ahead; None: there are no more."""
        with self._lock:
            if self._entries is None:
                if self._closed:
                    raise IllegalStateException("the iterator was closed before it was read")
                self._entries = self._open()
            return self._entries if self._entries.has_next() else None

    def _close(self) -> None:
        with self._lock:
            if self._entries is not None:
                self._entries.close()

    async def __aenter__(self) -> AsyncKeyValueIterator[K, V]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def iterable_async(
    method: Callable[P, KeyValueIterator[K, V]],
) -> Callable[P, AsyncKeyValueIterator[K, V]]:
    """The same method for coroutines: what it returns is for `async for`."""

    @wraps(method)
    def method_async(*arguments: P.args, **named: P.kwargs) -> AsyncKeyValueIterator[K, V]:
        return AsyncKeyValueIterator(partial(method, *arguments, **named))

    method_async.__name__ = f"{method.__name__}_async"
    method_async.__qualname__ = f"{method.__qualname__}_async"
    method_async.__doc__ = f"`{method.__name__}` for coroutines: `async for` goes through it."
    return method_async


class _Ended:
    """A `Source` without entries, and why."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self.ahead: deque[Any] = deque()
        self._error = error

    def through(self, make: Callable[[list[Any]], Iterable[Any]]) -> None:
        """Nothing comes through it."""

    def fill(self) -> None:
        raise self._error()

    def close(self) -> None:
        """It holds nothing."""

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        raise self._error()


class EntryViews(ABC, Generic[K, V]):
    """What follows from all of a store's entries, for a store here and for one that is asked over HTTP."""

    @abstractmethod
    def all(self) -> KeyValueIterator[K, V]:
        """Every entry."""

    def __iter__(self) -> Iterator[K]:
        return self.keys()

    def keys(self) -> Iterator[K]:
        """Every key, in order."""
        with self.all() as entries:
            for key, _ in entries:
                yield key

    def values(self) -> Iterator[V]:
        """Every value, in the order of the keys."""
        with self.all() as entries:
            for _, value in entries:
                yield value

    def items(self) -> KeyValueIterator[K, V]:
        """Every entry; the same as `all()`."""
        return self.all()

    # --- tables ------------------------------------------------------------------------------------------

    @abstractmethod
    def _table(self) -> tuple[OpenTable, list[str]]:
        """The store as it is now, opened, and the columns that it has."""

    @abstractmethod
    def _table_lost(self, error: ClosedStoreError) -> Exception:
        """What is raised when a table's store is closed while it is read."""

    def to_arrow(self) -> pyarrow.Table:
        """Every entry as an Arrow table with the columns `key`, `value` (and `timestamp`); of windows and
        sessions also `window_start` and `window_end`.

        Types follow the serdes; values that are dicts become structs, or JSON text where they have no
        common shape.
        """
        from millstream.query.tables import to_table

        table, columns = self._table()
        try:
            return to_table(table, columns)
        except ClosedStoreError as error:
            raise self._table_lost(error) from error
        finally:
            table.close()

    def to_pandas(self) -> Any:
        """Every entry as a pandas DataFrame, with the columns of `to_arrow()`.

        A key or value with fields has a column for each: `value.amount`, and `value.address.city`. The dicts
        are in `to_arrow().to_pandas()`.

        Raises:
            SetupException: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise SetupException(
                "to_pandas() needs pandas: pip install 'millstream[pandas]'; to_arrow() does not"
            )
        from millstream.query.tables import flat

        return flat(self.to_arrow()).to_pandas()

    to_arrow_async = awaitable(to_arrow, "millstream-async-table")
    to_pandas_async = awaitable(to_pandas, "millstream-async-table")

    def to_arrow_batches(self, rows: int = 65_536) -> pyarrow.RecordBatchReader:
        """The columns of `to_arrow()` in batches of up to so many rows, in memory one at a time.

        A snapshot, like an iterator: read it to its end, or drop it (its `close()` releases nothing). A type
        that no serde tells is that of the first batch; values of later ones that do not fit it raise
        SerializationException.

        Raises:
            ValueError: `rows` is not 1 or more.
        """
        from millstream.query.tables import record_batches

        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"a batch has 1 row or more, not {rows!r}")
        table, columns = self._table()
        try:
            return record_batches(table, columns, rows, self._table_lost)
        except BaseException:
            table.close()
            raise

    def to_spark(self, session: Any) -> Any:
        """Every entry as a Spark DataFrame, with the columns of `to_arrow()`.

        Args:
            session: a SparkSession. It gets a copy: what the store is given later is not in it.

        Raises:
            TypeError: it is no SparkSession.
        """
        create = getattr(session, "createDataFrame", None)
        if create is None:
            raise TypeError(f"to_spark() takes a SparkSession, not {session!r}")
        return create(self.to_arrow())
