"""SQL over HTTP: who may ask, what comes, and what is refused."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from server_world import Answered, application, ask

from millstream.remote.answers import Refused
from millstream.server.application import QueryApplication
from millstream.server.entrance import Limits
from millstream.server.sql_service import query_in

TOKEN = "s3cr3t"


def asked(app: QueryApplication, query: str, target: str = "/v1/sql", **more: Any) -> Answered:
    accept = [(b"accept", more.pop("accept", "application/json").encode())]
    return ask(app, target, token=TOKEN, headers=accept, body={"query": query, **more})


# --- who may ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "shown", "enabled", "status"),
    [
        (None, None, True, 403),
        (None, TOKEN, True, 403),
        (TOKEN, None, True, 401),
        (TOKEN, "another", True, 401),
        (TOKEN, TOKEN, False, 403),
    ],
)
def test_it_is_refused(token: str | None, shown: str | None, enabled: bool, status: int) -> None:
    """Without a token that the server has, and that was shown; and where it is off, which it is by itself."""
    app = QueryApplication(application().clients[0], token, sql=enabled)
    answer = ask(app, "/v1/sql", token=shown, body={"query": "select 1"})
    app.close()
    assert answer.status == status


def test_it_is_off_unless_it_is_switched_on() -> None:
    """The answer names the setting."""
    app = QueryApplication(application().clients[0], TOKEN)
    answer = asked(app, "select 1")
    app.close()
    assert (answer.status, answer.body["error"]) == (403, "Forbidden")
    assert "query.server.sql.enabled" in answer.body["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'"select 1"',
        b'{"query": 1}',
        b'{"query": "select 1", "more": 1}',
        b'{"query": "select ?", "parameters": 1}',
        b'{"query": "select ?", "parameters": "1"}',
    ],
)
def test_what_is_no_query_is_refused(body: bytes) -> None:
    """No process is asked."""
    with pytest.raises(Refused) as refused:
        query_in(body)
    assert refused.value.status == 400


# --- what comes ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def app() -> Iterator[QueryApplication]:
    world = application()
    for number in range(5):
        world.put(f"key-{number}", number, timestamp=1000 * number)
    made = QueryApplication(world.clients[0], TOKEN, sql=True)
    yield made
    made.close()


@pytest.mark.disk
def test_rows_with_the_names_and_types_of_their_columns(app: QueryApplication) -> None:
    """Times as ISO 8601, sums as numbers; and how far the stores were."""
    answer = asked(
        app, "select key, value, timestamp from counts where value > ? order by key", parameters=[2]
    )
    assert answer.status == 200
    assert [column["name"] for column in answer.body["columns"]] == ["key", "value", "timestamp"]
    assert [row[:2] for row in answer.body["rows"]] == [["key-3", 3], ["key-4", 4]]
    assert answer.body["rows"][0][2].startswith("1970-01-01T00:00:03")
    assert list(answer.body["positions"]) == ["counts"]
    total = asked(
        app,
        "select sum(value) as total, avg(value) as mean from counts where value < $most",
        parameters={"most": 9},
    )
    assert total.body["rows"] == [[10, 2.0]]


@pytest.mark.disk
def test_the_other_forms(app: QueryApplication) -> None:
    """Lines, CSV and Arrow."""
    query = "select key, value from counts order by key limit 2"
    lines = asked(app, query, accept="application/x-ndjson").raw.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"key": "key-0", "value": 0},
        {"key": "key-1", "value": 1},
    ]
    table = csv.reader(io.StringIO(asked(app, query, accept="text/csv").raw.decode()))
    assert list(table) == [["key", "value"], ["key-0", "0"], ["key-1", "1"]]
    arrow = asked(app, query, accept="application/vnd.apache.arrow.stream")
    assert pa.ipc.open_stream(arrow.raw).read_all().to_pydict() == {
        "key": ["key-0", "key-1"],
        "value": [0, 1],
    }
    twice = asked(app, "select key as a, value as a from counts", accept="application/x-ndjson")
    assert (twice.status, "same name" in twice.body["message"]) == (400, True)


@pytest.mark.disk
@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("drop table counts", 400, "BadRequest"),
        ("selec", 400, "BadRequest"),
        ("select 1; select 2", 400, "BadRequest"),
        ("select * from nosuch", 404, "UnknownStateStoreException"),
        ("select * from read_csv('/etc/passwd')", 400, "BadRequest"),
    ],
)
def test_what_cannot_be_answered(app: QueryApplication, query: str, status: int, error: str) -> None:
    """The answer gives the reason, in JSON."""
    answer = asked(app, query)
    assert (answer.body["error"], answer.status) == (error, status)


@pytest.mark.disk
def test_a_part_is_not_taken_for_the_whole() -> None:
    """Where others have the rest and cannot be asked, one has to say that this client's part will do."""
    world = application([0, 1], [2, 3])
    app = QueryApplication(world.clients[0], TOKEN, sql=True)
    refused = asked(app, "select count(*) from counts")
    part = asked(app, "select count(*) as n from counts", "/v1/sql?local=true")
    everywhere = asked(app, "select count(*) as n from users")
    app.close()
    assert (refused.status, refused.body["retriable"]) == (503, True)
    assert part.body["rows"] == [[0]]
    assert everywhere.body["rows"] == [[0]]


@pytest.mark.disk
def test_a_large_answer_is_refused() -> None:
    """Its size is bounded."""
    world = application()
    app = QueryApplication(world.clients[0], TOKEN, sql=True, limits=Limits(answer_bytes=10_000))
    answer = asked(app, "select * from range(10000)")
    app.close()
    assert (answer.status, answer.body["error"]) == (413, "TooLarge")
