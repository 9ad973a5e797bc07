"""SQL over HTTP: a SELECT from the stores of this client, for who shows the token, where it is switched on.

One query runs at a time, in DuckDB's own process (query/sql_process.py), which its deadline ends. The stores
that it names are read into this program's memory first, which has no bound: that is why it is off unless
somebody switches it on.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Mapping, Sequence
from typing import Any

from millstream.errors import SetupException, UnknownStateStoreException
from millstream.server.answers import Answer, Refused
from millstream.server.codec import bad, expressed, parse_json
from millstream.server.forms import Form, as_csv
from millstream.server.peers import Reach
from millstream.server.routes import Request
from millstream.server.wire import Deadline, Workers

__all__ = ["Sql", "query_in"]

_MEMORY = "256MB"
"""What DuckDB may take for a query of somebody on the network."""


class Sql:
    """Answers queries in SQL. `enabled`: whether it does at all."""

    def __init__(self, reach: Reach, client_id: str, *, enabled: bool) -> None:
        self._reach = reach
        self._enabled = enabled
        self._worker = Workers(f"{client_id}-QuerySql", 1)

    async def answer(self, request: Request, form: Form, body: bytes, deadline: Deadline) -> Answer:
        """The rows.

        Raises:
            Refused: it is switched off, the body is none, DuckDB does not take the query, the answer is too
                large, or a store is here only in part, and `local` does not say that this will do.
        """
        if not self._enabled:
            off = "SQL over HTTP is off; set 'query.server.sql.enabled' to true"
            raise Refused(403, "Forbidden", off)
        query, parameters = query_in(body)

        def run() -> Answer:
            deadline.check()  # it may have waited for others
            return self._answered(request, form, query, parameters, deadline)

        return await self._worker.run(run)

    def _answered(
        self, request: Request, form: Form, query: str, parameters: Any, deadline: Deadline
    ) -> Answer:
        from millstream.query.arrow_stream import in_arrow  # Arrow and DuckDB, for those who ask
        from millstream.query.sql import POSITIONS, run_sql

        try:
            table = run_sql(
                self._reach.stores.view,
                query,
                parameters,
                timeout_s=deadline.remaining_s,
                memory_limit=_MEMORY,
            )
        except UnknownStateStoreException:
            raise
        except (TypeError, ValueError) as error:
            raise bad(str(error)) from error
        except SetupException as error:
            raise Refused(501, "NotImplemented", str(error)) from error
        positions = json.loads(table.schema.metadata[POSITIONS])
        if not request.local:
            self._check_whole(positions)
        if table.nbytes > self._reach.limits.answer_bytes:
            most = self._reach.limits.answer_bytes
            raise Refused(
                413, "TooLarge", f"the answer has more than {most} bytes; select less, or add a limit"
            )
        if form is Form.ARROW:
            return Answer(200, headers={"content-type": form.value}, raw=in_arrow(table))
        names = table.schema.names
        found = [column.to_pylist() for column in table.columns]
        rows = [[_shown(value) for value in row] for row in zip(*found, strict=True)]
        if form is Form.CSV:
            headers = {"content-type": "text/csv; charset=utf-8; header=present"}
            return Answer(200, headers=headers, raw=as_csv(names, rows))
        if form is Form.NDJSON:
            return Answer(200, headers={"content-type": form.value}, raw=_lines(names, rows))
        columns = [{"name": field.name, "type": str(field.type)} for field in table.schema]
        return Answer(200, {"columns": columns, "rows": rows, "positions": positions}).encoded()

    def _check_whole(self, stores: Mapping[str, Any]) -> None:
        known = self._reach.stores.snapshot().stores
        for name in sorted(stores):
            if name in known and not self._reach.places.is_whole(known[name], stale=False):
                raise bad(
                    f"this client has only a part of store '{name}', and SQL does not ask the others; with "
                    "local=true it selects from that part"
                )

    def close(self) -> None:
        """End its thread. Idempotent."""
        self._worker.close(1.0)


def query_in(body: bytes) -> tuple[str, Sequence[Any] | Mapping[str, Any] | None]:
    """The query that a body has, and its parameters.

    Raises:
        Refused: it has none.
    """
    given = parse_json(body)
    if not isinstance(given, dict) or not given.keys() <= {"query", "parameters"}:
        raise bad('the body is {"query": "select …", "parameters": […]}')
    query, parameters = given.get("query"), given.get("parameters")
    if not isinstance(query, str) or not isinstance(parameters, list | dict | None):
        raise bad("'query' is a text; 'parameters' is a list for ?, or an object for $name")
    return query, parameters


def _lines(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """An object a line.

    Raises:
        Refused: two columns have the same name.
    """
    if len(set(names)) < len(names):
        raise bad("two columns of the answer have the same name; name them with 'as'")
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
        return str(value)  # an interval, say
