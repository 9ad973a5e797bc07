"""SQL over live stores, with DuckDB: each store named in a query is a table with the store's current
contents.

The query is parsed first, so only the stores that it names are read; all of them are opened before any is
read. A column is decoded when DuckDB scans it. DuckDB runs in a separate process (sql_process.py), in memory.
It has no access to files, the network, extensions or the program. Limits on time, memory and result size
apply to every query.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any, TypeAlias

import pyarrow as pa

from millstream.clock import Clock, SystemClock
from millstream.errors import (
    InvalidStateStoreException,
    SetupException,
    StateStoreMigratedException,
    StreamsException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.query.provider import StoreView
from millstream.query.sql_process import DeadlinePassed, ProcessEnded, SqlProcess, SqlProcesses, message_in
from millstream.query.sql_program import ARROW, encoded
from millstream.query.store_tables import Chunk, OpenTable, one_type, open_tables
from millstream.stores.store_base import ClosedStoreError

__all__ = ["POSITIONS", "Opening", "run_sql"]

POSITIONS = b"millstream.positions"
"""The metadata key of the stores' positions in the result, as JSON."""

Opening: TypeAlias = Callable[[StoreView, Sequence[str]], dict[str, OpenTable]]
"""Opens stores by name."""

_CHUNK_ROWS = 16_384
_MOST_QUERY = 1 << 20
_PROCESSES = SqlProcesses()

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]i?)?B?", re.IGNORECASE)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def run_sql(
    view: StoreView,
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    timeout_s: float = 30.0,
    until: float | None = None,
    memory_limit: str = "1GB",
    clock: Clock | None = None,
    opening: Opening = open_tables,
) -> pa.Table:
    """Implements `KafkaStreams.sql`.

    Args:
        until: when it must be done, by the clock; by default `timeout_s` from now.
        opening: opens the stores named in a query; by default those of this client.

    Raises:
        TypeError: the query is not a string, or a parameter has an unsupported type.
        ValueError: the query is not a single SELECT, is too long or too deep, or is invalid in DuckDB.
        SetupException: DuckDB is not installed.
        UnknownStateStoreException: it names a table that is not a store.
        InvalidStateStoreException: another of its subclasses. A store cannot be read now.
        SerializationException: a key or value cannot be read.
        TimeoutException: the query did not finish in time.
        StreamsException: DuckDB failed: not enough memory, a result that is too large, a value that cannot be
            computed.
    """
    if not isinstance(query, str):
        raise TypeError(f"sql() takes a query as text, such as 'from counts'; got {query!r}")
    if len(query.encode("utf-8", "surrogatepass")) > _MOST_QUERY:
        raise ValueError(f"a query can have at most {_MOST_QUERY} bytes; pass values as parameters")
    most = _bytes_in(memory_limit)
    try:
        values = None if parameters is None else encoded(parameters)
    except RecursionError:
        raise ValueError("the parameters of the query are nested too deeply") from None
    if find_spec("duckdb") is None:
        raise SetupException("sql() needs DuckDB: pip install 'millstream[sql]'; store.to_arrow() does not")
    clock = clock or SystemClock()
    deadline = clock.now() + timeout_s if until is None else until

    def remaining() -> float:
        return deadline - clock.now()

    try:
        while True:
            process = _taken(remaining)
            asked = _Asked(view, opening, query, values, most, remaining, timeout_s)
            healthy = False
            try:
                found = asked.answer(process)
                healthy = True
                return found
            except ProcessEnded:
                # A kept process may have just ended, because it was idle for a long time.
                if asked.was_heard or process.asked == 1:
                    raise
            except _Reported as reported:
                healthy = True
                raise reported.error from reported.error.__cause__
            finally:
                _PROCESSES.give_back(process, keep=healthy)
    except DeadlinePassed:
        raise _too_late(timeout_s) from None
    except ProcessEnded as ended:
        raise StreamsException(
            f"the DuckDB process that ran the query is gone: {ended}; if the query needs more memory than "
            f"{memory_limit}, pass a larger memory_limit="
        ) from None


def _taken(remaining: Callable[[], float]) -> SqlProcess:
    try:
        return _PROCESSES.take(remaining)
    except OSError as error:
        raise StreamsException(
            f"the process that runs DuckDB cannot be started: {error}; sql() needs '{sys.executable}', a few "
            "open files and some 200 MB"
        ) from error


def _bytes_in(size: str) -> int:
    """The number of bytes in a text such as `1GB`, as parsed by DuckDB."""
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"a memory limit must be a text such as '1GB' or '500MiB'; got {size!r}")
    return int(float(found[1]) * _UNITS[(found[2] or "").lower()])


class _Reported(Exception):
    """An exception for the caller; the process is still usable."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error


class _Asked:
    """One query, from its text to its result.

    Attributes:
        was_heard: whether the process has replied to it.
    """

    def __init__(
        self,
        view: StoreView,
        opening: Opening,
        query: str,
        parameters: Any,
        most: int,
        remaining: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._view = view
        self._opening = opening
        self._query = query
        self._parameters = parameters
        self._most = most
        self._remaining = remaining
        self._timeout_s = timeout_s
        self.was_heard = False

    def answer(self, process: SqlProcess) -> pa.Table:
        """The result from a process.

        Raises:
            Late: the deadline has passed.
            Ended: the process has ended.
            _Reported: anything else; the process can be reused.
        """
        process.asked += 1
        process.send_message(
            self._remaining,
            query=self._query,
            parameters=self._parameters,
            memory=self._most,
            seconds=self._remaining(),
        )
        reply = process.hear(self._remaining)
        self.was_heard = True
        _raise_reported(reply)
        try:
            names = _stores_among(reply["tables"], reply["defined"], sorted(self._view.snapshot().stores))
            tables, sources = self._opened(sorted(names))
        except Exception as error:
            self._stop(process)
            raise _Reported(error) from error
        process.send_message(self._remaining, schemas=list(sources))
        for source in sources.values():
            process.send(ARROW, source.schema.serialize(), self._remaining)
        found = self._received(process, sources)
        return found.replace_schema_metadata({POSITIONS: _positions(tables)})

    def _opened(self, names: Sequence[str]) -> tuple[dict[str, OpenTable], dict[str, _Source]]:
        tables = self._opening(self._view, names)
        try:
            return tables, {name: self._read(table) for name, table in tables.items()}
        except ClosedStoreError as error:
            raise _migrated(self._view, error) from error
        finally:
            for table in tables.values():
                table.close()

    def _read(self, table: OpenTable) -> _Source:
        chunks = []
        for chunk in table.chunks(_CHUNK_ROWS):
            chunks.append(chunk)
            if self._remaining() < 0:
                raise _too_late(self._timeout_s)
        return _Source(table, chunks)

    def _received(self, process: SqlProcess, sources: Mapping[str, _Source]) -> pa.Table:
        """The result; whenever DuckDB scans a store, it gets the columns that it needs."""
        batches: list[pa.RecordBatch] = []
        schema: pa.Schema | None = None
        failure: Exception | None = None
        while True:
            kind, payload = process.receive(self._remaining)
            if kind == ARROW:
                reader = pa.ipc.open_stream(pa.py_buffer(payload))
                schema = reader.schema
                batches += reader
                continue
            reply = message_in(payload)
            if "need" in reply:
                try:
                    columns = None if failure else sources[reply["need"]].columns(reply["columns"])
                except Exception as error:
                    failure, columns = error, None
                self._send(process, columns)
                continue
            if failure is not None:
                raise _Reported(failure)  # DuckDB would convert it to text
            _raise_reported(reply)
            return pa.Table.from_batches(batches, schema)

    def _send(self, process: SqlProcess, columns: pa.Table | None) -> None:
        if columns is None:
            process.send_message(self._remaining, stop=True)
            return
        for batch in columns.to_batches():
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            process.send(ARROW, sink.getvalue(), self._remaining)
        process.send_message(self._remaining, end=True)

    def _stop(self, process: SqlProcess) -> None:
        process.send_message(self._remaining, stop=True)
        process.hear(self._remaining)


def _raise_reported(reply: Mapping[str, Any]) -> None:
    """Raise the error that the process reports, if any."""
    kind = reply.get("failed")
    if kind is not None:
        message = str(reply.get("message"))
        raise _Reported(ValueError(message) if kind == "invalid" else StreamsException(message))


def _positions(tables: Mapping[str, OpenTable]) -> bytes:
    of_stores: dict[str, dict[str, dict[int, int]]] = {}
    for name, table in tables.items():
        position = table.position
        of_stores[name] = {topic: position.partition_positions(topic) for topic in sorted(position.topics)}
    return json.dumps(of_stores).encode()


def _too_late(timeout_s: float) -> TimeoutException:
    return TimeoutException(
        f"the query did not finish within {round(timeout_s, 1):g} s and was ended; select less, or allow "
        "more time"
    )


# --- which stores ----------------------------------------------------------------------------------------


def _stores_among(tables: Sequence[str], defined: Sequence[str], stores: Sequence[str]) -> set[str]:
    """The stores among a query's tables, without the names that the query defines itself.

    Raises:
        ValueError: SQL cannot distinguish two of the stores.
        UnknownStateStoreException: it names a table that is not a store.
    """
    found: set[str] = set()
    for table in tables:
        name = _store_called(table, stores)
        if name is not None:
            found.add(name)
        elif table.lower() not in defined:
            raise _unknown(table, stores)
    if len({name.lower() for name in found}) < len(found):
        raise ValueError(
            f"table names in SQL are case-insensitive, so one query cannot use all of "
            f"{', '.join(sorted(found))}"
        )
    return found


def _store_called(table: str, stores: Sequence[str]) -> str | None:
    """The store with exactly this name, or else the one with this name in another case."""
    if table in stores:
        return table
    return next((store for store in stores if store.lower() == table.lower()), None)


def _unknown(table: str, stores: Sequence[str]) -> UnknownStateStoreException:
    listed = ", ".join(f"'{each}'" for each in stores) or "none"
    close = get_close_matches(table, stores, n=1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return UnknownStateStoreException(
        f"no state store '{table}' in this topology to select from (names with characters other than letters "
        f"and digits need double quotes)",
        store=table,
        next_step=f"it has {listed}{hint}",
    )


def _migrated(view: StoreView, error: ClosedStoreError) -> InvalidStateStoreException:
    snapshot = view.snapshot()
    return StateStoreMigratedException(
        f"store '{error.store}' was closed under a query: client '{snapshot.client_id}' is "
        f"{snapshot.client_state}",
        store=error.store,
        client_state=snapshot.client_state.name,
        next_step="run the query again",
    )


# --- stores as tables ------------------------------------------------------------------------------------


class _Source:
    """A store's entries; a column is decoded on first use."""

    def __init__(self, table: OpenTable, chunks: list[Chunk]) -> None:
        self._chunks = chunks
        self._empty = table.empty()
        self._columns: dict[str, pa.ChunkedArray] = {}
        schema = table.schema
        self.schema = schema if schema is not None else self._schema_of_values()

    def columns(self, names: Sequence[str]) -> pa.Table:
        """Some of its columns.

        Raises:
            SerializationException: a key or value cannot be read.
        """
        return pa.table({name: self._column(name) for name in names})

    def _column(self, name: str) -> pa.ChunkedArray:
        found = self._columns.get(name)
        if found is None:
            kind = self.schema.field(name).type
            found = pa.chunked_array([chunk.column(name) for chunk in self._chunks], type=kind)
            self._columns[name] = found
        return found

    def _schema_of_values(self) -> pa.Schema:
        """The types of columns that depend on the values: the common type of all chunks."""
        fields = []
        for name in self._empty.names:
            arrays = [chunk.column(name) for chunk in self._chunks] or [self._empty.column(name)]
            column = one_type(arrays)
            self._columns[name] = column
            fields.append((name, column.type))
        return pa.schema(fields)
