"""Text that others wrote, on each of its ways to a log or a message: one line, no control characters."""

from __future__ import annotations

import io
import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.errors import PipelineException
from millstream.foreign import ESCAPED, listed, printable, printable_lines
from millstream.group.assignor import LeaderFacts, assign
from millstream.group.codes import AssignorError
from millstream.group.userdata import Assignment, MemberInfo
from millstream.group.userdata_layout import LATEST_OFFSET
from millstream.kafka.coordinator import _user_data_of
from millstream.kafka.membership import _failure
from millstream.model import HostInfo, TaskId
from millstream.remote.answers import exception_from
from millstream.runtime.state.coordination import FailThreads, ShutDown, react, unknown_work
from millstream.runtime.state.holdings import placement_of
from millstream.runtime.state.supervision import in_short
from millstream.runtime.topics.preparation import missing_sources

EVIL = "eve\r\n2026-01-01 ERROR forged\x1b[2J\x07\u202e\u2028\x00\ud800"


# --- the function ------------------------------------------------------------------------------------------


@given(st.text(), st.integers(1, 50))
@example("plain", 500)
def test_whatever_it_is_it_is_one_line_and_short(text: str, most: int) -> None:
    """A short printable text is unchanged, so that a second pass changes nothing."""
    shown = printable(text, most)
    assert shown.isprintable()
    assert len(shown) <= 10 * most + 30
    shown.encode()
    if text.isprintable() and len(text) <= most:
        assert shown == text
    if len(shown) <= most:
        assert printable(shown, most) == shown


def test_how_it_looks() -> None:
    """It looks as Python would write it, and says how much was cut."""
    assert printable("a\nb\x1b[0m\u202e") == "a\\nb\\x1b[0m\\u202e"
    assert printable("x" * 600) == "x" * 500 + "... (600 characters)"
    assert printable(ValueError("so\nso")) == "so\\nso"
    assert listed(["a", "b\n", 3], 2) == "'a', 'b\\n' and 1 more"
    assert printable_lines("a\n\tb\x1b\nc") == "a\n\tb\\x1b\nc"


# --- each way ----------------------------------------------------------------------------------------------


def member(**more: object) -> bytes:
    info = MemberInfo(uuid.UUID(int=1), "me", topology="t")
    return replace(info, **more).to_subscription().encode()  # type: ignore[arg-type]


FACTS = LeaderFacts((TaskId(0, 0),), (TaskId(0, 0),), topology="t")
GROUPS: dict[str, Callable[[], dict[str, bytes]]] = {
    "a member's id": lambda: {EVIL: b"garbage"},
    "a client's id": lambda: {"a": member(), "b": member(client_id=EVIL, topology="other")},
    "a topology": lambda: {"a": member(), "b": member(topology=EVIL)},
    "a task that runs": lambda: {EVIL: member(running=frozenset([TaskId(9, 9)]))},
    "a task": lambda: {EVIL: member(tasks={TaskId(9, 9): LATEST_OFFSET})},
    "a process id": lambda: {"a": member(), EVIL: member(client_id=EVIL)},
    "a request to shut down": lambda: {
        "a": member(client_id=EVIL, reason=EVIL, error_code=AssignorError.SHUTDOWN_REQUESTED)
    },
}


@pytest.mark.parametrize("what", GROUPS)
def test_what_members_say_forges_no_line_of_the_leaders_log(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The reasons that members receive are in the logs of other clients, and forge no line there either."""
    with caplog.at_level(logging.DEBUG):
        told = assign(FACTS, GROUPS[what](), "me")
    assert caplog.messages
    for message in caplog.messages:
        assert message.isprintable(), message
    for data in told.values():
        assignment = Assignment.decode(data)
        reaction = react(assignment, "me")
        if isinstance(reaction, FailThreads | ShutDown):
            assert str(reaction.error).isprintable()


WAYS: dict[str, Callable[[], object]] = {
    "a leader's shutdown": lambda: _error_of(Assignment(error_code=4, reason=EVIL, asked_by=EVIL)),
    "a leader's missing topics": lambda: _error_of(
        Assignment(error_code=1, missing_topics=(EVIL,), leader=EVIL)
    ),
    "a leader's error": lambda: _error_of(Assignment(error_code=3, reason=EVIL, leader=EVIL)),
    "a leader's name": lambda: _error_of(Assignment(error_code=3, leader=EVIL)),
    "a leader's unknown code": lambda: _error_of(Assignment(error_code=77, leader=EVIL)),
    "a leader's work": lambda: unknown_work(Assignment(active=(TaskId(9, 9),), leader=EVIL), ()),
    "a broker's refusal": lambda: _refusal(),
    "a topic of the broker": lambda: missing_sources(["eve"], ["eve\x1b"], "h:1"),
    "another query server": lambda: exception_from(500, {"error": "x", "message": EVIL}, "h:1"),
    "a record, in what others are told of a failure": lambda: in_short(
        PipelineException(EVIL, pipeline="p0")
    ),
}


def _error_of(assignment: Assignment) -> object:
    reaction = react(assignment, "me")
    assert isinstance(reaction, FailThreads | ShutDown)
    return reaction.error


def _refusal() -> object:
    from kafka.errors import SaslAuthenticationFailedError

    return _failure(SaslAuthenticationFailedError(EVIL), "group", 1000)


@pytest.mark.parametrize("way", WAYS)
def test_what_comes_into_a_message_is_on_one_line(way: str) -> None:
    """Members, brokers, other servers, records."""
    assert str(WAYS[way]()).isprintable()


def test_a_subscription_that_cannot_be_read_is_told_of_on_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the member's id, which begins with the name that the member gives itself."""
    assert _user_data_of(EVIL, b"\xff") == b""
    (message,) = caplog.messages
    assert message.isprintable()


def test_an_endpoint_that_cannot_be_printed_is_none() -> None:
    """It would come into every message about that client."""
    evil = "eve\x1b[2J:8080"
    with pytest.raises(ValueError, match="is not a client address"):
        HostInfo.parse(evil)
    assert placement_of(Assignment(hosts={evil: ((), ())}), (), "", {})[1] == (evil,)


@pytest.mark.parametrize(
    "name",
    [
        "runtime.threads.handler",
        "runtime.participation",
        "runtime.client",
        "spark.run.streaming_query",
        "spark.run.dropped",
        "stores.updater",
        "kafka.membership",
        "kafka.coordinator",
        "server.application",
    ],
)
def test_an_exception_that_quotes_a_record_begins_no_line_of_the_log(name: str) -> None:
    """What logs failures: a traceback keeps its lines, indented; no escape sequence reaches the terminal."""
    __import__(f"millstream.{name}")
    log = logging.getLogger(f"millstream.{name}")
    assert ESCAPED in log.filters
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("LOG %(message)s"))
    log.addHandler(handler)
    try:
        try:
            raise ValueError(EVIL)
        except ValueError as error:
            log.error("pipeline %s failed\x1b[2J", "p0", exc_info=error)
    finally:
        log.removeHandler(handler)
    lines = out.getvalue().rstrip("\n").split("\n")
    assert lines[0] == "LOG pipeline p0 failed\\x1b[2J"
    assert lines[1] == "  Traceback (most recent call last):"
    assert all(line.startswith("  ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
