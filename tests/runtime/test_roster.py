"""The roster: one holder at a time, whatever threads do, and in the end everybody has what they should."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from test_assignment import part
from tiers import examples

from millstream.model import TaskId
from millstream.runtime.state.assignment import Share, StorePart
from millstream.runtime.state.roster import Roster, next_index

LOST = Share((TaskId(9, 9),))


def things(share: Share) -> set[tuple[str, object]]:
    """What it runs and what it stores."""
    return {("runs", task) for task in share.runs} | {("stores", each.changelog) for each in share.parts}


class Office:
    """Has the roster of some workers, and hands out what it says."""

    def __init__(self, on_let_go: Callable[[], None] = lambda: None) -> None:
        self.value = Roster()
        self.workers: dict[str, Worker] = {}
        self.on_let_go = on_let_go

    @property
    def held(self) -> Share:
        return self.value.held

    def change(self, value: Roster) -> None:
        before, self.value = things(self.value.held), value
        self.share_out()
        self.value.check()
        if before - things(self.value.held):
            self.on_let_go()

    def share_out(self) -> None:
        self.value, gifts = self.value.handed_out()
        for gift in gifts:
            self.workers[gift.thread].inbox.append((gift.share, gift.not_before))
            self.workers[gift.thread].tickets.append(gift.ticket)

    def add(self, worker: Worker, *, instead_of: str | None = None) -> None:
        """What it is given comes with the next change, as a replaced thread retires in the same step."""
        self.workers[worker.name] = worker
        self.value = self.value.adding(worker.name, instead_of=instead_of)

    def retire(self, name: str) -> None:
        self.change(self.value.retiring(name))

    def gone(self, name: str) -> None:
        self.change(self.value.gone(name))

    def assign(self, runs: Sequence[TaskId], parts: Sequence[StorePart]) -> None:
        self.change(self.value.assigning(runs, parts))

    def end(self) -> None:
        self.value = self.value.ending()

    def unassign(self) -> None:
        self.value, losses = self.value.losing()
        for loss in losses:
            self.workers[loss.thread].inbox.append((LOST, {}))
            self.workers[loss.thread].tickets.append(loss.ticket)

    def drop(self, name: str, pipeline: str) -> None:
        self.change(self.value.dropping(name, pipeline))

    def hold_back(self, until: Mapping[str, float]) -> None:
        self.value = self.value.holding_back(until)

    def settled(self, name: str, share: Share, ticket: int) -> None:
        self.change(self.value.settled(name, share, ticket))


class Worker:
    """A thread that does what it is given when it is told to."""

    def __init__(self, name: str, office: Office) -> None:
        self.name = name
        self.office = office
        self.inbox: list[tuple[Share, Mapping[str, float]]] = []
        self.tickets: list[int] = []
        self.has = Share()

    def turn(self) -> None:
        """Look at one event: let go first, say so, then take."""
        share, _ = self.inbox.pop(0)
        if share is LOST:
            share = Share((), self.has.parts)
        self.has = Share(
            tuple(task for task in self.has.runs if task in share.runs),
            tuple(each for each in self.has.parts if each in share.parts),
        )
        self.office.settled(self.name, share, self.tickets.pop(0))
        self.has = self.has.joined(share)

    def work(self) -> None:
        """Look at all of them."""
        while self.inbox:
            self.turn()


PARTS = tuple(part(0, number) for number in range(4))
RUNS = tuple(each.task_id for each in PARTS)
OTHERS = (TaskId(1, 0), TaskId(1, 1))
"""Tasks of another pipeline, without stores."""


def crew(roster: Office, *names: str) -> list[Worker]:
    workers = [Worker(name, roster) for name in names]
    for worker in workers:
        roster.add(worker)
    return workers


def test_nothing_is_given_before_an_assignment() -> None:
    """Threads wait for the group."""
    roster = Office()
    (a,) = crew(roster, "a-1")
    roster.share_out()
    assert a.inbox == []
    roster.assign(RUNS, PARTS)
    assert a.inbox == [(Share(RUNS, PARTS), {})]


def test_even_an_empty_share_is_given() -> None:
    """A thread without work is RUNNING."""
    roster = Office()
    a, b = crew(roster, "a-1", "a-2")
    roster.assign(RUNS[:1], ())
    assert a.inbox == [(Share(RUNS[:1]), {})]
    assert b.inbox == [(Share(), {})]


def test_what_moves_is_given_when_the_other_has_let_go() -> None:
    """A store is locked by one thread, a query runs once."""
    roster = Office()
    (a,) = crew(roster, "a-1")
    roster.assign(RUNS, PARTS)
    a.work()
    (b,) = crew(roster, "a-2")
    roster.share_out()
    assert b.inbox == [(Share(), {})]
    b.work()
    assert len(a.inbox) == 1
    a.work()
    b.work()
    assert things(a.has) | things(b.has) == things(Share(RUNS, PARTS))
    assert not things(a.has) & things(b.has)
    assert len(b.has.tasks) == 2


def test_an_heir_gets_all_that_the_one_before_it_had() -> None:
    """It gets it when its predecessor has released it; until then it gets nothing, not even an empty
    share."""
    roster = Office()
    a, b = crew(roster, "a-1", "a-2")
    roster.assign(RUNS + OTHERS, PARTS)
    a.work(), b.work()
    had = a.has
    c = Worker("a-3", roster)
    roster.add(c, instead_of="a-1")
    roster.retire("a-1")
    roster.share_out()
    assert (b.inbox, c.inbox) == ([], [])
    roster.gone("a-1")
    c.work()
    assert c.has == had
    assert b.inbox == []


def test_an_heir_of_an_heir_inherits_too() -> None:
    """A replacement may fail before it began."""
    roster = Office()
    (a,) = crew(roster, "a-1")
    roster.assign(RUNS, PARTS)
    a.work()
    b, c = Worker("a-2", roster), Worker("a-3", roster)
    roster.add(b, instead_of="a-1")
    roster.retire("a-1")
    roster.add(c, instead_of="a-2")
    roster.retire("a-2")
    roster.gone("a-2")
    assert c.inbox == []
    roster.gone("a-1")
    c.work()
    assert c.has == Share(RUNS, PARTS)


def test_a_pipeline_is_held_back() -> None:
    """Its next holder learns until when, once."""
    roster = Office()
    (a,) = crew(roster, "a-1")
    roster.assign((RUNS[0], OTHERS[0]), ())
    a.work()
    roster.hold_back({"p0": 17.0})
    b = Worker("a-2", roster)
    roster.add(b, instead_of="a-1")
    roster.retire("a-1")
    roster.gone("a-1")
    assert b.inbox == [(Share((RUNS[0], OTHERS[0])), {"p0": 17.0})]


def test_after_a_loss_everybody_is_given_a_share_anew() -> None:
    """Shares are sent even if they are the same."""
    roster = Office()
    (a,) = crew(roster, "a-1")
    roster.assign(RUNS, PARTS)
    a.work()
    roster.unassign()
    a.work()
    assert a.has == Share((), PARTS)
    roster.share_out()
    assert a.inbox == []
    roster.assign(RUNS, PARTS)
    assert a.inbox == [(Share(RUNS, PARTS), {})]


def test_what_another_client_took_is_given_again_when_it_is_assigned_again() -> None:
    """Tasks that somebody else has taken over."""
    told: list[int] = []
    roster = Office(lambda: told.append(1))
    (a,) = crew(roster, "a-1")
    roster.assign(RUNS, PARTS)
    a.work()
    roster.drop("a-1", "p0")
    assert roster.held.pipelines == ()
    assert told == [1]
    roster.assign(RUNS, PARTS)
    a.work()
    assert roster.held.pipelines == ("p0",)


def test_what_a_thread_lets_go_of_while_the_client_closes_goes_to_nobody() -> None:
    """Otherwise another thread would start the tasks that have failed, only to stop them."""
    roster = Office()
    a, b = crew(roster, "a-1", "b-2")
    roster.assign(RUNS, PARTS)
    a.work()
    b.work()
    had = b.has
    roster.end()
    roster.gone(a.name)
    roster.assign(RUNS, PARTS)
    b.work()
    assert roster.held == b.has == had


def test_letting_go_is_told() -> None:
    """The group may be waiting for it."""
    told: list[set[tuple[str, object]]] = []
    roster = Office(lambda: told.append(things(roster.held)))
    (a,) = crew(roster, "a-1")
    roster.assign(RUNS, PARTS)
    a.work()
    assert told == []
    roster.assign([], PARTS[:1])
    assert things(roster.held) == things(Share(RUNS, PARTS))
    a.work()
    assert told == [things(Share((), PARTS[:1]))]


def test_a_task_that_no_longer_runs_stays_with_its_store() -> None:
    """Another client is to run it, and this one still answers queries."""
    roster = Office()
    a, b = crew(roster, "a-1", "a-2")
    roster.assign(RUNS, PARTS)
    a.work(), b.work()
    before = a.has
    roster.assign(RUNS[2:], PARTS)
    a.work(), b.work()
    assert a.has == replace(before, runs=tuple(task for task in before.runs if task in RUNS[2:]))
    assert roster.value.is_settled


@pytest.mark.parametrize(
    ("names", "index"),
    [([], 1), (["c-StreamThread-1"], 2), (["c-StreamThread-2"], 1), (["x-2", "x-1", "x-4"], 3)],
)
def test_the_lowest_free_number_names_a_thread(names: list[str], index: int) -> None:
    """Kafka Streams numbers them in the same way."""
    assert next_index(names) == index


class RosterMachine(RuleBasedStateMachine):
    """Threads come, fail, are removed and work at their own pace, while assignments change."""

    @initialize(count=st.integers(1, 3))
    def begin(self, count: int) -> None:
        self.roster = Office()
        self.number = 0
        self.workers: list[Worker] = []
        self.dying: list[Worker] = []
        for _ in range(count):
            self.add()

    def make(self, instead_of: str | None = None) -> None:
        self.number += 1
        worker = Worker(f"t-{self.number}", self.roster)
        self.workers.append(worker)
        self.roster.add(worker, instead_of=instead_of)

    @rule()
    def add(self) -> None:
        if len(self.workers) < 5:
            self.make()
            self.roster.share_out()

    @rule(runs=st.sets(st.sampled_from(RUNS + OTHERS)), parts=st.integers(0, 4))
    def assign(self, runs: set[TaskId], parts: int) -> None:
        self.roster.assign(sorted(runs), PARTS[:parts])

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        busy = [worker for worker in self.workers if worker.inbox]
        if busy:
            data.draw(st.sampled_from(busy)).turn()

    @rule(data=st.data(), replace=st.booleans())
    def fail(self, data: st.DataObject, replace: bool) -> None:
        if not self.workers:
            return
        worker = data.draw(st.sampled_from(self.workers))
        self.workers.remove(worker)
        self.dying.append(worker)
        if replace:
            self.make(instead_of=worker.name)
        self.roster.retire(worker.name)

    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        if self.dying:
            worker = data.draw(st.sampled_from(self.dying))
            self.dying.remove(worker)
            worker.has = Share()
            self.roster.gone(worker.name)

    @rule()
    def lose(self) -> None:
        self.roster.unassign()

    @invariant()
    def one_holder(self) -> None:
        seen: dict[TaskId, str] = {}
        for worker in [*self.workers, *self.dying] if hasattr(self, "workers") else []:
            for task in worker.has.tasks:
                assert task not in seen, f"{task} is with {seen[task]} and {worker.name}"
                seen[task] = worker.name
            assert things(worker.has) <= things(self.roster.held)

    def teardown(self) -> None:
        """When everybody has done what they were given, all of the work is held, and nothing else."""
        if not hasattr(self, "workers"):
            return
        while self.dying:
            worker = self.dying.pop()
            worker.has = Share()
            self.roster.gone(worker.name)
        self.roster.assign(RUNS + OTHERS, PARTS)
        for _ in range(20):
            for worker in self.workers:
                worker.work()
        self.roster.value.check()
        held = set().union(*(things(worker.has) for worker in self.workers))
        assert held == (things(Share(RUNS + OTHERS, PARTS)) if self.workers else set())


TestRosterMachine = RosterMachine.TestCase
TestRosterMachine.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
