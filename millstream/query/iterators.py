"""What a range of a store gives: an iterator that one can look ahead in, and that one closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from types import TracebackType
from typing import Any, Generic, TypeVar

from millstream.errors import IllegalStateException
from millstream.model import KeyValue
from millstream.stores.api import ClosedStoreError, StoreIterator

__all__ = ["EntryViews", "KeyValueIterator", "WindowStoreIterator"]

K = TypeVar("K")
V = TypeVar("V")

_new_key_value = tuple.__new__


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

    __slots__ = (
        "_ahead",
        "_closed",
        "_ended",
        "_entries",
        "_on_closed_store",
        "_peeked",
        "_sources",
        "_store",
    )

    def __init__(
        self,
        store: str,
        entries: Iterator[tuple[Any, bytes]],
        sources: list[Any],
        decode_key: Callable[[Any], K],
        decode_value: Callable[[bytes], V],
        on_closed_store: Callable[[ClosedStoreError], Exception],
        decode_keys: Callable[[Iterable[Any]], Iterable[K]] | None = None,
        decode_values: Callable[[Iterable[bytes]], Iterable[V]] | None = None,
    ) -> None:
        self._store = store
        self._sources = sources
        self._on_closed_store = on_closed_store
        self._peeked: KeyValue[K, V] | None = None
        self._closed = False
        self._entries: Iterator[Any] = entries
        # What was read ahead of one partition is in the store's own iterator, which the store empties when it
        # closes. Of several, and of remote ones, it is here and there, so whoever closes leaves word instead.
        self._ahead: deque[Any] | None = None
        self._ended: list[str] = []
        if isinstance(entries, StoreIterator):  # of one partition: decoded by chunks, which is quicker
            keys = decode_keys or partial(map, decode_key)
            values = decode_values or partial(map, decode_value)
            entries.through(_by_chunks(keys, values, decode_key, decode_value))
            self._ahead = entries.ahead
        else:
            self._entries = _one_by_one(entries, decode_key, decode_value)
            for source in sources:
                if isinstance(source, StoreIterator):
                    source.tell(self._ended)

    def __next__(self) -> KeyValue[K, V]:
        ahead = self._ahead
        if ahead is None:
            if self._peeked is not None or self._ended:
                peeked = self._peek_one_by_one()
                self._peeked = None
                return peeked
            try:
                return next(self._entries)  # type: ignore[no-any-return]
            except ClosedStoreError as error:
                raise self._lost(error) from error
        while True:
            try:
                entry: Any = ahead.popleft()
            except IndexError:
                self._read_ahead()
                continue
            if entry.__class__ is _Unfit:
                raise entry.error
            return entry  # type: ignore[no-any-return]

    def _peek(self) -> KeyValue[K, V]:
        """The next entry, which stays the next."""
        ahead = self._ahead
        if ahead is None:
            return self._peek_one_by_one()
        while True:
            try:
                entry: Any = ahead[0]
                if entry.__class__ is not _Unfit:
                    return entry  # type: ignore[no-any-return]
                ahead.popleft()
            except IndexError:
                self._read_ahead()
                continue
            raise entry.error

    def _peek_one_by_one(self) -> KeyValue[K, V]:
        if self._ended:
            error = ClosedStoreError(self._ended[0])
            raise self._lost(error) from error
        if self._peeked is None:
            try:
                self._peeked = next(self._entries)
            except ClosedStoreError as error:
                raise self._lost(error) from error
        return self._peeked

    def _read_ahead(self) -> None:
        try:
            self._sources[0].fill()
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
        for source in self._sources:
            source.close()
        self._sources = []
        self._peeked = None
        self._ahead = None
        self._ended = []
        self._entries = _Raises(error)

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


class _Unfit:
    """An entry that its serdes could not read; whoever comes to it is told why."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


def _by_chunks(
    decode_keys: Callable[[Iterable[Any]], Iterable[Any]],
    decode_values: Callable[[Iterable[bytes]], Iterable[Any]],
    decode_key: Callable[[Any], Any],
    decode_value: Callable[[bytes], Any],
) -> Callable[[list[Any]], list[Any]]:
    """What a chunk of stored entries is for the user; one by one where something in it is unfit."""

    def one(entry: tuple[Any, bytes]) -> Any:
        try:
            return KeyValue(decode_key(entry[0]), decode_value(entry[1]))
        except Exception as error:  # told when it is reached
            return _Unfit(error)

    def made(entries: list[Any]) -> list[Any]:
        if not entries:
            return entries
        keys, values = zip(*entries, strict=True)
        try:
            pairs = zip(decode_keys(keys), decode_values(values), strict=True)
            return list(map(_new_key_value, repeat(KeyValue), pairs))
        except Exception:
            return list(map(one, entries))

    return made


def _one_by_one(
    entries: Iterator[tuple[Any, bytes]],
    decode_key: Callable[[Any], Any],
    decode_value: Callable[[bytes], Any],
) -> Iterator[Any]:
    """The same for entries that come in another way, such as merged from several partitions."""

    def made(entry: tuple[Any, bytes]) -> Any:
        key, stored = entry
        return _new_key_value(KeyValue, (decode_key(key), decode_value(stored)))

    return map(made, entries)


class _Raises(Iterator[Any]):
    """No entries any more, and why."""

    __slots__ = ("_error",)

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __next__(self) -> Any:
        raise self._error()


class EntryViews(ABC, Generic[K, V]):
    """What follows from `all()`, for a store here and for one that is asked over HTTP."""

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
