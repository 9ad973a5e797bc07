"""The result of a range read: an iterator with look-ahead, which the caller closes."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from importlib.util import find_spec
from itertools import chain
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from millstream.coroutines import awaitable, for_coroutines, run
from millstream.errors import IllegalStateException, SetupException
from millstream.model import KeyValue
from millstream.query.ahead import Ahead
from millstream.query.merged import Blocks
from millstream.query.store_codecs import Chunk
from millstream.stores.store_base import ClosedStoreError, Held

if TYPE_CHECKING:
    import pyarrow

    from millstream.query.store_tables import OpenTable

__all__ = ["AsyncKeyValueIterator", "EntryViews", "KeyValueIterator", "WindowStoreIterator", "iterable_async"]

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")


class KeyValueIterator(Iterator[KeyValue[K, V]], Generic[K, V]):
    """A snapshot of a store's entries at the time of the query, ordered by their keys' bytes.

    A Python iterator and a context manager: close it, or read it to the end. Not thread-safe. A `for` loop
    and the methods take entries from the same place, so they can be mixed.

        with store.range("a", "c") as entries:
            for key, value in entries: ...

    When a store that it reads is closed, because its task has left or the client stops, entries read ahead
    are discarded. From then on, `next`, `has_next` and `peek_next_key` raise the same exception each time. An
    iterator of a RemoteStore reads another process's store in pages: it returns the rest of the page that it
    has, and raises when it needs the next one.

    Raises, from every read:
        IllegalStateException: the iterator was closed.
        StateStoreMigratedException: the store has left this client.
        StateStoreNotAvailableException: the client is stopping or has stopped.

    Source: org.apache.kafka.streams.state.KeyValueIterator.
    Differs: `next` and `peek_next_key` raise StopIteration at the end, as Python's iterators do.
    """

    __slots__ = ("_ahead", "_closed", "_closed_stores", "_decode", "_on_closed_store", "_source", "_store")

    def __init__(
        self,
        store: str,
        source: Blocks,
        chunk: Chunk,
        on_closed_store: Callable[[ClosedStoreError], Exception],
    ) -> None:
        self._store = store
        self._source: Blocks = source
        self._decode = chunk
        self._on_closed_store = on_closed_store
        self._closed = False
        self._ahead = Ahead()
        self._closed_stores: list[str] = []
        """The stores that were closed. When one is, what was read ahead is cleared."""
        source.report_close(self._closed_stores, self._ahead)

    def __iter__(self) -> Iterator[KeyValue[K, V]]:
        """The rest of the entries, for a loop: it takes them from this iterator, so both can be used."""
        return chain.from_iterable(iter(self._some, None))

    def _some(self) -> Iterator[KeyValue[K, V]]:
        """What was read ahead, or more of it.

        Raises:
            StopIteration: there are no more.
        """
        try:
            if not self._ahead:
                self._read_ahead()
        except StopIteration:
            raise
        except Exception as error:  # raised by what is returned: `chain` takes an error here for its end
            return _Failed(error, self.__next__)
        return self._ahead.entries

    def __next__(self) -> KeyValue[K, V]:
        while (entry := next(self._ahead.entries, None)) is None:
            self._read_ahead()
        return entry  # type: ignore[no-any-return]

    def _next_key(self) -> K:
        while True:
            try:
                return self._ahead.next_key()  # type: ignore[no-any-return]
            except IndexError:
                pass
            self._read_ahead()

    def _read_ahead(self) -> None:
        try:
            block = self._source.block()
            if block:
                self._ahead.put(self._decode(block))
            if self._closed_stores:  # perhaps before they were put there
                raise ClosedStoreError(self._closed_stores[0])
        except ClosedStoreError as error:
            raise self._lost(error) from error
        if not block:
            raise StopIteration

    def next(self) -> KeyValue[K, V]:
        """The next entry.

        Raises:
            StopIteration: there are no more.
        """
        return next(self)

    def has_next(self) -> bool:
        """Whether there is another entry."""
        try:
            self._next_key()
        except StopIteration:
            return False
        return True

    @property
    def has_read_ahead(self) -> bool:
        """Whether the next entry was read ahead, so taking it reads nothing."""
        return bool(self._ahead)

    def peek_next_key(self) -> K:
        """The key of the next entry, without consuming it.

        Raises:
            StopIteration: there are no more.
        """
        return self._next_key()

    def close(self) -> None:
        """Release the store's resources. Idempotent."""
        if not self._closed:
            self._closed = True
            self._release(self._already_closed)

    def _lost(self, error: ClosedStoreError) -> Exception:
        """The store was closed during the iteration: every further read raises the same exception."""
        translated = self._on_closed_store(error)

        def raise_again() -> Exception:
            return translated

        self._release(raise_again)
        return translated

    def _release(self, error: Callable[[], Exception]) -> None:
        self._source.close()
        self._source = _Ended(error)
        self._ahead.clear()
        self._closed_stores = []

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
    """The same entries for coroutines: the store is opened and read on a thread, not on the event loop.

        async for key, value in store.range_async("a", "c"): ...

    To leave the loop early, use `async with`, which closes the iterator:

        async with store.range_async("a", "c") as entries:
            async for key, value in entries: ...

    Raises the exceptions of `KeyValueIterator`, at the first entry or later. Use it from one task at a time.
    """

    __slots__ = ("_closed", "_entries", "_lock", "_open", "_thread")

    def __init__(self, open: Callable[[], KeyValueIterator[K, V]], thread: str | None = None) -> None:
        self._open = open
        self._thread = thread
        self._entries: KeyValueIterator[K, V] | None = None
        self._lock = threading.Lock()
        """One call at a time, because a call continues even if the task that made it is cancelled."""
        self._closed = False

    def __aiter__(self) -> AsyncKeyValueIterator[K, V]:
        return self

    async def __anext__(self) -> KeyValue[K, V]:
        entries = self._entries
        if entries is None or not entries.has_read_ahead:
            entries = await run(self._with_next, thread=self._thread)
            if entries is None:
                raise StopAsyncIteration
        return next(entries)

    async def aclose(self) -> None:
        """Release the store's resources. Idempotent."""
        self._closed = True
        await run(self._close, thread=self._thread)

    def _with_next(self) -> KeyValueIterator[K, V] | None:
        """The iterator, with an entry read ahead; None if there are no more."""
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
    method: Callable[P, KeyValueIterator[K, V]], thread: str | None = None
) -> Callable[P, AsyncKeyValueIterator[K, V]]:
    """The same method for coroutines: its result works with `async for`. `thread`: as of `coroutines.run`."""

    @wraps(method)
    def method_async(*arguments: P.args, **named: P.kwargs) -> AsyncKeyValueIterator[K, V]:
        return AsyncKeyValueIterator(partial(method, *arguments, **named), thread)

    return for_coroutines(method, method_async, "iterate with `async for`")


class _Ended:
    """`Blocks` without entries, and the reason."""

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def report_close(self, closed: list[str], held: Held) -> None:
        """Has no effect: there are no entries."""

    def block(self) -> list[Any]:
        raise self._error()

    def close(self) -> None:
        """It holds nothing."""


class _Failed(Iterator[Any]):
    """Raises an error, and then goes on with `then`."""

    def __init__(self, error: Exception, then: Callable[[], Any]) -> None:
        self._error: Exception | None = error
        self._then = then

    def __next__(self) -> Any:
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._then()


class EntryViews(ABC, Generic[K, V]):
    """Methods built on all of a store's entries, for a local store and for one queried over HTTP."""

    @abstractmethod
    def all(self) -> KeyValueIterator[K, V]:
        """Every entry."""

    def __iter__(self) -> Iterator[K]:
        return self.keys()

    def keys(self) -> Iterator[K]:
        """Every key, in order."""
        with self.all() as entries:
            yield from map(itemgetter(0), entries)

    def values(self) -> Iterator[V]:
        """Every value, in the order of the keys."""
        with self.all() as entries:
            yield from map(itemgetter(1), entries)

    def items(self) -> KeyValueIterator[K, V]:
        """Every entry; the same as `all()`."""
        return self.all()

    # --- tables ------------------------------------------------------------------------------------------

    @abstractmethod
    def _table(self) -> tuple[OpenTable, list[str]]:
        """The store as it is now, opened, and its columns."""

    @abstractmethod
    def _table_lost(self, error: ClosedStoreError) -> Exception:
        """The exception when a store is closed while its table is read."""

    def to_arrow(self) -> pyarrow.Table:
        """Every entry as an Arrow table with the columns `key`, `value` (and `timestamp`); for windows and
        sessions also `window_start` and `window_end`.

        Types follow the serdes; dicts become structs, or JSON text if they have no common shape.
        """
        from millstream.query.store_tables import to_table

        table, columns = self._table()
        try:
            return to_table(table, columns)
        except ClosedStoreError as error:
            raise self._table_lost(error) from error
        finally:
            table.close()

    def to_pandas(self) -> Any:
        """Every entry as a pandas DataFrame, with the columns of `to_arrow()`.

        Each field of a key or value gets its own column: `value.amount`, `value.address.city`. For dicts, use
        `to_arrow().to_pandas()`.

        Raises:
            SetupException: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise SetupException(
                "to_pandas() needs pandas: pip install 'millstream[pandas]'; to_arrow() does not"
            )
        from millstream.query.store_tables import flat

        return flat(self.to_arrow()).to_pandas()

    to_arrow_async = awaitable(to_arrow, "millstream-async-table")
    to_pandas_async = awaitable(to_pandas, "millstream-async-table")

    def to_arrow_batches(self, rows: int = 65_536) -> pyarrow.RecordBatchReader:
        """The columns of `to_arrow()` in batches of up to `rows` rows, one batch in memory at a time.

        A snapshot, like an iterator: read it to the end, or drop it (its `close()` releases nothing). If no
        serde determines a type, the first batch does; later values that do not fit raise
        SerializationException.

        Raises:
            ValueError: `rows` is less than 1.
        """
        from millstream.query.store_tables import record_batches

        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"rows must be at least 1; got {rows!r}")
        table, columns = self._table()
        try:
            return record_batches(table, columns, rows, self._table_lost)
        except BaseException:
            table.close()
            raise

    def to_spark(self, session: Any) -> Any:
        """Every entry as a Spark DataFrame, with the columns of `to_arrow()`.

        Args:
            session: a SparkSession. The DataFrame is a copy: later updates of the store are not in it.

        Raises:
            TypeError: `session` is not a SparkSession.
        """
        create = getattr(session, "createDataFrame", None)
        if create is None:
            raise TypeError(f"to_spark() takes a SparkSession, not {session!r}")
        return create(self.to_arrow())
