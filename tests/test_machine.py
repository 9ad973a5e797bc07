"""The generic state machine."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from enum import Enum

import pytest
from fake_ports import ManualClock

from millstream.errors import IllegalStateException
from millstream.machine import Announcer, Machine, Rules

log = logging.getLogger("millstream.machine_test")


class Door(Enum):
    OPEN = "OPEN"
    CLOSED = "CLOSED"
    LOCKED = "LOCKED"
    GONE = "GONE"


class Cause(Enum):
    KEY_TURNS = "somebody turns the key"
    FIRE = "it burns down"


RULES: Rules[Door] = Rules(
    allowed={
        Door.OPEN: (Door.CLOSED, Door.GONE),
        Door.CLOSED: (Door.OPEN, Door.LOCKED),
        Door.LOCKED: (Door.CLOSED,),
        Door.GONE: (),
    },
    ignored={(Door.CLOSED, Door.CLOSED): "it is closed already"},
    causes={Cause.KEY_TURNS: {Door.CLOSED: Door.LOCKED}, Cause.FIRE: {Door.OPEN: Door.GONE}},
)


def door(state: Door = Door.OPEN) -> Machine[Door]:
    return Machine(RULES, state, owner="door [front]", log=log, clock=ManualClock())


@pytest.mark.parametrize("old", Door)
@pytest.mark.parametrize("new", Door)
def test_a_machine_does_what_its_table_says_and_nothing_else(old: Door, new: Door) -> None:
    """Allowed: moves. Ignored: says so and stays. Neither: raises and stays."""
    machine = door(old)
    if RULES.allows(old, new):
        assert machine.to(new)
        assert machine.state is new
    elif (old, new) in RULES.ignored:
        assert not machine.to(new)
        assert machine.state is old
    else:
        with pytest.raises(IllegalStateException):
            machine.to(new)
        assert machine.state is old


def test_an_illegal_transition_tells_the_last_ten_events() -> None:
    """The message is a bug report: who, what, and the ten events before it, newest last."""
    machine = door()
    for number in range(20):
        machine.note(f"event {number}")
    with pytest.raises(IllegalStateException) as raised:
        machine.to(Door.LOCKED)
    text = str(raised.value)
    assert "door [front]: OPEN -> LOCKED is not a transition; this is a bug, please report it" in text
    assert "event 9 " not in text
    assert [line.split()[2] for line in text.splitlines()[1:]] == [str(number) for number in range(10, 20)]


def test_an_illegal_transition_calls_no_listener() -> None:
    """Nothing happened, so nobody is told."""
    machine, told = door(), []
    machine.add_listener(lambda new, old: told.append(new))
    with pytest.raises(IllegalStateException):
        machine.to(Door.LOCKED)
    assert told == []


def test_each_transition_is_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    """The level is INFO, after the owner's name; an ignored transition is not logged."""
    machine = door()
    with caplog.at_level(logging.INFO, logger=log.name):
        machine.to(Door.CLOSED)
        machine.to(Door.CLOSED)
    assert [record.getMessage() for record in caplog.records] == [
        "door [front] State transition from OPEN to CLOSED"
    ]
    assert caplog.records[0].levelno == logging.INFO


def test_a_cause_leads_to_where_the_table_says() -> None:
    """In a state without a row nothing happens, not even an error for an illegal transition."""
    machine = door()
    assert not machine.because(Cause.KEY_TURNS)
    assert machine.state is Door.OPEN
    machine.to(Door.CLOSED)
    assert machine.because(Cause.KEY_TURNS)
    assert machine.state is Door.LOCKED


def test_a_cause_cannot_lead_where_no_transition_does() -> None:
    """The table is refused as a whole."""
    with pytest.raises(ValueError, match="KEY_TURNS: OPEN -> LOCKED is not allowed"):
        replace(RULES, causes={Cause.KEY_TURNS: {Door.OPEN: Door.LOCKED}})


def test_of_many_threads_one_makes_the_transition() -> None:
    """Ten threads ask at the same moment; one gets True."""
    machine, barrier, won = door(), threading.Barrier(10), []

    def ask() -> None:
        barrier.wait(10)
        if machine.because(Cause.FIRE):
            won.append(threading.current_thread())

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(won) == 1


def test_a_failing_listener_is_logged_and_the_others_are_called(caplog: pytest.LogCaptureFixture) -> None:
    """What a listener raises reaches nobody but the log."""
    machine, told = door(), []

    def broken(new: Door, old: Door) -> None:
        raise ValueError("listener bug")

    machine.add_listener(broken)
    machine.add_listener(lambda new, old: told.append((new, old)))
    assert machine.to(Door.CLOSED)
    assert told == [(Door.CLOSED, Door.OPEN)]
    assert "listener bug" in caplog.text


def test_a_listener_may_make_transitions_and_calls_keep_their_order() -> None:
    """A transition made in a listener is told after the present call, not inside it."""
    machine, told = door(), []

    def lock_when_closed(new: Door, old: Door) -> None:
        if new is Door.CLOSED:
            machine.to(Door.LOCKED)
        told.append(new)

    machine.add_listener(lock_when_closed)
    machine.to(Door.CLOSED)
    assert told == [Door.CLOSED, Door.LOCKED]


def test_calls_come_in_the_order_of_transitions_also_from_several_threads() -> None:
    """While one thread is in a listener, the listener is not called for another thread's transition."""
    machine, told = door(), []
    inside, go_on = threading.Event(), threading.Event()

    def slow(new: Door, old: Door) -> None:
        if new is Door.CLOSED:
            inside.set()
            assert go_on.wait(10)
        told.append(new)

    machine.add_listener(slow)
    first = threading.Thread(target=machine.to, args=(Door.CLOSED,))
    first.start()
    assert inside.wait(10)
    assert machine.to(Door.LOCKED)
    assert told == []
    go_on.set()
    first.join(10)
    assert told == [Door.CLOSED, Door.LOCKED]


def test_a_listener_knows_that_it_is_one() -> None:
    """`in_listener` is true on the calling thread during the call, and on no other."""
    machine, seen = door(), []

    def look(new: Door, old: Door) -> None:
        other: list[bool] = []
        thread = threading.Thread(target=lambda: other.append(machine.in_listener()))
        thread.start()
        thread.join(10)
        seen.append((machine.in_listener(), other[0]))

    machine.add_listener(look)
    machine.to(Door.CLOSED)
    assert seen == [(True, False)]
    assert not machine.in_listener()


def test_at_change_runs_before_who_waits_wakes_up() -> None:
    """What `at_change` writes is there for everyone who sees the new state."""
    written: list[Door] = []
    machine = Machine(RULES, Door.OPEN, owner="door", log=log, at_change=lambda new, old: written.append(new))
    seen: list[list[Door]] = []

    def wait() -> None:
        if machine.wait_until({Door.CLOSED}, 10):
            seen.append(list(written))

    thread = threading.Thread(target=wait)
    thread.start()
    machine.to(Door.CLOSED)
    thread.join(10)
    assert seen == [[Door.CLOSED]]


def test_waiting_for_a_state_ends_at_its_deadline() -> None:
    """False when the time is over, True at once when it is the state already."""
    machine = door()
    assert machine.wait_until({Door.OPEN}, 0)
    assert not machine.wait_until({Door.GONE}, 0.01)


def test_rules_without_a_row_for_each_state_are_refused() -> None:
    """A forgotten state would be a dead end by accident."""
    with pytest.raises(ValueError, match="no row for"):
        Rules(allowed={Door.OPEN: (Door.CLOSED,)})


def test_rules_that_allow_what_they_ignore_are_refused() -> None:
    """One cell has one meaning."""
    allowed = dict.fromkeys(Door, (Door.GONE,))
    with pytest.raises(ValueError, match="both allowed and ignored"):
        Rules(allowed=allowed, ignored={(Door.OPEN, Door.GONE): "?"})


def test_terminal_states_are_those_that_nothing_follows() -> None:
    """The table defines them."""
    assert RULES.terminal == {Door.GONE}


def test_what_was_announced_is_told_when_it_is_delivered() -> None:
    """Whoever holds a lock tells nobody before it lets go."""
    announcer: Announcer[Door] = Announcer(owner="door", log=log, clock=ManualClock())
    told: list[tuple[Door, Door]] = []
    announcer.add_listener(lambda new, old: told.append((old, new)))
    announcer.announce(Door.CLOSED, Door.OPEN)
    announcer.announce(Door.LOCKED, Door.CLOSED)
    assert told == []
    announcer.deliver()
    announcer.deliver()
    assert told == [(Door.OPEN, Door.CLOSED), (Door.CLOSED, Door.LOCKED)]
