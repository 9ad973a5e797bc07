"""One read of a store, as a value that every reader of a store builds. Pure.

A read has keys as the store's bytes, and times in milliseconds since the epoch. None leaves a side open, and
bounds are inclusive unless stated otherwise. Only `reading.py` answers it. `remote/routes.py` writes and
parses it as the URL of an HTTP request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from millstream.model import StoreKind
from millstream.query.position import Position

__all__ = ["Order", "Read", "ResultForm", "after_prefix", "checked_name", "of_prefix", "remaining"]

Order = tuple[bytes, int, int]
"""An entry's place in the order: key; key and start; or key, end and start. Missing parts are 0."""


class ResultForm(Enum):
    """The kind of result of a read."""

    VALUE = "value"
    """The stored value of a key or, in a window or session store, of one window of it."""
    VALUES = "values"
    """The stored value of each of many keys."""
    ENTRIES = "entries"
    """The entries of a range, in order; in window and session stores, of one key or of several."""
    VERSIONS = "versions"
    """The values of a key at any moment of a span of time, newest first. With limit 1, its value at the time
    `as_of`, or now.
    """
    COUNT = "count"
    """The approximate number of entries."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of one store.

    Attributes:
        key: the single key to read. `keys`: the keys of VALUES.
        low, high: a range of keys, which includes `high` if `high_included`.
        earliest, latest: for windows, the range of starts; for sessions, the earliest end and the latest
            start; for VERSIONS, the span.
        start, end: the window or session of a VALUE.
        reverse: last entry first.
        limit: the maximum number of entries.
        after: only entries after this place in the order.
        partition: the only partition to read; None for all here.
        stale: whether standbys and stores that are still being restored are acceptable.
        bound: the minimum position of a partition.
        as_of: for stores with history, the time as of which they are read.
    """

    store: str
    kind: StoreKind = StoreKind.KEY_VALUE
    form: ResultForm = ResultForm.ENTRIES
    key: bytes | None = None
    keys: tuple[bytes, ...] = ()
    low: bytes | None = None
    high: bytes | None = None
    high_included: bool = True
    earliest: int | None = None
    latest: int | None = None
    start: int | None = None
    end: int | None = None
    reverse: bool = False
    limit: int | None = None
    after: Order | None = None
    partition: int | None = None
    stale: bool = False
    bound: Position | None = None
    as_of: int | None = None

    @property
    def span(self) -> tuple[bytes | None, bytes | None]:
        """The first and last key of the range; for a single key, that key twice."""
        return (self.low, self.high) if self.key is None else (self.key, self.key)

    @property
    def is_empty(self) -> bool:
        """Whether the range is empty because it starts after its end. (For sessions, the earliest end may be
        after the latest start.)
        """
        low, high = self.span
        if low is not None and high is not None and low > high:
            return True
        return (
            self.kind is StoreKind.WINDOW
            and self.earliest is not None
            and self.latest is not None
            and self.earliest > self.latest
        )


def checked_name(store: Any) -> str:
    """A store's name.

    Raises:
        TypeError: it is not a string, or is empty.
    """
    if not isinstance(store, str) or not store:
        raise TypeError(f"a store name must be a non-empty str; got {store!r}")
    return store


def of_prefix(read: Read, prefix: bytes) -> Read:
    """The same for the keys with this prefix."""
    return replace(read, low=prefix, high=after_prefix(prefix), high_included=False)


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key greater than every key with this prefix; None if there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def remaining(read: Read) -> Sequence[Read]:
    """The rest of a range after `read.after`, perhaps with some entries before that place.

    It is never outside the range, whatever the place. A key may have very many windows, so those of earlier
    pages are not read again, except those of one key when many keys are read backwards.
    """
    if read.after is None:
        return (read,)
    key, time, _ = read.after
    low, high = read.span
    read = replace(read, after=None)
    if low is not None and low == high == key and read.kind is not StoreKind.KEY_VALUE:
        return (_within_key(read, time),)
    if read.key is not None:
        return (read,)
    if read.reverse:
        if high is not None and high <= key:
            return (read,)
        return (replace(read, high=key, high_included=True),)
    if read.kind is StoreKind.KEY_VALUE:
        return (replace(read, low=key if low is None else max(low, key)),)
    following = key + b"\0"
    beyond = replace(read, low=following if low is None else max(low, following))
    if (low is not None and key < low) or (high is not None and key > high):
        return (beyond,)
    return (_within_key(replace(read, low=key, high=key), time), beyond)


def _within_key(read: Read, time: int) -> Read:
    """The rest of a key from a time on: the start of windows, or the end of sessions, which orders them."""
    if read.reverse:  # a session that has ended by then has also started by then
        return replace(read, latest=time if read.latest is None else min(read.latest, time))
    return replace(read, earliest=time if read.earliest is None else max(read.earliest, time))
