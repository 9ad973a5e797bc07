"""Whole clients, and groups of them, through random schedules: what must hold does, after each step.

`MILLSTREAM_SCHEDULES=100000` tries as many as one has time for; `MILLSTREAM_FIRST_SCHEDULE` begins elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import pytest
from simulation import Pick, World, picks

from millstream.runtime.state import coordination, reactions
from millstream.runtime.state.client_state import ClientState
from millstream.runtime.state.events import BeginThread, ClosingDone, InterruptEngine, Opening, Phase
from millstream.runtime.state.roster import Roster
from millstream.runtime.state.supervision import ShutdownApplication
from millstream.runtime.state.turn import Turn

SCHEDULES = int(os.environ.get("MILLSTREAM_SCHEDULES", "1000"))
FIRST = int(os.environ.get("MILLSTREAM_FIRST_SCHEDULE", "0"))
STEPS = 40


@lru_cache(maxsize=64)
def beginning(clients: int, threads: int, has_global: bool, begun: bool) -> World:
    """Clients that were made, or that were started and run."""
    world = World(clients, threads, has_global=has_global)
    if begun:
        world.begin()
    return world


def world_of(seed: int) -> World:
    return beginning(1 + seed % 3, 1 + seed // 3 % 2, seed % 5 == 0, seed % 4 != 0).copy()


def failure_of(seed: int, schedule: Sequence[Pick]) -> tuple[str, World] | None:
    """What goes wrong with a schedule, and where."""
    world = world_of(seed)
    try:
        for pick in schedule:
            world.do(pick)
        if seed % 2:
            world.settle()
        world.close(stuck=seed % 6 == 2)
    except Exception as error:
        return f"{type(error).__name__}: {error}", world
    return None


def shortest(seed: int, schedule: list[Pick]) -> list[Pick]:
    """The same failure with as few steps as possible: what can be left out is left out."""
    size = max(1, len(schedule) // 2)
    while size:
        at = 0
        while at < len(schedule):
            shorter = schedule[:at] + schedule[at + size :]
            if failure_of(seed, shorter) is not None:
                schedule = shorter
            else:
                at += size
        size //= 2
    return schedule


def first_failure(seeds: range) -> str | None:
    """The first schedule that does not end well, as a short script."""
    for seed in seeds:
        schedule = picks(seed, STEPS)
        if failure_of(seed, schedule) is None:
            continue
        found = failure_of(seed, shortest(seed, schedule))
        assert found is not None
        problem, world = found
        begun = "all are started, and run" if seed % 4 else "none is started"
        ended = "then everybody goes on, and all are closed" if seed % 2 else "then all are closed"
        return "\n  ".join([f"schedule {seed}:", begun, *world.script, ended, f"=> {problem}"])
    return None


def test_whatever_happens_what_must_hold_does() -> None:
    """Transitions are legal, no answer is lost, a RUNNING client runs everything, and close() always ends."""
    found = first_failure(range(FIRST, FIRST + SCHEDULES))
    assert found is None, found


# --- that it finds what is wrong ---------------------------------------------------------------------------


def answers_of_removed_threads_are_dropped(patch: pytest.MonkeyPatch) -> None:
    whole = reactions.decide

    def decide(answer: Any, failure: Any, view: Any, plan: Any) -> Any:
        removed = view.removed and view.state.is_running_or_rebalancing
        return () if removed else whole(answer, failure, view, plan)

    patch.setattr(reactions, "decide", decide)


def nobody_is_told_of_a_shutdown(patch: pytest.MonkeyPatch) -> None:
    whole = reactions.decide

    def decide(*given: Any) -> Any:
        return tuple(each for each in whole(*given) if not isinstance(each, ShutdownApplication))

    patch.setattr(reactions, "decide", decide)


def running_does_not_wait_for_work_that_is_on_its_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "is_settled", True)


def running_does_not_wait_for_the_groups_first_answer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClientState, "is_settled", property(lambda state: state.roster.is_settled))


def leaving_the_group_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(reactions._NEXT, Phase.GLOBAL, Phase.REST)


def an_added_thread_begins_while_start_is_at_work(patch: pytest.MonkeyPatch) -> None:
    whole = Turn.add_thread

    def add(turn: Turn, **given: Any) -> Any:
        entry = whole(turn, **given)
        if turn.state.opening is Opening.AT_WORK:
            turn.do(BeginThread(entry.name))
        return entry

    patch.setattr(Turn, "add_thread", add)


def closing_waits_for_spark(patch: pytest.MonkeyPatch) -> None:
    whole = Turn.do
    patch.setattr(
        Turn, "do", lambda turn, *done: whole(turn, *(each for each in done if each != InterruptEngine()))
    )


def nonsense_of_the_leader_is_taken_for_work(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordination, "unknown_work", lambda assignment, tasks: None)


def the_group_does_not_agree_again_after_an_error(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(coordination, "agreement_asked", lambda turn: None)


def what_a_dead_thread_had_goes_to_nobody(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Roster, "gone", lambda roster, name: roster)


def what_was_let_go_of_is_not_told(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "report_released", lambda turn: None)


def closing_has_no_deadline(patch: pytest.MonkeyPatch) -> None:
    whole = reactions._phase_ends
    patch.setattr(
        reactions,
        "_phase_ends",
        lambda turn, event, phase: whole(turn, event, phase) if isinstance(event, ClosingDone) else None,
    )


MUTATIONS = (
    answers_of_removed_threads_are_dropped,
    nobody_is_told_of_a_shutdown,
    running_does_not_wait_for_work_that_is_on_its_way,
    running_does_not_wait_for_the_groups_first_answer,
    leaving_the_group_is_forgotten,
    an_added_thread_begins_while_start_is_at_work,
    closing_waits_for_spark,
    nonsense_of_the_leader_is_taken_for_work,
    the_group_does_not_agree_again_after_an_error,
    what_a_dead_thread_had_goes_to_nobody,
    what_was_let_go_of_is_not_told,
    closing_has_no_deadline,
)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_it_finds_what_is_broken(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules of each run are enough for that."""
    mutation(monkeypatch)
    tried = next((seed for seed in range(600) if failure_of(seed, picks(seed, STEPS)) is not None), None)
    assert tried is not None, "no schedule finds it"


def test_a_found_schedule_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads as a script."""
    answers_of_removed_threads_are_dropped(monkeypatch)
    beginning.cache_clear()
    found = first_failure(range(600))
    assert found is not None
    assert len(found.splitlines()) <= 9, found
    assert "remove_stream_thread()" in found
    assert "and the client goes on" in found
