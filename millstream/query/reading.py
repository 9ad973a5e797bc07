"""The results of a read: `of_part` for one part of a store, `joined` for several parts together.

A part is one partition's store. Other modules decide which parts can be read, or which exception to raise
(read_plan.py, state_query.py). Everything is in bytes here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from millstream.model import StoreKind
from millstream.query.merged import in_one_order
from millstream.query.read import Read, ResultForm
from millstream.stores.keys import MAX_TIME_MS

__all__ = ["getter", "joined", "of_part"]


def of_part(store: Any, read: Read) -> Any:
    """The result of one part. VALUE: timestamp and value, or None. VALUES: one of these for each key.
    ENTRIES: an open iterator. VERSIONS: a list. COUNT: a number.

    Raises:
        ClosedStoreError: the part is closed.
        ValueError: the time is older than the store's history.
    """
    match read.form, read.kind:
        case ResultForm.VALUE, StoreKind.KEY_VALUE:
            return getter(store, read)(read.key)
        case ResultForm.VALUE, StoreKind.WINDOW:
            return store.fetch_one(read.key, read.start)
        case ResultForm.VALUE, StoreKind.SESSION:
            return store.fetch_session(read.key, read.start, read.end)
        case ResultForm.VALUES, _:
            if read.as_of is None:
                return store.multi_get(read.keys)
            return [store.get_as_of(key, read.as_of) for key in read.keys]
        case ResultForm.ENTRIES, kind:
            return _SCANS[kind](store, read)
        case ResultForm.COUNT, _:
            return store.approximate_num_entries()
        case ResultForm.VERSIONS, _:
            if read.limit != 1:
                return store.versions(read.key, read.earliest, read.latest)
            version = store.version(read.key, read.as_of)
            return [] if version is None else [version]
    raise ValueError(f"a {read.kind.value} store has no {read.form.value}")


def getter(store: Any, read: Read) -> Any:
    """The function that finds the value of a key in a part of a key-value store."""
    return store.get if read.as_of is None else partial(store.get_as_of, at_ms=read.as_of)


def joined(read: Read, found: Sequence[Any]) -> Any:
    """The combined result of several parts: the first VALUE found; all entries in one order."""
    match read.form:
        case ResultForm.VALUE:
            return next((each for each in found if each is not None), None)
        case ResultForm.VALUES:
            return [
                next((each for each in of_key if each is not None), None)
                for of_key in zip(*found, strict=True)
            ]
        case ResultForm.ENTRIES:
            return in_one_order(found, read.kind, reverse=read.reverse)
        case ResultForm.COUNT:
            return sum(found)
        case ResultForm.VERSIONS:
            versions = [each for of_part in found for each in of_part]
            return versions[::-1] if read.reverse else versions


def _entries(store: Any, read: Read) -> Any:
    (low, high), included = read.span, read.high_included
    if read.is_empty:  # the store still reports whether it can be read
        high, included = low, False
    if read.as_of is None:
        return store.range(low, high, reverse=read.reverse, end_inclusive=included)
    return store.range_as_of(low, high, read.as_of, reverse=read.reverse, end_inclusive=included)


def _windows(store: Any, read: Read) -> Any:
    if read.is_empty:
        return store.fetch(None, None, 1, 0, reverse=read.reverse)
    return store.fetch(*read.span, read.earliest, read.latest, reverse=read.reverse)


def _sessions(store: Any, read: Read) -> Any:
    if read.is_empty:
        return store.find(None, None, MAX_TIME_MS + 1, None, reverse=read.reverse)
    return store.find(*read.span, read.earliest, read.latest, reverse=read.reverse)


_SCANS = {StoreKind.KEY_VALUE: _entries, StoreKind.WINDOW: _windows, StoreKind.SESSION: _sessions}
