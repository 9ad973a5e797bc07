"""What a range of a store gives: an iterator that one can look ahead in, and that one closes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, TypeVar

from millstream.errors import IllegalStateException
from millstream.model import KeyValue
from millstream.stores.api import ClosedStoreError

__all__ = ["EntryViews", "KeyValueIterator", "WindowStoreIterator"]

K = TypeVar("K")
V = TypeVar("V")

_new_key_value = tuple.__new__


class KeyValueIterator(Iterator[KeyValue[K, V]], Generic[K, V]):
    """Entries of a store as they were when the query was made, in the order of their keys' bytes.

    A Python iterator and a context manager; close it, or read it to its end. Used by one thread at a time.

        with store.range("a", "c") as entries:
            for key, value in entries: ...

    Raises, from every read:
        IllegalStateException: it was closed.
        StateStoreMigratedException: its store has left this client.
        StateStoreNotAvailableException: the client is stopping or has stopped.

    Source: org.apache.kafka.streams.state.KeyValueIterator.
    Differs: `next` and `peek_next_key` raise StopIteration at the end, as Python's iterators do.
    """

    __slots__ = (
        "_closed",
        "_decode_key",
        "_decode_value",
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
    ) -> None:
        self._store = store
        self._entries = entries
        self._sources = sources
        self._decode_key = decode_key
        self._decode_value = decode_value
        self._on_closed_store = on_closed_store
        self._peeked: KeyValue[K, V] | None = None
        self._closed = False

    def __next__(self) -> KeyValue[K, V]:
        if self._peeked is not None:
            peeked, self._peeked = self._peeked, None
            return peeked
        try:
            key, stored = next(self._entries)
        except ClosedStoreError as error:
            raise self._lost(error) from error
        return _new_key_value(KeyValue, (self._decode_key(key), self._decode_value(stored)))

    def next(self) -> KeyValue[K, V]:
        """The next entry.

        Raises:
            StopIteration: there are no more.
        """
        return next(self)

    def has_next(self) -> bool:
        """Whether there is another entry."""
        if self._peeked is None:
            try:
                self._peeked = next(self)
            except StopIteration:
                return False
        return True

    def peek_next_key(self) -> K:
        """The key of the next entry, which stays the next.

        Raises:
            StopIteration: there are no more.
        """
        if self._peeked is None:
            self._peeked = next(self)
        return self._peeked.key

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


class _Raises(Iterator[tuple[Any, bytes]]):
    """No entries any more, and why."""

    __slots__ = ("_error",)

    def __init__(self, error: Callable[[], Exception]) -> None:
        self._error = error

    def __next__(self) -> tuple[Any, bytes]:
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
