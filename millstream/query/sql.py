"""SQL over live stores, with DuckDB: each store that a query names is a table, as it is at that moment.

The query is parsed first, so that only the stores that it names are read; all of them are opened before any
is read. DuckDB gets them as datasets that decode a column when it is scanned. Its connection lives for one
query, in memory: no files, no network, no extensions, no variables of the program, a limit of memory, and a
deadline.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

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
from millstream.query.tables import Chunk, OpenTable, one_type, open_tables
from millstream.stores.api import ClosedStoreError

__all__ = ["POSITIONS", "run_sql"]

POSITIONS = b"millstream.positions"
"""The key in the result's metadata under which the stores' positions are, as JSON."""

_CHUNK_ROWS = 16_384
_JOIN_S = 5.0


def run_sql(
    view: StoreView,
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    timeout_s: float = 30.0,
    memory_limit: str = "1GB",
    clock: Clock | None = None,
) -> pa.Table:
    """What `KafkaStreams.sql` is.

    Raises:
        TypeError: the query is not a text.
        ValueError: it is not one SELECT, or DuckDB does not understand it.
        SetupException: DuckDB is not installed.
        UnknownStateStoreException: it names a table that is no store.
        InvalidStateStoreException: another of its leaves: a store cannot be read now.
        SerializationException: a key or value cannot be read.
        TimeoutException: it was not done in time.
        StreamsException: DuckDB could not do it: not enough memory, a value that cannot be computed.
    """
    if not isinstance(query, str):
        raise TypeError(f"sql() takes a query as text, such as 'from counts'; not {query!r}")
    if find_spec("duckdb") is None:
        raise SetupException("sql() needs DuckDB: pip install 'millstream[sql]'; store.to_arrow() does not")
    clock = clock or SystemClock()
    deadline = clock.now() + timeout_s
    with _connection(memory_limit) as connection:
        names = _stores_in(connection, query, sorted(view.snapshot().stores))
        tables = open_tables(view, sorted(names))
        try:
            datasets = {name: _read(table, clock, deadline, timeout_s) for name, table in tables.items()}
        except ClosedStoreError as error:
            raise _migrated(view, error) from error
        finally:
            for table in tables.values():
                table.close()
        for name, dataset in datasets.items():
            connection.register(name, dataset)
        connection.execute("SET lock_configuration = true")
        with _interrupted_at(connection, deadline - clock.now()) as is_late:
            found = _run(connection, query, parameters, datasets.values(), is_late, timeout_s)
    return found.replace_schema_metadata({POSITIONS: _positions(tables)})


def _positions(tables: Mapping[str, OpenTable]) -> bytes:
    of_stores: dict[str, dict[str, dict[int, int]]] = {}
    for name, table in tables.items():
        position = table.position
        of_stores[name] = {topic: position.partition_positions(topic) for topic in sorted(position.topics)}
    return json.dumps(of_stores).encode()


# --- DuckDB ----------------------------------------------------------------------------------------------


@contextmanager
def _connection(memory_limit: str) -> Iterator[Any]:
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",  # a variable of the program is no table
            "temp_directory": "",
            "memory_limit": memory_limit,
            "threads": "2",
        },
    )
    try:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
    finally:
        connection.close()


@contextmanager
def _interrupted_at(connection: Any, after_s: float) -> Iterator[threading.Event]:
    """Interrupt the connection after so long, unless the block is over before; the event says that it was."""
    over, late = threading.Event(), threading.Event()

    def watch() -> None:
        if not over.wait(max(0.0, after_s)):
            late.set()
            # Again and again, as one that comes between two steps of the query is forgotten.
            while not over.wait(0.05):
                connection.interrupt()

    watcher = threading.Thread(target=watch, name="millstream-sql-deadline", daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        over.set()
        watcher.join(_JOIN_S)


def _run(
    connection: Any,
    query: str,
    parameters: Sequence[Any] | Mapping[str, Any] | None,
    datasets: Any,
    is_late: threading.Event,
    timeout_s: float,
) -> pa.Table:
    import duckdb

    try:
        return connection.sql(query, params=parameters).to_arrow_table()
    except Exception as error:
        failed = next((each.failure for each in datasets if each.failure is not None), None)
        if failed is not None:
            raise failed from None
        if is_late.is_set():
            raise _too_late(timeout_s) from error
        understood = (duckdb.ProgrammingError, duckdb.NotSupportedError, duckdb.PermissionException)
        if isinstance(error, understood):
            raise ValueError(f"the query cannot be run: {error}") from error
        if isinstance(error, duckdb.Error):
            raise StreamsException(f"the query has failed in DuckDB: {error}") from error
        raise


def _too_late(timeout_s: float) -> TimeoutException:
    return TimeoutException(
        f"the query was not done in {timeout_s:g} s, and was interrupted; ask for less, or give it more time"
    )


# --- which stores ----------------------------------------------------------------------------------------


def _stores_in(connection: Any, query: str, stores: Sequence[str]) -> set[str]:
    """The stores that a query names.

    Raises:
        ValueError: it is not one SELECT, or cannot be parsed.
        UnknownStateStoreException: it names a table that is no store.
    """
    parsed = json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
    if parsed.get("error"):
        raise ValueError(f"the query cannot be parsed as a SELECT: {parsed.get('error_message')}")
    if len(parsed["statements"]) != 1:
        raise ValueError(f"sql() takes one SELECT, and these are {len(parsed['statements'])} statements")
    tables, defined = _tables_in(parsed)
    found: set[str] = set()
    for table in sorted(tables):
        name = _store_called(table, stores)
        if name is not None:
            found.add(name)
        elif table.lower() not in defined:
            raise _unknown(table, stores)
    if len({name.lower() for name in found}) < len(found):
        raise ValueError(
            f"names of tables in SQL have no case: one query cannot have all of {', '.join(sorted(found))}"
        )
    return found


def _tables_in(parsed: Any) -> tuple[set[str], set[str]]:
    """The tables without a schema that a parsed query names, and the names that it defines, in lower case."""
    tables: set[str] = set()
    defined: set[str] = set()
    left = [parsed]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and not node.get("schema_name"):
                tables.add(node["table_name"])
            defined |= {entry["key"].lower() for entry in (node.get("cte_map") or {}).get("map", ())}
            left += node.values()
        elif isinstance(node, list):
            left += node
    return tables, defined


def _store_called(table: str, stores: Sequence[str]) -> str | None:
    """The store of this name, as it is written; else the one that has it in another case."""
    if table in stores:
        return table
    return next((store for store in stores if store.lower() == table.lower()), None)


def _unknown(table: str, stores: Sequence[str]) -> UnknownStateStoreException:
    listed = ", ".join(f"'{each}'" for each in stores) or "none"
    close = get_close_matches(table, stores, n=1)
    hint = f". Did you mean '{close[0]}'?" if close else ""
    return UnknownStateStoreException(
        f"no state store '{table}' in this topology to select from (names with other signs than letters and "
        f"digits go into double quotes)",
        store=table,
        next_step=f"it has {listed}{hint}",
    )


def _migrated(view: StoreView, error: ClosedStoreError) -> InvalidStateStoreException:
    snapshot = view.snapshot()
    return StateStoreMigratedException(
        f"store '{error.store}' was closed under a query: client '{snapshot.client_id}' is "
        f"{snapshot.client_state}",
        store=error.store,
        client_state=snapshot.client_state,
        next_step="run the query again",
    )


# --- stores as datasets ----------------------------------------------------------------------------------


def _read(table: OpenTable, clock: Clock, deadline: float, timeout_s: float) -> _Dataset:
    chunks = []
    for chunk in table.chunks(_CHUNK_ROWS):
        chunks.append(chunk)
        if clock.now() > deadline:
            raise _too_late(timeout_s)
    return _Dataset(table, chunks)


class _Dataset(ds.Dataset):  # type: ignore[misc]
    """A store's entries, which DuckDB scans: it says which columns it wants, and what to look for."""

    def __init__(self, table: OpenTable, chunks: list[Chunk]) -> None:
        # Not the base class's: that one is for what C++ made.
        self._chunks = chunks
        self._empty = table.empty()
        self._types: dict[str, pa.DataType] = {}
        schema = table.schema
        self._columns: dict[str, pa.ChunkedArray] = {}
        self.failure: Exception | None = None
        self._schema = schema if schema is not None else self._schema_of_values()

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Any:
        """What pyarrow's own datasets have; DuckDB calls it on a thread of its own."""
        try:
            asked = self._schema.names if columns is None else list(columns)
            looked_at = "" if filter is None else str(filter)
            needed = [name for name in self._schema.names if name in asked or name in looked_at]
            table = pa.table({name: self._column(name) for name in needed or self._schema.names[:1]})
        except Exception as error:
            self.failure = error  # DuckDB would make a text of it
            raise
        return ds.dataset(table).scanner(columns=asked, filter=filter, **options)

    def _column(self, name: str) -> pa.ChunkedArray:
        found = self._columns.get(name)
        if found is None:
            kind = self._schema.field(name).type
            found = pa.chunked_array([chunk.column(name) for chunk in self._chunks], type=kind)
            self._columns[name] = found
        return found

    def _schema_of_values(self) -> pa.Schema:
        """The types of columns that only the values tell: what all chunks have in common."""
        fields = []
        for name in self._empty.names:
            arrays = [chunk.column(name) for chunk in self._chunks] or [self._empty.column(name)]
            column = one_type(arrays)
            self._columns[name] = column
            fields.append((name, column.type))
        return pa.schema(fields)
