"""Commands over HTTP: who may give them, and what they say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.errors import IllegalStateException, TimeoutException
from millstream.model import PipelineMetadata, TaskId, TaskMetadata, ThreadMetadata, TopicPartition
from millstream.remote.answers import Refused
from millstream.remote.routes import ROUTES, parse_request
from millstream.server.entrance import Entrance, Limits
from millstream.server.service import Actions

HEADER = {b"authorization": [b"Bearer secret"]}


def test_what_changes_a_client_is_a_post_and_marked() -> None:
    """All that is posted, but for the read of many keys."""
    assert {route.name for route in ROUTES if route.acts} == {"pause", "resume", "close", "change_threads"}
    assert {route.name for route in ROUTES if route.method == "POST" and not route.acts} == {
        "multi_get",
        "sql",
    }
    assert parse_request("POST", b"/v1/threads", b"").route.name == "change_threads"
    assert parse_request("GET", b"/v1/threads", b"").route.name == "threads"
    with pytest.raises(Refused, match="needs POST"):
        parse_request("GET", b"/v1/pause", b"")


@pytest.mark.parametrize(
    ("token", "headers", "status"),
    [(None, {}, 403), (None, HEADER, 403), ("secret", {}, 401), ("secret", HEADER, None)],
)
def test_commands_need_a_token_that_is_there(
    token: str | None, headers: Mapping[bytes, list[bytes]], status: int | None
) -> None:
    """A server that has none takes none, whatever is shown; reading is as before."""
    entrance = Entrance(token, None, None, None, Limits())
    if status is None:
        entrance.admit(headers, None, acts=True)
        return
    with pytest.raises(Refused) as caught:
        entrance.admit(headers, None, acts=True)
    assert caught.value.status == status
    if token is None:
        entrance.admit(headers, None)


class Late(SimpleNamespace):
    """A client whose threads take their time."""

    client_id = "c"
    application_id = "app"

    def remove_stream_thread(self, timeout: object) -> str | None:
        raise TimeoutException("not in time")

    def add_stream_thread(self) -> str | None:
        return None


def test_threads_change_or_it_is_said_why_not() -> None:
    """One that takes long to end is told as such, and not as an error: asking again would end another."""
    actions = Actions(Late())  # type: ignore[arg-type]
    assert actions.change_threads(b'{"change": "remove"}').body == {
        "client": "c",
        "change": "remove",
        "thread": None,
        "done": False,
    }
    with pytest.raises(IllegalStateException, match="nothing was changed"):
        actions.change_threads(b'{"change": "add"}')
    for body in (b"", b"[]", b'{"change": "double"}', b"\xff"):
        with pytest.raises(Refused, match="the body must be"):
            actions.change_threads(body)


def test_threads_are_told_with_their_pipelines() -> None:
    """The answer is JSON; an unknown lag is null."""
    at = TopicPartition("t", 0)
    thread = ThreadMetadata(
        "c-1",
        "RUNNING",
        (TaskMetadata(TaskId(0, 1)), TaskMetadata(TaskId(0, 0))),
        pipelines=(PipelineMetadata("p0", True, lag={at: 3}), PipelineMetadata("p1", False)),
    )
    streams: Any = SimpleNamespace(
        client_id="c", is_paused=False, metadata_for_local_threads=lambda: (thread,)
    )
    told = json.loads(json.dumps(Actions(streams).threads().body))
    assert told["threads"][0]["tasks"] == ["0_0", "0_1"]
    assert [each["lag"] for each in told["threads"][0]["pipelines"]] == [3, None]
