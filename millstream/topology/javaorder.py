"""The iteration order of Java's HashMap and TreeSet.

Kafka Streams' description of a topology depends on it: nodes are connected in the order of a HashMap, by
comparisons that change during the process, and topics are printed in the order of a HashSet. The same text
requires the same order. Nothing else may depend on this file.

Source: java.util.HashMap (hash, resize, putVal), java.util.TreeMap (put, fixAfterInsertion); JDK 17.
Differs: bins that Java converts to trees (eight colliding keys in one of 64 bins or more) remain lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["TreeSet", "hash_order"]

T = TypeVar("T")


def hash_order(keys: Iterable[str], expected: int | None = None) -> list[str]:
    """`keys`, in the order of a HashMap after they are inserted one by one.

    `expected` is the expected size in Java (`new HashSet<>(collection)`); None: `new HashMap<>()`.
    """
    distinct = list(dict.fromkeys(keys))
    capacity = 16
    if expected is not None:
        wanted = max(int(expected / 0.75) + 1, 16)
        capacity = 1 << (wanted - 1).bit_length()
    while len(distinct) > capacity * 3 // 4:
        capacity *= 2
    # Bins keep the insertion order, even when the table grows: the sort is stable.
    return sorted(distinct, key=lambda key: _spread(_hash_code(key)) & (capacity - 1))


def _hash_code(text: str) -> int:
    """String.hashCode(): over UTF-16 units, in 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _spread(value: int) -> int:
    return value ^ (value >> 16)


class TreeSet(Generic[T]):
    """A red-black tree, built as in Java.

    A sorted list would suffice for a fixed order. Here comparisons change between insertions, so the position
    of an element depends on the shape of the tree.
    """

    def __init__(self, compare: Callable[[T, T], int]) -> None:
        self._compare = compare
        self._root: _Entry[T] | None = None

    def __iter__(self) -> Iterator[T]:
        stack: list[_Entry[T]] = []
        entry = self._root
        while stack or entry is not None:
            while entry is not None:
                stack.append(entry)
                entry = entry.left
            entry = stack.pop()
            yield entry.value
            entry = entry.right

    def add(self, value: T) -> None:
        """Insert `value`, unless an equal element is found on the way down."""
        if self._root is None:
            self._root = _Entry(value, None)
            self._root.red = False
            return
        entry: _Entry[T] | None = self._root
        parent = self._root
        order = 0
        while entry is not None:
            parent = entry
            order = self._compare(value, entry.value)
            if order == 0:
                return
            entry = entry.left if order < 0 else entry.right
        added = _Entry(value, parent)
        if order < 0:
            parent.left = added
        else:
            parent.right = added
        self._balance(added)

    def _balance(self, entry: _Entry[T]) -> None:
        while entry is not self._root and entry.parent is not None and entry.parent.red:
            parent = entry.parent
            grandparent = parent.parent
            assert grandparent is not None  # a red entry is never the root
            left = parent is grandparent.left
            uncle = grandparent.right if left else grandparent.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grandparent.red = True
                entry = grandparent
                continue
            if entry is (parent.right if left else parent.left):
                self._rotate(parent, to_left=left)
                entry, parent = parent, entry
            parent.red = False
            grandparent.red = True
            self._rotate(grandparent, to_left=not left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry[T], *, to_left: bool) -> None:
        child = entry.right if to_left else entry.left
        assert child is not None
        inner = child.left if to_left else child.right
        if to_left:
            entry.right, child.left = inner, entry
        else:
            entry.left, child.right = inner, entry
        if inner is not None:
            inner.parent = entry
        child.parent = entry.parent
        if entry.parent is None:
            self._root = child
        elif entry.parent.left is entry:
            entry.parent.left = child
        else:
            entry.parent.right = child
        entry.parent = child


class _Entry(Generic[T]):
    __slots__ = ("left", "parent", "red", "right", "value")

    def __init__(self, value: T, parent: _Entry[T] | None) -> None:
        self.value = value
        self.parent = parent
        self.left: _Entry[T] | None = None
        self.right: _Entry[T] | None = None
        self.red = True
