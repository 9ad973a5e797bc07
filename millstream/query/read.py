"""What is read of a store, as one value, which everything that reads a store builds. Pure.

A read has keys in the store's bytes, and times in milliseconds since the epoch; None leaves a side open, and
all bounds are included unless it says otherwise. `reading.py` answers it, and nothing else does. As the
address of a question over HTTP it is written and parsed in `server/routes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from millstream.model import StoreKind
from millstream.query.position import Position

__all__ = ["Form", "Order", "Read", "after_prefix", "checked_name", "of_prefix", "remaining"]

Order = tuple[bytes, int, int]
"""Where an entry stands: key; key and start; key, end and start. What is missing is 0."""


class Form(Enum):
    """What comes of a read."""

    VALUE = "value"
    """What is stored for a key; of a window or session store, for one window of it."""
    VALUES = "values"
    """What is stored for each of many keys."""
    ENTRIES = "entries"
    """What is in a range, in order; of window and session stores, of one key or of several."""
    VERSIONS = "versions"
    """What a key had at any moment of a span of time, newest first; with the limit 1, what it had at the time
    `as_of`, or has.
    """
    COUNT = "count"
    """About how many entries there are."""


@dataclass(frozen=True, slots=True)
class Read:
    """One read of one store.

    Attributes:
        key: the only key it is about. `keys`: those of VALUES.
        low, high: a range of keys; `high` itself is in it if `high_included`.
        earliest, latest: of windows, when they start; of sessions, the earliest end and the latest start; of
            VERSIONS, the span.
        start, end: of the one window, or session, of a VALUE.
        reverse: last entry first.
        limit: how many entries at most. after: only what comes after this place in the order.
        partition: only this one; None: all that are here.
        stale: whether standbys, and what is still being restored, will do.
        bound: how far a partition has to be.
        as_of: of stores with history, the time as of which they are read.
    """

    store: str
    kind: StoreKind = StoreKind.KEY_VALUE
    form: Form = Form.ENTRIES
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
        """The first and the last key of the range; of one key, that one."""
        return (self.low, self.high) if self.key is None else (self.key, self.key)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be in the range: it begins after its end. (Of sessions, the earliest end may be
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
        TypeError: it is none.
    """
    if not isinstance(store, str) or not store:
        raise TypeError(f"a store name is a str that is not empty, not {store!r}")
    return store


def of_prefix(read: Read, prefix: bytes) -> Read:
    """The same, of the keys that begin so."""
    return replace(read, low=prefix, high=after_prefix(prefix), high_included=False)


def after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None


def remaining(read: Read) -> Sequence[Read]:
    """What is left to read of a range after `read.after`; perhaps with some entries before that place.

    Not from outside the range, whatever the place says. A key may have very many windows, and those of the
    pages before are not read again; but where many keys are read backwards, those of one key are.
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
    """From a time on: of windows their start, of sessions their end; which is the first of their order."""
    if read.reverse:  # a session that ends then or earlier has started then or earlier
        return replace(read, latest=time if read.latest is None else min(read.latest, time))
    return replace(read, earliest=time if read.earliest is None else max(read.earliest, time))
