"""Stores as tables: a snapshot of a store in Arrow, in batches, with only the requested columns.

Columns are `key`, `value` and `timestamp`; window and session stores also have `window_start` and
`window_end`. Bytes go into Arrow unchanged, and a column is decoded on first use; numbers and text take no
Python step for each value.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import SerializationException
from millstream.model import StoreKind
from millstream.query.merged import in_one_order
from millstream.query.position import Position, position_of
from millstream.query.provider import Presence, StoreSnapshot, StoreView
from millstream.query.read import Read
from millstream.query.read_plan import ReadPlan, make_plan
from millstream.query.reading import of_part
from millstream.query.schemas import arrow_type, for_arrow, needs_preparing
from millstream.query.store_codecs import Codecs, plain
from millstream.serdes.serde import Serde
from millstream.stores.keys import MAX_TIME_MS
from millstream.stores.store_base import ClosedStoreError

__all__ = [
    "Chunk",
    "OpenTable",
    "columns_of",
    "first_rows",
    "flat",
    "one_type",
    "open_table",
    "open_tables",
    "record_batches",
    "table_of",
    "to_table",
]

_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_ATTEMPTS = 3
_CHUNK_BYTES = 16 << 20
_ROWS = 65_536

_NUMBERS: dict[str, tuple[str, int, pa.DataType]] = {
    "short": ("h", 2, pa.int16()),
    "integer": ("i", 4, pa.int32()),
    "long": ("q", 8, pa.int64()),
    "float": ("f", 4, pa.float32()),
    "double": ("d", 8, pa.float64()),
}
"""Serdes of fixed size, big-endian: the type code of `array`, the size, the Arrow type."""


def columns_of(kind: StoreKind) -> tuple[str, ...]:
    """The columns of a kind of store."""
    if kind is StoreKind.KEY_VALUE:
        return ("key", "value", "timestamp")
    return ("key", "window_start", "window_end", "value", "timestamp")


# --- opening ---------------------------------------------------------------------------------------------


def open_tables(view: StoreView, names: Sequence[str]) -> dict[str, OpenTable]:
    """Snapshots of the named stores; all are opened before any is read.

    Each partition of each store is a snapshot with its position. The snapshots are taken one right after
    another; a store may be updated between two of them.

    Raises:
        InvalidStateStoreException: one of its subclasses. A store, or a part of it, cannot be read now.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        snapshot = view.snapshot()
        plans = {name: _plan(snapshot, name) for name in names}
        opened: dict[str, OpenTable] = {}
        try:
            for name, plan in plans.items():
                opened[name] = open_table(plan)
        except ClosedStoreError as error:
            _close_all(opened)
            if attempt == _ATTEMPTS or view.snapshot() is snapshot:
                plan = _plan(view.snapshot(), error.store)
                outcome = plan.decide(Presence.CLOSED, plan.scope)
                raise plan.refuse(outcome, None, "a read") from error
        except BaseException:
            _close_all(opened)
            raise
        else:
            return opened
    raise AssertionError("unreachable")


def _plan(snapshot: StoreSnapshot, name: str) -> ReadPlan:
    declaration = snapshot.stores.get(name)
    plan = make_plan(snapshot, Read(name, StoreKind.KEY_VALUE if declaration is None else declaration.kind))
    if plan.whole() is not Presence.READABLE:
        raise plan.refuse_whole()
    return plan


def open_table(plan: ReadPlan) -> OpenTable:
    """A snapshot of a plan's store: of all parts that can be read.

    Raises:
        ClosedStoreError: a part was closed after the plan was made.
    """
    sources: list[Any] = []
    position = Position()
    try:
        for part in plan.parts.values():
            position = position.merge(position_of(part))  # first, so it is never ahead of the entries
            sources.append(of_part(part.store, plan.of))
    except BaseException:
        for source in sources:
            source.close()
        raise
    return OpenTable(plan.codecs, sources, position)


def table_of(
    snapshot: StoreSnapshot, name: str, rows: Iterable[tuple[Any, bytes]], position: Position
) -> OpenTable:
    """A table from entries of another source, such as other clients.

    Args:
        rows: in `Chunk`'s form: the key, with the start and end of its window or session if the store has
            them, and the eight bytes of the timestamp followed by the value.

    Raises:
        InvalidStateStoreException: there is no such store.
    """
    codecs = make_plan(snapshot, Read(name, snapshot.stores[name].kind)).codecs
    return OpenTable(codecs, [_Given(iter(rows))], position)


class _Given:
    """Entries that were read elsewhere."""

    def __init__(self, rows: Iterator[tuple[Any, bytes]]) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[tuple[Any, bytes]]:
        return self._rows

    def close(self) -> None:
        """Has no effect: there is nothing to release."""


def _close_all(tables: Mapping[str, OpenTable]) -> None:
    for table in tables.values():
        table.close()


# --- reading ---------------------------------------------------------------------------------------------


class OpenTable:
    """A snapshot of one store, taken when this is created. Read it once, or close it.

    Attributes:
        position: the minimum position of each part.
    """

    def __init__(self, codecs: Codecs, sources: Sequence[Any], position: Position) -> None:
        self.position = position
        self.name: str = codecs.store
        self._sources = sources
        self._codecs = _Columns(codecs)

    @property
    def schema(self) -> pa.Schema | None:
        """The names and types of the columns; None if a type depends on the values."""
        types = [self._codecs.type_of(column) for column in self._codecs.columns]
        if None in types:
            return None
        return pa.schema(list(zip(self._codecs.columns, types, strict=True)))

    def chunks(self, rows: int, *, ordered: bool = False) -> Iterator[Chunk]:
        """All entries, in chunks of up to `rows` entries, fewer if they are large.

        `ordered`: by key across all partitions, instead of one partition after the other.

        Raises:
            ClosedStoreError: the store has left this client in the meantime.
        """
        sources = self._sources
        if ordered and len(sources) > 1:
            sources = [in_one_order(sources, self._codecs.kind, reverse=False)]
        for source in sources:
            wanted = rows
            while entries := list(islice(source, wanted)):
                chunk = Chunk(self._codecs, entries)
                yield chunk
                wanted = max(1, min(rows, _CHUNK_BYTES * len(entries) // max(1, chunk.nbytes)))

    def empty(self) -> Chunk:
        """An empty table with the right types."""
        return Chunk(self._codecs, [])

    def close(self) -> None:
        """Release the store's resources. Idempotent."""
        for source in self._sources:
            source.close()


def to_table(table: OpenTable, columns: Sequence[str]) -> pa.Table:
    """All entries, ordered by key; consumes the table.

    Types follow the serdes or, if those do not determine them, the values; text if they have no common type.
    """
    chunks = list(table.chunks(_ROWS, ordered=True)) or [table.empty()]
    return pa.table({name: one_type([chunk.column(name) for chunk in chunks]) for name in columns})


def flat(table: pa.Table) -> pa.Table:
    """The same table with a column for each field of a struct, even a nested one: `value.amount`."""
    while any(pa.types.is_struct(field.type) and field.type.num_fields for field in table.schema):
        columns: list[Any] = []
        names: list[str] = []
        for field, column in zip(table.schema, table.columns, strict=True):
            if pa.types.is_struct(field.type) and field.type.num_fields:
                columns += column.flatten()
                names += [f"{field.name}.{inner.name}" for inner in field.type]
            else:
                columns.append(column)
                names.append(field.name)
        table = pa.Table.from_arrays(columns, names=names)
    return table


def first_rows(table: OpenTable, columns: Sequence[str], count: int) -> pa.Table:
    """The first entries, ordered by key; the rest is not read."""
    chunk = next(table.chunks(count, ordered=True), None) or table.empty()
    return flat(pa.Table.from_batches([chunk.batch(columns)]))


def record_batches(
    table: OpenTable, columns: Sequence[str], rows: int, lost: Callable[[ClosedStoreError], Exception]
) -> pa.RecordBatchReader:
    """The table in batches of up to `rows` rows, each created on demand. The last one closes the table, and
    so does dropping the reader. (The `close()` of pyarrow's reader does not close its source.)

    Raises, from the reader:
        SerializationException: a value does not fit the type from the first batch.
        Exception: the result of `lost`, if a store is closed in the meantime.
    """
    chunks = table.chunks(rows, ordered=True)

    def next_batch() -> pa.RecordBatch | None:
        try:
            chunk = next(chunks, None)
        except ClosedStoreError as error:
            raise lost(error) from error
        return None if chunk is None else chunk.batch(columns)

    first = next_batch() or table.empty().batch(columns)

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield first
            while (batch := next_batch()) is not None:
                yield _fitted(batch, first.schema, table.name)
        finally:
            table.close()

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, store: str) -> pa.RecordBatch:
    if batch.schema == schema:
        return batch
    try:
        return batch.cast(schema)
    except _NO_TYPE as error:
        raise SerializationException(
            f"a value of store '{store}' does not fit the type of the first batch: {error}; use to_arrow(), "
            "which looks at all values, or a serde that determines the type"
        ) from error


class Chunk:
    """Some entries as bytes; a column is decoded on first use, and kept."""

    __slots__ = ("_codecs", "_columns", "_ends", "_keys", "_starts", "_times", "_values")

    def __init__(self, codecs: _Columns, entries: Sequence[tuple[Any, bytes]]) -> None:
        self._codecs = codecs
        self._columns: dict[str, pa.Array] = {}
        self._values = pa.array([stored[8:] for _, stored in entries], pa.binary())
        self._times = b"".join([stored[:8] for _, stored in entries])
        self._starts: Any = None
        self._ends: Any = None
        if codecs.kind is StoreKind.KEY_VALUE:
            self._keys = pa.array([at for at, _ in entries], pa.binary())
            return
        self._keys = pa.array([at[0] for at, _ in entries], pa.binary())
        self._starts = pa.array([at[1] for at, _ in entries], pa.int64())
        if codecs.kind is StoreKind.SESSION:
            self._ends = pa.array([at[2] for at, _ in entries], pa.int64())

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its columns."""
        return self._codecs.columns

    @property
    def nbytes(self) -> int:
        """The size of its entries in bytes."""
        return int(self._keys.nbytes + self._values.nbytes + len(self._times))

    def column(self, name: str) -> pa.Array:
        """One column.

        Raises:
            SerializationException: a key or value cannot be read.
        """
        found = self._columns.get(name)
        if found is None:
            found = self._columns[name] = self._decoded(name)
        return found

    def batch(self, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """A batch of the named columns, or of all."""
        names = list(self.names if columns is None else columns)
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], names=names)

    def _decoded(self, name: str) -> pa.Array:
        codecs = self._codecs
        match name:
            case "key":
                return codecs.decoded(self._keys, codecs.key_serde, "key", self._keys)
            case "value":
                return codecs.decoded(self._values, codecs.value_serde, "value", self._keys)
            case "timestamp":
                return _numbers(self._times, "q", pa.int64()).cast(_TIMESTAMP)
            case "window_start":
                return self._starts.cast(_TIMESTAMP)
            case _:
                return (codecs.ends_of(self._starts) if self._ends is None else self._ends).cast(_TIMESTAMP)


class _Columns:
    """Decodes the columns of one store."""

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self.store = codecs.store
        self.kind = codecs.kind
        self.columns = columns_of(codecs.kind)
        self.key_serde = codecs.key_serde
        self.value_serde = codecs.value_serde
        self.window_size_ms = codecs.window_size_ms or 0
        self._types = {"key": arrow_type(codecs.key_serde), "value": arrow_type(codecs.value_serde)}

    def ends_of(self, starts: pa.Array) -> pa.Array:
        """The ends of windows, which are not stored; capped at the latest possible time."""
        return pc.add(pc.min_element_wise(starts, MAX_TIME_MS - self.window_size_ms), self.window_size_ms)

    def type_of(self, column: str) -> pa.DataType | None:
        return self._types.get(column, _TIMESTAMP)

    def decoded(self, raw: pa.Array, serde: Serde, what: str, keys: pa.Array) -> pa.Array:
        kind = self._types[what]
        try:
            return _decoded(raw, serde, kind)
        except Exception as error:  # whatever a serde raises, users expect one exception
            for number, key in enumerate(keys):
                try:
                    _decoded(raw.slice(number, 1), serde, kind)
                except Exception as of_one:
                    raise self._codecs.misread(what, key.as_py(), of_one) from of_one
            raise SerializationException(
                f"a {what} of store '{self.store}' cannot be read: {error}"
            ) from error


def _decoded(raw: pa.Array, serde: Serde, kind: pa.DataType | None) -> pa.Array:
    number = _NUMBERS.get(serde.name)
    if number is not None:
        code, size, kind = number
        sizes = pc.min_max(pc.binary_length(raw)).as_py()
        if len(raw) and (sizes["min"], sizes["max"]) != (size, size):
            wrong = sizes["min"] if sizes["min"] != size else sizes["max"]
            raise SerializationException(f"serde '{serde.name}' needs {size} bytes; got {wrong}")
        return _numbers(b"".join(raw.to_pylist()), code, kind)
    if serde.name == "bytes":
        return raw
    if serde.name == "string":
        try:
            return raw.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8: decoded as the serde does it, with U+FFFD
            return pa.array([serde.deserialize(each) for each in raw.to_pylist()], pa.string())
    values = [None if each is None else plain(serde, each) for each in raw.to_pylist()]
    if serde.name == "uuid":
        values = [str(value) for value in values]
    elif kind is not None and needs_preparing(kind):
        values = [for_arrow(value, kind) for value in values]
    return pa.array(values, kind) if kind is not None else _inferred(values)


_NO_TYPE = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


def _inferred(values: list[Any]) -> pa.Array:
    """Values of a custom serde, in a type that fits them all, or as text if none does."""
    try:
        return pa.array(values)
    except _NO_TYPE:
        return pa.array([_as_text(value) for value in values], pa.string())


def _as_text(value: Any) -> str:
    return json.dumps(value, default=str, sort_keys=True)


def one_type(arrays: Sequence[pa.Array]) -> pa.ChunkedArray:
    """The parts of a column with types inferred from values, in a type that fits all, or else as text."""
    if len({each.type for each in arrays}) == 1:
        return pa.chunked_array(arrays)
    try:
        return pa.chunked_array([pa.array([value for each in arrays for value in each.to_pylist()])])
    except _NO_TYPE:
        texts = [
            value if pa.types.is_string(each.type) else _as_text(value)
            for each in arrays
            for value in each.to_pylist()
        ]
        return pa.chunked_array([pa.array(texts, pa.string())])


def _numbers(data: bytes, code: str, kind: pa.DataType) -> pa.Array:
    """Consecutive big-endian numbers."""
    numbers = array(code, data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])
