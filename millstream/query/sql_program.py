"""The program that runs SQL: DuckDB in a separate process, which its parent can end at any time.

It is started by its path (sql_process.py), does not depend on Millstream, and exchanges frames with its
parent over standard input and output: JSON, and Arrow's stream format. For each query:

    parent   {"query", "stores", "parameters", "memory", "seconds"}
    child    {"tables": [...]}                      the tables that it names; or {"failed", "message"}
    parent   {"schemas": [...]} and a schema each   or {"stop"}: a store cannot be read
    child    {"need": store, "columns": [...]}      whenever DuckDB scans
    parent   the columns in frames of Arrow, {"end"}   or {"stop"}: a value cannot be read
    child    the answer in frames of Arrow, {"done"}   or {"failed", "message"}

Its resources are limited by the kernel as well as by DuckDB: memory, files and, if its parent is gone, time.
It ends when its parent does.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import decimal
import json
import os
import resource
import select
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ARROW", "HEADER", "JSON", "decoded", "encoded", "header_of", "tables_in"]

JSON: Final = 0
ARROW: Final = 1
HEADER: Final = 9
"""The header of each frame: its type and its length."""

_IDLE_S = 300.0
"""A process ends after this long without a query."""
_ROWS = 16_384
_SLACK_BYTES = 256 << 20
_MOST_MESSAGE = 4_000


def header_of(kind: int, size: int) -> bytes:
    """The header of a frame."""
    return bytes([kind]) + size.to_bytes(HEADER - 1, "big")


# --- parameters ------------------------------------------------------------------------------------------

_TAG = "$"


def encoded(value: Any) -> Any:
    """A query parameter in a JSON-compatible form.

    Raises:
        TypeError: the parameter's type is not supported.
    """
    match value:
        case None | bool() | str():
            return value
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return {_TAG: "bytes", "is": base64.b64encode(bytes(value)).decode("ascii")}
        case datetime.datetime():
            return {_TAG: "datetime", "is": value.isoformat()}
        case datetime.date():
            return {_TAG: "date", "is": value.isoformat()}
        case datetime.time():
            return {_TAG: "time", "is": value.isoformat()}
        case datetime.timedelta():
            return {_TAG: "timedelta", "is": [value.days, value.seconds, value.microseconds]}
        case decimal.Decimal():
            return {_TAG: "decimal", "is": str(value)}
        case uuid.UUID():
            return {_TAG: "uuid", "is": str(value)}
        case list() | tuple():
            return [encoded(each) for each in value]
        case dict() if all(isinstance(name, str) for name in value):
            return {_TAG: "dict", "is": {name: encoded(each) for name, each in value.items()}}
    if callable(plain := getattr(value, "item", None)) and type(value).__module__ == "numpy":
        return encoded(plain())
    raise TypeError(
        f"sql() takes no parameters of type {type(value).__name__}; it takes None, bool, int, float, str, "
        "bytes, datetime, date, time, timedelta, Decimal, UUID, and lists and dicts of these"
    )


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "bytes": base64.b64decode,
    "datetime": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
    "dict": lambda fields: {name: decoded(each) for name, each in fields.items()},
}


def decoded(value: Any) -> Any:
    """The original parameter of `encoded`."""
    if isinstance(value, list):
        return [decoded(each) for each in value]
    return _DECODERS[value[_TAG]](value["is"]) if isinstance(value, dict) else value


# --- the tables of a query -------------------------------------------------------------------------------


def tables_in(parsed: Any) -> tuple[set[str], set[str]]:
    """The tables without a schema in a parsed query, and the names that it defines, in lower case."""
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


# --- the process -----------------------------------------------------------------------------------------


class _Failed(Exception):
    """Reported to the parent: `kind` is `invalid` (the query is wrong) or `failed` (it could not be run)."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Stopped(Exception):
    """The parent no longer wants the result."""


class _Pipe:
    """Frames from and to the parent. Scans run on DuckDB's threads, so writing takes a lock."""

    def __init__(self, source: int, sink: int) -> None:
        self._source = source
        self._sink = sink
        self._writing = threading.Lock()
        self.asking = threading.Lock()

    def waits(self, seconds: float) -> bool:
        """Whether something arrives within this time."""
        return bool(select.select([self._source], [], [], seconds)[0])

    def send_message(self, **message: Any) -> None:
        self.send(JSON, json.dumps(message).encode("utf-8", "surrogatepass"))

    def send(self, kind: int, payload: Any) -> None:
        view = memoryview(payload)
        with self._writing:
            self._write(memoryview(header_of(kind, view.nbytes)))
            self._write(view)

    def _write(self, view: memoryview) -> None:
        while view:
            view = view[os.write(self._sink, view) :]

    def receive(self, before: Callable[[int], None] = lambda _: None) -> tuple[int, bytearray]:
        """The next frame; `before` is called with its size.

        Raises:
            EOFError: the parent has gone.
        """
        header = self._read(HEADER)
        size = int.from_bytes(header[1:], "big")
        before(size)
        return header[0], self._read(size)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        left = memoryview(data)
        while left:
            got = os.readv(self._source, [left])
            if got == 0:
                raise EOFError
            left = left[got:]
        return data

    def hear(self) -> dict[str, Any]:
        """The next frame, which must be a message."""
        kind, payload = self.receive()
        if kind != JSON:
            raise EOFError
        message: dict[str, Any] = json.loads(payload.decode("utf-8", "surrogatepass"))
        return message


class _Memory:
    """The limit for this process's address space: its current size plus an allowance."""

    def __init__(self, more: int) -> None:
        self._limit = _address_space() + more
        self._apply()

    def add(self, size: int) -> None:
        """Raise the limit for data from the parent."""
        self._limit += size
        self._apply()

    def _apply(self) -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        wanted = self._limit if hard == resource.RLIM_INFINITY else min(self._limit, hard)
        with contextlib.suppress(ValueError, OSError):  # macOS has no such limit
            resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))

    @staticmethod
    def lift() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))


def _address_space() -> int:
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 4 << 30


def _connection() -> Any:
    import duckdb

    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
            "allow_persistent_secrets": "false",
            "python_enable_replacements": "false",  # a variable of the program is not a table
            "temp_directory": "",
            "threads": "2",
        },
    )
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _parsed(connection: Any, query: str) -> Any:
    try:
        raw = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0]
        parsed = json.loads(raw)
    except RecursionError:
        raise _Failed("invalid", "the query is nested too deeply") from None
    if parsed.get("error"):
        why = str(parsed.get("error_message"))
        if "Only SELECT" in why:
            raise _Failed("invalid", "the query is not a SELECT, and stores can only be read")
        raise _Failed("invalid", f"the query cannot be parsed as a SELECT: {why}")
    if len(parsed["statements"]) != 1:
        many = len(parsed["statements"])
        raise _Failed("invalid", f"sql() takes one SELECT statement; got {many} statements")
    return parsed


def _dataset_class() -> Any:
    import pyarrow as pa
    import pyarrow.dataset as ds

    class Remote(ds.Dataset):  # type: ignore[misc]
        """A store that DuckDB scans; each column that it needs is requested from the parent once."""

        def __init__(self, pipe: _Pipe, memory: _Memory, name: str, schema: pa.Schema) -> None:
            # The base class's __init__ is only for objects from C++.
            self._pipe = pipe
            self._memory = memory
            self._name = name
            self._schema = schema
            self._columns: dict[str, pa.ChunkedArray] = {}

        @property
        def schema(self) -> pa.Schema:
            return self._schema

        def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **options: Any) -> Any:
            """As in pyarrow's own datasets; DuckDB calls it on one of its threads."""
            asked = self._schema.names if columns is None else list(columns)
            looked_at = "" if filter is None else str(filter)
            needed = [name for name in self._schema.names if name in asked or name in looked_at]
            needed = needed or self._schema.names[:1]
            with self._pipe.asking:
                missing = [name for name in needed if name not in self._columns]
                if missing:
                    self._columns.update(self._asked_for(missing))
            table = pa.table({name: self._columns[name] for name in needed})
            return ds.dataset(table).scanner(columns=asked, filter=filter, **options)

        def _asked_for(self, names: list[str]) -> dict[str, pa.ChunkedArray]:
            self._pipe.send_message(need=self._name, columns=names)
            batches: list[pa.RecordBatch] = []
            while True:
                kind, payload = self._pipe.receive(self._memory.add)
                if kind == JSON:
                    if b"end" not in payload:
                        raise _Stopped
                    break
                batches += pa.ipc.open_stream(pa.py_buffer(payload))
            schema = pa.schema([self._schema.field(name) for name in names])
            table = pa.Table.from_batches(batches, schema)
            return dict(zip(names, table.columns, strict=True))

    return Remote


def _answer(connection: Any, query: str, parameters: Any) -> Iterator[tuple[pa.Schema, Any]]:
    """The result in batches, as they are computed; at the end one without a batch."""
    found = connection.sql(query, params=parameters) if parameters is not None else connection.sql(query)
    reader = found.to_arrow_reader(_ROWS)
    for batch in reader:
        yield reader.schema, batch
    yield reader.schema, None


def _run(pipe: _Pipe, connection: Any, asked: Mapping[str, Any], remote: Any) -> None:
    import pyarrow as pa

    most = int(asked["memory"])
    connection.execute(f"SET memory_limit = '{most}B'")
    memory = _Memory(2 * most + _SLACK_BYTES)
    tables, defined = tables_in(_parsed(connection, asked["query"]))
    pipe.send_message(tables=sorted(tables), defined=sorted(defined))
    reply = pipe.hear()
    if "stop" in reply:
        raise _Stopped
    datasets = []
    for name in reply["schemas"]:
        _, payload = pipe.receive()
        datasets.append(remote(pipe, memory, name, pa.ipc.read_schema(pa.py_buffer(payload))))
        connection.register(name, datasets[-1])
    connection.execute("SET lock_configuration = true")
    size = 0
    for schema, batch in _answer(connection, asked["query"], decoded(asked["parameters"])):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            if batch is not None:
                writer.write_batch(batch)
        frame = sink.getvalue()
        size += frame.size
        if size > most:
            raise _Failed(
                "failed",
                f"the result of the query is larger than the memory limit of {most} bytes; select less, or "
                "allow more memory",
            )
        pipe.send(ARROW, frame)


def _report_of(error: BaseException) -> tuple[str, str]:
    """The report of an exception for the parent."""
    import duckdb

    if isinstance(error, _Failed):
        return error.kind, str(error)
    text = str(error)[:_MOST_MESSAGE]
    if isinstance(error, MemoryError | duckdb.OutOfMemoryException):
        return "failed", f"the query failed in DuckDB: out of memory: {text}"
    if isinstance(error, RecursionError):
        return "invalid", "the query is nested too deeply"
    understood = (duckdb.ProgrammingError, duckdb.NotSupportedError, duckdb.PermissionException)
    if isinstance(error, understood):
        return "invalid", f"the query cannot be run: {text}"
    return "failed", f"the query failed in DuckDB: {text or type(error).__name__}"


class _WithoutPandas:
    """Hides pandas from pyarrow, which would load it. That takes longer than all the rest, and is useless
    here."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _serve(pipe: _Pipe) -> None:
    reply = pipe.hear()
    sys.path += [each for each in reply["path"] if each not in sys.path]
    sys.meta_path.insert(0, _WithoutPandas())
    remote = _dataset_class()
    connection = _connection()
    pipe.send_message(ready=True)
    while pipe.waits(_IDLE_S):
        asked = pipe.hear()
        # If nothing else does, the kernel ends this process shortly after its deadline.
        signal.setitimer(signal.ITIMER_REAL, float(asked["seconds"]) + 2.0)
        try:
            _run(pipe, connection, asked, remote)
        except EOFError:
            raise
        except BaseException as error:
            _Memory.lift()
            kind, message = _report_of(error)
            pipe.send_message(failed=kind, message=message)
        else:
            pipe.send_message(done=True)
        _Memory.lift()
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.close()
        connection = _connection()  # for the next query, while no caller is waiting


def _end_with_parent(life: int) -> None:
    """End this process with its parent: nothing is ever written to `life`, and the parent's end closes it."""

    def watch() -> None:
        os.read(life, 1)
        os._exit(1)

    threading.Thread(target=watch, name="ends-with-parent", daemon=True).start()


def main() -> None:
    """`sql_program.py LIFE`: the number of the file descriptor that the parent holds open."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # These signals are meant for the program, which then ends this process; systemd sends them to all
    # processes of a service.
    for signal_ in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signal_, signal.SIG_IGN)
    source, sink = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for each in (0, 1):
        os.dup2(nowhere, each)  # a library's output would corrupt the frames
    _end_with_parent(int(sys.argv[1]))
    for what in (resource.RLIMIT_CORE, resource.RLIMIT_FSIZE):
        resource.setrlimit(what, (0, 0))
    with contextlib.suppress(EOFError, BrokenPipeError):
        _serve(_Pipe(source, sink))


if __name__ == "__main__":
    main()
