"""Entries in Arrow's stream format, as bytes produced on the fly: a schema, then batches."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from millstream.errors import SerializationException
from millstream.model import StoreKind
from millstream.query.position import Position
from millstream.query.store_codecs import Codecs
from millstream.query.store_tables import OpenTable, columns_of

__all__ = ["ArrowStream", "in_arrow"]


class ArrowStream:
    """Writes the entries of one store as Arrow, with the columns of `to_arrow()`.

    A session has no timestamp other than the end of its window.
    """

    def __init__(self, codecs: Codecs) -> None:
        self._codecs = codecs
        self._columns = [
            name
            for name in columns_of(codecs.kind)
            if name != "timestamp" or codecs.kind is not StoreKind.SESSION
        ]
        self._bytes = io.BytesIO()
        self._writer: Any = None
        self._schema: Any = None

    def batch(self, entries: Sequence[tuple[Any, bytes]]) -> bytes:
        """The next bytes. Entries are in stored form: their place, and a timestamp with a value.

        Raises:
            SerializationException: an entry cannot be read, or its type differs from the first batch.
        """
        for batch in self._batches(entries):
            if self._writer is None:
                self._schema = batch.schema
                self._writer = pa.ipc.new_stream(self._bytes, batch.schema)
            try:
                self._writer.write_batch(batch if batch.schema == self._schema else batch.cast(self._schema))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
                raise SerializationException(
                    f"values of store '{self._codecs.store}' have another type than the first ones: {error}"
                ) from error
        return self._taken()

    def end(self) -> bytes:
        """The end-of-stream marker."""
        self._writer.close()
        return self._taken()

    def _batches(self, entries: Sequence[tuple[Any, bytes]]) -> Iterator[pa.RecordBatch]:
        table = OpenTable(self._codecs, [iter(entries)], Position())
        if not entries:
            yield table.empty().batch(self._columns)
        for chunk in table.chunks(len(entries) or 1):
            yield chunk.batch(self._columns)

    def _taken(self) -> bytes:
        taken = self._bytes.getvalue()
        self._bytes.seek(0)
        self._bytes.truncate()
        return taken


def in_arrow(table: pa.Table) -> bytes:
    """A whole table in the same format."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()
