"""The three lifecycle tables, cell by cell, against Kafka Streams' own."""

from __future__ import annotations

import logging
from enum import Enum
from typing import Any

import pytest

from millstream.errors import IllegalStateException
from millstream.machine import Machine, Rules
from millstream.runtime.client import KafkaStreams
from millstream.states import (
    CLIENT,
    GLOBAL_THREAD,
    STREAM_THREAD,
    GlobalThreadState,
    State,
    ThreadState,
    all_running,
)

# What Kafka Streams 4.3.1 does with each request, one letter for each new state in the enum's order:
# y moves, - is silently refused, X is a bug (IllegalStateException).
EXPECTED: dict[Enum, str] = {
    State.CREATED: "XyXyXXX",
    State.REBALANCING: "X-yyXyX",
    State.RUNNING: "XyyyXyX",
    State.PENDING_SHUTDOWN: "----y--",
    State.NOT_RUNNING: "XXX--XX",
    State.PENDING_ERROR: "------y",
    State.ERROR: "XXX-X--",
    ThreadState.CREATED: "XyXXXyX",
    ThreadState.STARTING: "XXyyXyX",
    ThreadState.PARTITIONS_REVOKED: "XXyyXyX",
    ThreadState.PARTITIONS_ASSIGNED: "XXyyyyX",
    ThreadState.RUNNING: "XXyyyyX",
    ThreadState.PENDING_SHUTDOWN: "------y",
    ThreadState.DEAD: "-------",
    GlobalThreadState.CREATED: "XyyX",
    GlobalThreadState.RUNNING: "XXyX",
    GlobalThreadState.PENDING_SHUTDOWN: "XX-y",
    GlobalThreadState.DEAD: "----",
}
TABLES: dict[type[Enum], Rules[Any]] = {
    State: CLIENT,
    ThreadState: STREAM_THREAD,
    GlobalThreadState: GLOBAL_THREAD,
}


@pytest.mark.parametrize("old", EXPECTED, ids=lambda old: f"{type(old).__name__}-{old.name}")
def test_every_cell_of_the_tables_is_kafkas(old: Enum) -> None:
    """Moves, is silently refused, or is a bug: as in KafkaStreams, StreamThread and GlobalStreamThread."""
    for new, expected in zip(type(old), EXPECTED[old], strict=True):
        machine: Machine[Any] = Machine(
            TABLES[type(old)], old, owner="test", log=logging.getLogger("millstream.test")
        )
        match expected:
            case "y":
                assert machine.to(new), new
                assert machine.state is new
            case "-":
                assert not machine.to(new), new
                assert machine.state is old
            case _:
                with pytest.raises(IllegalStateException):
                    machine.to(new)


def test_error_is_reached_from_pending_error_only() -> None:
    """KIP-696."""
    assert [old for old in State if CLIENT.allows(old, State.ERROR)] == [State.PENDING_ERROR]


def test_the_client_ends_in_not_running_or_error() -> None:
    """Nothing follows these two."""
    assert CLIENT.terminal == {State.NOT_RUNNING, State.ERROR}


@pytest.mark.parametrize("state", State)
def test_each_state_is_of_exactly_one_kind(state: State) -> None:
    """The four questions that one can ask a state divide the seven states between them."""
    kinds = (
        state.has_not_started,
        state.is_running_or_rebalancing,
        state.is_shutting_down,
        state.has_completed_shutdown,
    )
    assert sum(kinds) == 1
    assert state.has_started_or_finished_shutting_down == (
        state.is_shutting_down or state.has_completed_shutdown
    )


def test_the_state_enum_is_an_attribute_of_the_client() -> None:
    """`KafkaStreams.State.RUNNING`, as in Java."""
    assert KafkaStreams.State.RUNNING is State.RUNNING
    assert State.RUNNING.is_valid_transition(State.PENDING_ERROR)
    assert not State.CREATED.is_valid_transition(State.PENDING_ERROR)


T = ThreadState


@pytest.mark.parametrize(
    ("threads", "expected"),
    [
        ((T.RUNNING,), True),
        ((T.RUNNING, T.RUNNING), True),
        ((T.RUNNING, T.DEAD), True),
        ((T.RUNNING, T.PENDING_SHUTDOWN), True),
        ((T.PENDING_SHUTDOWN,), False),
        ((T.PENDING_SHUTDOWN, T.DEAD), False),
        ((T.RUNNING, T.CREATED), False),
        ((T.RUNNING, T.STARTING), False),
        ((T.RUNNING, T.PARTITIONS_REVOKED), False),
        ((T.RUNNING, T.PARTITIONS_ASSIGNED), False),
        ((T.DEAD,), True),
    ],
)
def test_a_client_is_running_when_all_that_count_are(threads: tuple[T, ...], expected: bool) -> None:
    """Dead threads do not count; a stopping one is tolerated beside one that runs."""
    assert all_running(threads) is expected
