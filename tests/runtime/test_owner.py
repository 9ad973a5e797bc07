"""The owner of a client's state: instructions in their order, one at a time, and nobody waits for another."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest
from fake_ports import ManualClock
from waiting import wait_until

from millstream.machine import Announcer
from millstream.runtime.owner import Owner
from millstream.runtime.state.client_state import ClientFacts, ClientState
from millstream.runtime.state.events import (
    AddAsked,
    BeginThread,
    CloseAsked,
    Created,
    Instruction,
    MakeThread,
    Moved,
    OpeningBegins,
    OpeningEnded,
    RemoveAsked,
    StartAsked,
    StopThread,
    ThreadMoved,
)
from millstream.states import State, ThreadState

SOON_S = 20.0
log = logging.getLogger("millstream.owner_test")


class Desk:
    """An owner, and what it has had carried out."""

    def __init__(self, perform: Callable[[Desk, Instruction], None] = lambda desk, each: None) -> None:
        self.done: list[Instruction] = []
        self.told: list[State] = []
        self.seen: list[State] = []
        announcer: Announcer[State] = Announcer(owner="client", log=log, clock=ManualClock())
        announcer.add_listener(lambda new, old: self.told.append(new))

        def carry_out(instruction: Instruction) -> None:
            perform(self, instruction)
            self.done.append(instruction)

        self.owner = Owner(
            ClientState(ClientFacts("c")),
            carry_out,
            at_change=lambda: self.seen.append(self.owner.state.state),
            announcer=announcer,
            clock=ManualClock(),
            log=log,
        )

    def start(self, threads: int = 0) -> None:
        for event in (Created(threads), StartAsked(), OpeningBegins(), OpeningEnded()):
            self.owner.call(event)

    def names(self, kind: type) -> list[str]:
        return [each.name for each in self.done if isinstance(each, kind)]  # type: ignore[attr-defined]


def test_an_event_that_comes_while_instructions_are_carried_out_waits_for_its_turn() -> None:
    """A thread that is stopped before it began is DEAD at once: in the middle of what stops it."""

    def perform(desk: Desk, instruction: Instruction) -> None:
        if isinstance(instruction, StopThread):
            for state in (ThreadState.PENDING_SHUTDOWN, ThreadState.DEAD):
                desk.owner.call(ThreadMoved(instruction.name, state))
            assert desk.owner.state.entry(instruction.name) is None
            assert desk.owner.state.live

    desk = Desk(perform)
    desk.owner.call(Created(2))
    desk.owner.call(StartAsked())
    told = desk.owner.call(RemoveAsked())
    assert [type(each).__name__ for each in told].count("StopThread") == 1
    assert [type(each).__name__ for each in desk.done[-2:]] == ["StopThread", "ForgetThread"]


def test_many_threads_post_and_instructions_keep_the_order_of_the_steps() -> None:
    """Each thread is made before it begins, and no two are carried out at once."""
    busy = threading.Lock()

    def perform(desk: Desk, instruction: Instruction) -> None:
        assert busy.acquire(blocking=False), "two at once"
        busy.release()

    desk = Desk(perform)
    desk.start()
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(desk.owner.call, AddAsked()) for _ in range(40)]:
            done.result(SOON_S)
    assert desk.names(MakeThread) == desk.names(BeginThread)
    assert len(set(desk.names(MakeThread))) == 40
    desk.owner.state.check()


def test_who_calls_waits_for_what_another_thread_carries_out() -> None:
    """post() does not wait."""
    at_it, go_on = threading.Event(), threading.Event()

    def perform(desk: Desk, instruction: Instruction) -> None:
        if isinstance(instruction, MakeThread) and not at_it.is_set():
            at_it.set()
            assert go_on.wait(SOON_S)

    desk = Desk(perform)
    desk.start()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(desk.owner.call, AddAsked())
        assert at_it.wait(SOON_S)
        desk.owner.post(AddAsked())
        assert len(desk.owner.state.threads) == 2  # decided, and not yet done
        second = pool.submit(desk.owner.call, AddAsked())
        wait_until(lambda: len(desk.owner.state.threads) == 3, "the third is decided", SOON_S)
        assert not second.done()
        go_on.set()
        first.result(SOON_S)
        second.result(SOON_S)
    assert len(desk.names(BeginThread)) == 3


def test_what_cannot_be_carried_out_closes_the_client(caplog: pytest.LogCaptureFixture) -> None:
    """The rest of the instructions is carried out all the same."""

    def perform(desk: Desk, instruction: Instruction) -> None:
        if isinstance(instruction, BeginThread):
            raise RuntimeError("can't start new thread")

    desk = Desk(perform)
    desk.start(threads=2)
    assert desk.owner.state.state is State.PENDING_ERROR
    failure = desk.owner.state.failure
    assert failure is not None
    assert "could not carry out BeginThread" in str(failure.error)
    assert isinstance(failure.error.__cause__, RuntimeError)
    assert len(desk.names(StopThread)) == 2
    assert "can't start new thread" in caplog.text


def test_ctrl_c_does_not_leave_instructions_behind() -> None:
    """It is the user's, on whose thread they were carried out; once they are."""

    def perform(desk: Desk, instruction: Instruction) -> None:
        if isinstance(instruction, MakeThread) and not desk.names(MakeThread):
            desk.done.append(instruction)
            raise KeyboardInterrupt

    desk = Desk(perform)
    with pytest.raises(KeyboardInterrupt):
        desk.owner.call(Created(3))
    assert len(desk.names(MakeThread)) == 3
    desk.owner.call(CloseAsked())
    assert desk.owner.state.state is State.PENDING_SHUTDOWN


def test_ctrl_c_at_any_call_leaves_nobody_waiting() -> None:
    """The interpreter looks for signals when a function begins and after each call. Whichever of these it is
    outside of what is carried out: the next who calls does not wait for ever, and nothing is done twice.
    """
    at, landed = 0, True
    while landed:
        at += 1
        desk, seen, landed = Desk(), 0, False
        desk.start()

        def interrupt(frame: FrameType, event: str, argument: object, at: int = at) -> None:
            nonlocal seen, landed
            if not landed and event in ("call", "c_return") and _works_off(frame, event):
                seen += 1
                if seen == at:
                    landed = True
                    raise KeyboardInterrupt

        sys.setprofile(interrupt)
        try:
            desk.owner.post(AddAsked())
        except KeyboardInterrupt:
            assert landed
        finally:
            sys.setprofile(None)
        other = threading.Thread(target=lambda owner=desk.owner: owner.call(CloseAsked()), daemon=True)
        other.start()
        other.join(SOON_S)
        assert not other.is_alive(), f"it waits for ever: Ctrl-C came at call {at}"
        assert len(desk.names(MakeThread)) == len(desk.names(BeginThread)) == 1
    assert at > 8


def _works_off(frame: FrameType, event: str) -> bool:
    """Whether a call belongs to the owner's working off, and not to what it carries out."""
    each: FrameType | None = frame
    while each is not None and each.f_code.co_name not in ("_work_off", "carry_out", "deliver"):
        each = each.f_back
    began = each is frame and event == "call"  # the working off itself; nothing is taken yet
    return each is not None and each.f_code.co_name == "_work_off" and not began


def test_listeners_are_called_with_nothing_held_and_see_the_new_state() -> None:
    """They may ask for more; what comes of it is told after the present call."""
    desk = Desk()
    seen: list[tuple[State, State]] = []

    def close(new: State, old: State) -> None:
        seen.append((new, desk.owner.state.state))
        if new is State.REBALANCING:
            desk.owner.call(CloseAsked())

    desk.owner._announcer.add_listener(close)
    desk.owner.call(StartAsked())
    assert desk.told == [State.REBALANCING, State.PENDING_SHUTDOWN]
    assert seen == [
        (State.REBALANCING, State.REBALANCING),
        (State.PENDING_SHUTDOWN, State.PENDING_SHUTDOWN),
    ]
    assert desk.seen == desk.told
    assert [each for each in desk.done if isinstance(each, Moved)] == [
        Moved(State.REBALANCING, State.CREATED),
        Moved(State.PENDING_SHUTDOWN, State.REBALANCING),
    ]
