"""Table changes in processors: a key's new value and, if known, its old one.

Source: org.apache.kafka.streams.kstream.internals.Change, KTableTransformValues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.errors import StreamsException
from millstream.model import ValueAndTimestamp
from millstream.processors.api import Record
from millstream.topology.suppliers import new_processor

__all__ = ["Change", "Transforming", "reading", "unwrapping", "writing"]

_LENGTH = 4


class Change(NamedTuple):
    """The value of a table's record between the processors of a graph."""

    new: Any
    old: Any = None


# --- as bytes ----------------------------------------------------------------------------------------------
# A value with the old one: the value's length plus 1, or 0 if it is null, in four bytes; the
# value; then 0, or 1 and the old value. `spark/compile/processor_nodes.py` uses the same format.


def reading(read: Callable[[bytes | None], Any], has_old: bool, is_of_table: bool) -> Callable[[Any], Any]:
    """The function that reads an incoming value; as a Change, if it is from a table."""
    if not has_old:
        return (lambda data: Change(read(data))) if is_of_table else read
    if is_of_table:
        return lambda data: Change(*map(read, _apart(data)))
    return lambda data: read(_apart(data)[0])


def writing(write: Callable[[Any], bytes | None], has_old: bool) -> Callable[[Change], bytes | None]:
    """The function that writes an outgoing Change."""
    if not has_old:
        return lambda change: write(change.new)
    return lambda change: _beside(write(change.new), write(change.old))


def unwrapping(process: Callable[[Record], None]) -> Callable[[Record], None]:
    """The function that gives a stream processor the new values of a table."""
    return lambda record: process(record.with_value(record.value.new))


def _beside(value: bytes | None, old: bytes | None) -> bytes:
    length = 0 if value is None else len(value) + 1
    before = b"\0" if old is None else b"\1" + old
    return length.to_bytes(_LENGTH, "big") + (value or b"") + before


def _apart(data: bytes) -> tuple[bytes | None, bytes | None]:
    data = bytes(data)
    length = int.from_bytes(data[:_LENGTH], "big")
    end = _LENGTH + max(length - 1, 0)
    return data[_LENGTH:end] if length else None, data[end + 1 :] if data[end] else None


# --- the processor -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Transforming:
    """Supplies the processor that wraps a table's transformer.

    Attributes:
        supplier: creates the transformer.
        store: the name of the store with the table's rows; None if there is none.
        sends_old: whether changes include the old value: from the store or, without one, from the
            transformer.
        has_history: whether it is a versioned store.
        is_cached: whether a deletion of an absent row is suppressed.
    """

    supplier: Any
    store: str | None = None
    sends_old: bool = False
    has_history: bool = False
    is_cached: bool = False

    def __call__(self) -> _Transformer:
        return _Transformer(self)


class _Transformer:
    """Source: KTableTransformValues.KTableTransformValuesProcessor."""

    def __init__(self, of: Transforming) -> None:
        self._of = of
        self._transformer = new_processor(of.supplier)
        self._transform = self._transformer.transform

    def init(self, context: Any) -> None:
        self._forward = context.forward
        self._store = None if self._of.store is None else context.get_state_store(self._of.store)
        init = getattr(self._transformer, "init", None)
        if init is not None:
            init(_WithoutForward(context))

    def process(self, record: Record) -> None:
        key, change = record.key, record.value
        new = self._transform(key, change.new)
        if self._store is None:
            old = self._transform(key, change.old) if self._of.sends_old else None
        else:
            found = self._store.get(key)
            old = None if found is None else found.value
            if self._of.has_history:
                if self._store.put(key, new, record.timestamp) == self._store.PUT_RETURN_CODE_NOT_PUT:
                    return
            elif new is None and old is None and self._of.is_cached:
                return
            else:
                self._store.put(key, None if new is None else ValueAndTimestamp(new, record.timestamp))
        self._forward(record.with_value(Change(new, old if self._of.sends_old else None)))

    def restore(self, record: Record) -> None:
        """Pass on a row that was processed earlier, without a store of its own."""
        if self._store is None:
            self._forward(record.with_value(Change(self._transform(record.key, record.value.new))))

    def rows(self) -> Iterator[Record]:
        """The rows in its store."""
        if self._store is not None and not self._of.has_history:
            for key, found in self._store.all():
                yield Record(key, Change(found.value), found.timestamp)

    def close(self) -> None:
        close = getattr(self._transformer, "close", None)
        if close is not None:
            close()


class _WithoutForward:
    """The context of a transformer, which returns its result instead of forwarding it.

    Source: ForwardingDisabledProcessorContext.
    """

    def __init__(self, context: Any) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def forward(self, record: Any, child: str | None = None) -> None:
        raise StreamsException(
            "ProcessorContext#forward() is not supported: a row's new value is what transform() returns"
        )
