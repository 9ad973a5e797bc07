"""The entries that an iterator has read ahead.

They are given by iterators in C, so a `for` loop over a million entries takes no Python step for each. An
entry becomes a KeyValue only when it is given: with few objects at a time, neither the processor's caches nor
Python's garbage collector have much to do.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from operator import length_hint
from typing import Any

from millstream.model import KeyValue
from millstream.query.store_codecs import Decoded, Unfit

__all__ = ["Ahead"]

_new = tuple.__new__
"""KeyValue(…) without argument checks."""


class Ahead:
    """One thread takes entries; any thread may `clear` it.

    Attributes:
        entries: gives them, and takes them out. An `Unfit` one raises its error. It ends as soon as there are
            none, also if they were cleared.
    """

    __slots__ = ("_keys", "_left", "entries")

    def __init__(self) -> None:
        self.put(([], [], True))

    def put(self, decoded: Decoded) -> None:
        """Hold these, in place of those before."""
        self._keys, values, all_fit = decoded
        self._left = iter(self._keys)
        self.entries: Iterator[Any] = (
            map(_new, repeat(KeyValue), zip(self._left, values, strict=False))
            if all_fit
            else map(_given, self._left, values)
        )

    def __len__(self) -> int:
        return length_hint(self._left)

    def next_key(self) -> Any:
        """The key of the next one, which stays.

        Raises:
            IndexError: there is none.
            Exception: the next one is unfit, and is taken out.
        """
        left = len(self)
        if not left:
            raise IndexError
        key = self._keys[-left]
        if key.__class__ is Unfit:
            next(self.entries, None)  # raises its error, unless all was cleared in between
            raise IndexError
        return key

    def clear(self) -> None:
        """Drop all: `entries` ends where its keys end."""
        self._keys.clear()


def _given(key: Any, value: Any) -> Any:
    if key.__class__ is Unfit:
        raise key.error
    return _new(KeyValue, (key, value))
