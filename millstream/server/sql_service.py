"""SQL over HTTP: a SELECT over the application's stores, for clients with the token. Off by default.

One query runs at a time, in DuckDB's own process (query/sql_process.py), which is killed at its deadline. The
stores that the query names are first read into this program's memory, including the parts that other clients
have. Their size has no limit, which is why SQL is off by default.
"""

from __future__ import annotations

import asyncio
import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from millstream.errors import SetupException, TimeoutException, UnknownStateStoreException
from millstream.model import StoreKind
from millstream.query.position import Position
from millstream.query.provider import StoreView
from millstream.remote.answers import Answer, Refused
from millstream.remote.http_wire import Deadline
from millstream.remote.json_codec import bad, expressed, parse_json
from millstream.remote.pages import Row
from millstream.remote.routes import Request
from millstream.server.entry_queries import Ranges
from millstream.server.forms import MediaType, as_csv
from millstream.server.peers import Reach, server_threads

if TYPE_CHECKING:
    from millstream.query.store_tables import OpenTable

__all__ = ["Sql", "query_in"]

_MEMORY = "256MB"
"""How much memory DuckDB may use for a query from the network."""


class Sql:
    """Answers queries in SQL. `enabled`: whether SQL is allowed at all; `ranges`: reads what others have."""

    def __init__(self, reach: Reach, ranges: Ranges, client_id: str, *, enabled: bool) -> None:
        self._reach = reach
        self._ranges = ranges
        self._enabled = enabled
        self._worker = server_threads(f"{client_id}-QuerySql", 1)

    async def answer(self, request: Request, form: MediaType, body: bytes, deadline: Deadline) -> Answer:
        """The rows that a query returns.

        Raises:
            Refused: SQL is disabled, the body is invalid, DuckDB rejects the query, the answer is too large,
                or another client must not be queried.
            StreamsException: a part of a store cannot be read now.
        """
        if not self._enabled:
            off = "SQL over HTTP is disabled; set 'query.server.sql.enabled' to true"
            raise Refused(403, "Forbidden", off)
        query, parameters = query_in(body)
        loop = asyncio.get_running_loop()

        def run() -> Answer:
            deadline.check()  # the query may have waited for others
            return self._answered(request, form, query, parameters, deadline, loop)

        return await self._worker.run(run)

    def _answered(
        self,
        request: Request,
        form: MediaType,
        query: str,
        parameters: Any,
        deadline: Deadline,
        loop: asyncio.AbstractEventLoop,
    ) -> Answer:
        from millstream.query.arrow_stream import in_arrow  # Arrow and DuckDB are imported only when needed
        from millstream.query.sql import POSITIONS, run_sql
        from millstream.query.store_tables import open_tables

        def opening(view: StoreView, names: Sequence[str]) -> dict[str, OpenTable]:
            if request.local:
                return open_tables(view, names)
            known = view.snapshot().stores
            here = [name for name in names if self._reach.places.is_whole(known[name], stale=False)]
            elsewhere = {name: self._of_all(view, name, deadline, loop) for name in names if name not in here}
            return {**elsewhere, **open_tables(view, here)}  # last, because open tables have to be closed

        try:
            table = run_sql(
                self._reach.stores.view,
                query,
                parameters,
                timeout_s=deadline.remaining_s,
                memory_limit=_MEMORY,
                opening=opening,
            )
        except UnknownStateStoreException:
            raise
        except (TypeError, ValueError) as error:
            raise bad(str(error)) from error
        except SetupException as error:
            raise Refused(501, "NotImplemented", str(error)) from error
        positions = json.loads(table.schema.metadata[POSITIONS])
        if table.nbytes > self._reach.limits.answer_bytes:
            most = self._reach.limits.answer_bytes
            raise Refused(
                413, "TooLarge", f"the answer has more than {most} bytes; select less, or add a LIMIT"
            )
        if form is MediaType.ARROW:
            return Answer(200, headers={"content-type": form.value}, raw=in_arrow(table))
        names = table.schema.names
        found = [column.to_pylist() for column in table.columns]
        rows = [[_shown(value) for value in row] for row in zip(*found, strict=True)]
        if form is MediaType.CSV:
            headers = {"content-type": "text/csv; charset=utf-8; header=present"}
            return Answer(200, headers=headers, raw=as_csv(names, rows))
        if form is MediaType.NDJSON:
            return Answer(200, headers={"content-type": form.value}, raw=_lines(names, rows))
        columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
        return Answer(200, {"columns": columns, "rows": rows, "positions": positions}).encoded()

    def _of_all(
        self, view: StoreView, name: str, deadline: Deadline, loop: asyncio.AbstractEventLoop
    ) -> OpenTable:
        """A store with the parts of every client. Their positions are not known."""
        from millstream.query.store_tables import table_of

        snapshot = view.snapshot()
        kind = snapshot.stores[name].kind
        reading = asyncio.run_coroutine_threadsafe(self._ranges.whole(name, kind, deadline), loop)
        try:
            rows = reading.result(deadline.remaining_s)
        except TimeoutError:
            reading.cancel()
            raise TimeoutException(
                f"store '{name}' could not be read from all clients in time; local=true selects from the "
                "part "
                "that is here"
            ) from None
        return table_of(snapshot, name, [_as_stored(row, kind) for row in rows], Position())

    def close(self) -> None:
        """End its thread. Idempotent."""
        self._worker.close(1.0)


def _as_stored(row: Row, kind: StoreKind) -> tuple[Any, bytes]:
    """An entry as a local store of this client would have it. A session's time is its end."""
    time = row.timestamp if row.timestamp is not None else row.end or 0
    stored = time.to_bytes(8, "big", signed=True) + row.value
    if kind is StoreKind.KEY_VALUE:
        return row.key, stored
    if kind is StoreKind.WINDOW:
        return (row.key, row.start or 0), stored
    return (row.key, row.start or 0, row.end or 0), stored


def query_in(body: bytes) -> tuple[str, Sequence[Any] | Mapping[str, Any] | None]:
    """The query in a body, and its parameters.

    Raises:
        Refused: the body is invalid.
    """
    given = parse_json(body)
    if not isinstance(given, dict) or not given.keys() <= {"query", "parameters"}:
        raise bad('the body must be {"query": "select …", "parameters": […]}')
    query, parameters = given.get("query"), given.get("parameters")
    if not isinstance(query, str) or not isinstance(parameters, list | dict | None):
        raise bad("'query' must be text; 'parameters' must be a list for ?, or an object for $name")
    return query, parameters


def _lines(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """The rows as JSON, one object per line.

    Raises:
        Refused: two columns have the same name.
    """
    if len(set(names)) < len(names):
        raise bad("two columns of the answer have the same name; rename one with 'as'")
    lines = [json.dumps(dict(zip(names, row, strict=True)), separators=(",", ":")) + "\n" for row in rows]
    return "".join(lines).encode("ascii")


def _shown(value: Any) -> Any:
    """A value of a row as JSON has it: times as ISO 8601, whole decimals as numbers, others as text."""
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else str(value)
    if isinstance(value, Mapping):
        return {str(name): _shown(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(inner) for inner in value]
    try:
        return expressed(value)
    except TypeError:
        return str(value)  # for example, an interval
