"""Ranges as lines of JSON, as CSV and in Arrow: all of a range, page after page."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from server_world import Answered, Application, application, call, filled

from millstream.remote.answers import Refused
from millstream.remote.json_codec import to_base64
from millstream.remote.routes import ROUTES
from millstream.serdes.serdes import Serdes
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.forms import MediaType, as_csv, form_of

KEYS = sorted(f"key-{number}" for number in range(25))
BY_NAME = {route.name: route for route in ROUTES}


def asked(app: QueryApplication, target: str, accept: str, **more: Any) -> Answered:
    """What comes to a client that stays until the end; the answer is whole."""

    async def run() -> Answered:
        messages = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            message = next(messages, None)
            return message if message is not None else await asyncio.Event().wait()

        headers = [(b"accept", accept.encode())]
        return await call(app, "GET", target.encode(), headers, receive=receive, **more)

    return asyncio.run(asyncio.wait_for(run(), 20))


@pytest.fixture(scope="module")
def world() -> Application:
    return filled()


@pytest.fixture(scope="module")
def app(world: Application) -> Iterator[QueryApplication]:
    """Its pages are small, so that there are many."""
    made = QueryApplication(world.clients[0], limits=Limits(page=4))
    yield made
    made.close()


# --- which form ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ("", MediaType.JSON),
        ("*/*", MediaType.JSON),
        ("application/*", MediaType.JSON),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", MediaType.JSON),
        ("application/x-ndjson", MediaType.NDJSON),
        ("application/ndjson", MediaType.NDJSON),
        ("TEXT/CSV; charset=utf-8", MediaType.CSV),
        ("application/json;q=0.5, text/csv", MediaType.CSV),
        ("text/csv;q=0.4, application/json", MediaType.JSON),
        ("text/csv;q=0, */*", MediaType.JSON),
        ("text/csv;q=x, */*;q=0.1", MediaType.JSON),
        ("application/vnd.apache.arrow.stream", MediaType.ARROW),
        ("text/event-stream", MediaType.EVENTS),
    ],
)
def test_what_is_liked_best_is_given(accept: str, form: MediaType) -> None:
    """The choice is among the available forms; a browser, which prefers pages, gets JSON."""
    assert form_of(BY_NAME["entries"], accept) is form


@pytest.mark.parametrize("accept", ["application/parquet", "text/html", "application/json;q=0"])
def test_what_there_is_not_is_told(accept: str) -> None:
    """The answer lists the available forms."""
    with pytest.raises(Refused, match=r"application/json.*text/csv") as refused:
        form_of(BY_NAME["entries"], accept)
    assert refused.value.status == 406


def test_where_there_is_one_form_it_is_given() -> None:
    """The Accept header does not matter: an orchestrator's probe may send any."""
    assert form_of(BY_NAME["live"], "text/plain") is MediaType.JSON


# --- the forms -------------------------------------------------------------------------------------------


def test_lines_of_json_have_the_whole_range(app: QueryApplication) -> None:
    """A line for each entry, the same as an entry of a page."""
    answer = asked(app, "/v1/stores/counts/entries", "application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.raw.splitlines()]
    assert [line["key"] for line in lines] == KEYS
    assert lines[0] == {"key": "key-0", "value": 0, "timestamp": 100}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=10", KEYS[:10]),
        ("limit=1", KEYS[:1]),
        ("limit=100", KEYS),
        ("reverse=true&limit=6", KEYS[::-1][:6]),
        ("prefix=key-1", [key for key in KEYS if key.startswith("key-1")]),
        ("from=key-2&to=key-3", [key for key in KEYS if "key-2" <= key <= "key-3"]),
        ("from=x", []),
    ],
)
@pytest.mark.parametrize("accept", ["application/x-ndjson", "text/csv", MediaType.ARROW.value])
def test_the_parameters_are_those_of_a_page(
    app: QueryApplication, query: str, expected: list[str], accept: str
) -> None:
    """Only `limit` differs: it counts for the whole stream."""
    answer = asked(app, f"/v1/stores/counts/entries?{query}", accept)
    if accept == "text/csv":
        found = [row["key"] for row in csv.DictReader(io.StringIO(answer.raw.decode()))]
    elif accept == MediaType.ARROW.value:
        found = pa.ipc.open_stream(answer.raw).read_all().column("key").to_pylist()
    else:
        found = [json.loads(line)["key"] for line in answer.raw.splitlines()]
    assert found == expected


def test_csv_begins_with_the_names(app: QueryApplication) -> None:
    """Windows have their times."""
    rows = list(csv.reader(io.StringIO(asked(app, "/v1/stores/windows/windows/a", "text/csv").raw.decode())))
    assert rows[0] == ["key", "start", "end", "value", "timestamp"]
    assert rows[1:] == [["a", str(n * 1000), str(n * 1000 + 1000), str(n), str(n * 1000)] for n in range(5)]
    rows = list(csv.reader(io.StringIO(asked(app, "/v1/stores/sessions/sessions", "text/csv").raw.decode())))
    assert rows[0] == ["key", "start", "end", "value"]
    assert len(rows) == 11


def test_cells_of_csv() -> None:
    """Quotes and line breaks are kept, and what a spreadsheet would evaluate; what has parts is JSON; nothing
    is nothing.
    """
    cells = ['say "ä",\r\n', {"b": [1, None]}, True, None, {"$bytes": "AAA="}, "=1+1", "-1", "@a"]
    data = as_csv(("a",), [[cell] for cell in cells])
    assert list(csv.reader(io.StringIO(data.decode("utf-8"), newline=""))) == [
        ["a"],
        ['say "ä",\r\n'],
        ['{"b":[1,null]}'],
        ["true"],
        [""],
        ["AAA="],
        ["=1+1"],
        ["-1"],
        ["@a"],
    ]


def test_arrow_has_the_types_of_the_serdes(app: QueryApplication) -> None:
    """The columns of to_arrow(), in many batches."""
    answer = asked(app, "/v1/stores/counts/entries?from=key-0", MediaType.ARROW.value)
    assert answer.headers["content-type"] == MediaType.ARROW.value
    reader = pa.ipc.open_stream(answer.raw)
    batches = list(reader)
    assert len(batches) > 3
    table = pa.Table.from_batches(batches)
    assert table.schema.names == ["key", "value", "timestamp"]
    assert table.schema.field("value").type == pa.int64()
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == {
        f"key-{n}": n for n in range(25)
    }
    windows = pa.ipc.open_stream(
        asked(app, "/v1/stores/windows/windows", MediaType.ARROW.value).raw
    ).read_all()
    assert windows.schema.names == ["key", "window_start", "window_end", "value", "timestamp"]
    assert windows.num_rows == 10
    one = f"/v1/stores/sessions/sessions/{to_base64(b'a')}?format=bytes"
    sessions = pa.ipc.open_stream(asked(app, one, MediaType.ARROW.value).raw).read_all()
    assert sessions.schema.names == ["key", "window_start", "window_end", "value"]
    assert sessions["window_end"].cast(pa.int64()).to_pylist() == [500, 1500, 2500, 3500, 4500]


def test_one_window_is_a_range_of_one(app: QueryApplication) -> None:
    """If there is none, the status is 404, as with JSON."""
    answer = asked(app, "/v1/stores/windows/windows/a?time=1000", "application/x-ndjson")
    assert [json.loads(line)["start"] for line in answer.raw.splitlines()] == [1000]
    assert asked(app, "/v1/stores/windows/windows/a?time=1", "text/csv").status == 404


def test_what_is_wrong_from_the_start_is_an_error(app: QueryApplication) -> None:
    """The error is in JSON."""
    answer = asked(app, "/v1/stores/nosuch/entries", "text/csv")
    assert (answer.status, answer.body["error"]) == (404, "UnknownStateStoreException")
    answer = asked(app, "/v1/stores/counts/entries", "application/parquet")
    assert (answer.status, answer.body["error"]) == (406, "NotAcceptable")


def test_what_becomes_wrong_is_cut() -> None:
    """A page that cannot be read ends the answer without an end."""
    world = application()
    for number in range(8):
        world.put(f"key-{number}", number)
    client = world.clients[0]
    app = QueryApplication(client, limits=Limits(page=4))
    sent: list[dict[str, Any]] = []

    async def run() -> None:
        first = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> Any:
            message = next(first, None)
            return message if message is not None else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            sent.append(dict(message))
            if len(sent) == 2:  # the first page has been sent
                client.publish(client_state="PENDING_SHUTDOWN")

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/v1/stores/counts/entries",
            "query_string": b"",
            "headers": [(b"accept", b"text/csv")],
        }
        await asyncio.wait_for(app(scope, receive, send), 20)

    asyncio.run(run())
    app.close()
    assert [message.get("more_body") for message in sent] == [None, True]


def test_values_that_are_not_text_are_written_as_json() -> None:
    """A struct, in one cell."""
    world = application(value_serde=Serdes.json("n INT, t ARRAY<STRING>"))
    world.put_bytes("counts", b"a", b'{"n":1,"t":["x"]}')
    app = QueryApplication(world.clients[0])
    rows = list(csv.reader(io.StringIO(asked(app, "/v1/stores/counts/entries", "text/csv").raw.decode())))
    arrow = pa.ipc.open_stream(asked(app, "/v1/stores/counts/entries", MediaType.ARROW.value).raw).read_all()
    app.close()
    assert rows[1][:2] == ["a", '{"n":1,"t":["x"]}']
    assert arrow["value"].to_pylist() == [{"n": 1, "t": ["x"]}]
