"""Clients and their surroundings as plain objects on one thread, for random schedules by the thousand.

The clients' states are the real ones: `ClientState`, changed by the real `react`. Threads, start(), the
closing thread, Spark, the group and the user's handler are played here: each does one step when it is its
turn. A schedule is a list of `Pick`s, small numbers that say whose turn it is; one that is not possible at
its place does nothing, so any part of a schedule is a schedule, and a found one can be shortened.

    world = World(clients=2, threads=2)
    for pick in picks(seed, 30): world.do(pick)      # `world.script` tells what happened, in short
    world.settle()                                   # everybody goes on until nobody can
    world.close()                                    # everything is closed

After each step the invariants are checked; one that does not hold raises an AssertionError.
"""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, cast

from millstream.errors import (
    MissingSourceTopicException,
    PipelineException,
    StreamsException,
    TaskAssignmentException,
)
from millstream.group.userdata import Assignment
from millstream.model import TaskId, TopicPartition
from millstream.ports import TopicDescription
from millstream.runtime.state.assignment import Share, StorePart
from millstream.runtime.state.client_state import _EPOCH, ClientFacts, ClientState, Moment
from millstream.runtime.state.events import (
    AddAsked,
    AgreementAsked,
    Answered,
    Assigned,
    BeginClosing,
    BeginThread,
    CloseAsked,
    ClosingDone,
    Created,
    Event,
    FailThread,
    ForgetThread,
    Give,
    GlobalMoved,
    GroupFailed,
    GroupJoined,
    GroupLost,
    Instruction,
    InterruptEngine,
    Lose,
    MakeThread,
    Moved,
    Open,
    OpeningBegins,
    OpeningEnded,
    PauseAsked,
    PauseThread,
    Phase,
    Planned,
    Rejoin,
    RemoveAsked,
    Reported,
    Settled,
    StartAsked,
    StartFailed,
    StopGlobal,
    StopThread,
    ThreadMoved,
    TimeUp,
    TopicsMissing,
)
from millstream.runtime.state.failure import Budget, Failure, HandlerAnswer, Response
from millstream.runtime.state.reactions import react
from millstream.runtime.state.work_plan import WorkPlan
from millstream.states import CLIENT, STREAM_THREAD, GlobalThreadState, State, ThreadState
from millstream.topology.nodes import Store

PIPELINES = ("p0", "p1")
PARTS = tuple(
    StorePart(TaskId(0, number), Store("s"), TopicPartition("app-s-changelog", number)) for number in range(2)
)
TASKS = tuple(TaskId(pipeline, number) for pipeline in range(2) for number in range(2))
PLAN = WorkPlan({"lines": TopicDescription("lines", 2, "1")}, cast(Any, None), PARTS, TASKS, (), {})
BUDGET = Budget(3, backoff=timedelta(0), backoff_max=timedelta(0))
GONE = MissingSourceTopicException("'lines' was deleted", ("lines",), deleted=("lines",))
WAIT_S = 30.0
"""How long closing waits in each phase that waits."""


class Pick(NamedTuple):
    """Whose turn it is: a kind of step, and numbers that say of whom and how."""

    kind: str
    who: int
    which: int


class Thread:
    """A stream thread, or the global one, as its client and its work see it."""

    def __init__(self, name: str, line: int = 0, *, is_global: bool = False, not_before: float = 0.0) -> None:
        self.name, self.line, self.is_global, self.not_before = name, line, is_global, not_before
        self.state = ThreadState.CREATED
        self.at = "new"
        self.stopping = False
        self.paused = False
        self.inbox: deque[Instruction] = deque()
        self.share = Share()
        self.running: set[TaskId] = set()
        self.error: StreamsException | None = None

    def copy(self) -> Thread:
        """The same, to go on in another world."""
        other = copy.copy(self)
        other.inbox, other.running = deque(self.inbox), set(self.running)
        return other

    @property
    def works(self) -> bool:
        """Whether it is in order, as far as it knows."""
        return self.at in ("starting", "loop", "spark") and not self.stopping


class Client:
    """One client: its state, and what carries its instructions out."""

    def __init__(self, world: World, name: str, threads: int, has_global: bool) -> None:
        self.world, self.name = world, name
        about = ClientFacts(name, PIPELINES, BUDGET, has_global=has_global)
        self.state = ClientState(about)
        self.threads: dict[str, Thread] = {}
        self.global_thread = Thread(f"{name}-Global", is_global=True) if has_global else None
        self.told: list[State] = [State.CREATED]
        self.queue: deque[Instruction] = deque()
        self.performing = False
        self.starting: Iterator[None] | None = None
        self.closer = False
        self.closer_since = 0.0
        self.closing_since: float | None = None
        self.spark = "off"
        self.interrupted = False
        self.open: set[str] = set()
        self.member = False
        self.knew_threads = False
        self.heard: deque[Callable[[], None]] = deque()
        self.wants_to_tell = False
        self.post(Created(threads))

    def copy(self, world: World) -> Client:
        """The same in another world."""
        other = copy.copy(self)
        other.world = world
        other.threads = {name: thread.copy() for name, thread in self.threads.items()}
        other.global_thread = None if self.global_thread is None else self.global_thread.copy()
        other.told, other.open = list(self.told), set(self.open)
        other.queue, other.heard = deque(), deque()
        return other

    # --- the owner -----------------------------------------------------------------------------------------

    def post(self, event: Event) -> tuple[Instruction, ...]:
        moment = Moment(self.world.now, _EPOCH + timedelta(seconds=self.world.now), 0.5)
        self.state, instructions = react(self.state, event, moment)
        self.check(instructions)
        self.queue.extend(instructions)
        if not self.performing:
            self.performing = True
            while self.queue:
                self.perform(self.queue.popleft())
            self.performing = False
            self.look()
        return instructions

    def perform(self, instruction: Instruction) -> None:
        match instruction:
            case MakeThread(name, line, not_before, paused):
                self.threads[name] = Thread(name, line, not_before=not_before)
                self.threads[name].paused = paused
            case BeginThread(name):
                thread = self.threads[name]
                assert thread.at == "new", f"{name} was begun twice"
                if not thread.stopping:
                    thread.at = "starting"
            case StopThread(name, _, now):
                self.stop(self.threads[name], now)
            case ForgetThread(name):
                del self.threads[name]
            case Give(name) | Lose(name) | FailThread(name) | PauseThread(name):
                self.threads[name].inbox.append(instruction)
            case StopGlobal():
                assert self.global_thread is not None
                self.stop(self.global_thread, True)
            case Rejoin():
                self.wants_to_tell = True
                self.world.dirty = True
            case InterruptEngine():
                self.interrupted = True
            case BeginClosing():
                self.closer = True
                self.closer_since = self.closing_since = self.world.now
            case _:
                pass

    def stop(self, thread: Thread, now: bool) -> None:
        if now:
            thread.stopping = True
        if thread.at == "new" and now:
            self.move(thread, ThreadState.PENDING_SHUTDOWN)
            thread.at = "dead"
            self.move(thread, ThreadState.DEAD)
        elif not thread.is_global:
            self.move(thread, ThreadState.PENDING_SHUTDOWN)

    def move(self, thread: Thread, new: ThreadState) -> None:
        """As a thread's own machine does."""
        old = thread.state
        if new in STREAM_THREAD.allowed[old] or thread.is_global:
            thread.state = new
            if thread.is_global:
                self.post(GlobalMoved(thread.name, GlobalThreadState[new.name]))
            else:
                self.post(ThreadMoved(thread.name, new))
        else:
            assert (old, new) in STREAM_THREAD.ignored, f"{thread.name}: {old} -> {new}"

    # --- what must hold ------------------------------------------------------------------------------------

    def check(self, instructions: tuple[Instruction, ...]) -> None:
        """After each step of the value."""
        self.state.check()
        for instruction in instructions:
            if isinstance(instruction, Moved):
                assert instruction.old is self.told[-1], f"{instruction} after {self.told}"
                assert CLIENT.allows(instruction.old, instruction.new), f"{instruction}"
                self.told.append(instruction.new)
        assert self.told[-1] is self.state.state

    def look(self) -> None:
        """After all instructions have been carried out: what is said is so."""
        at_work = [thread for thread in self.threads.values() if thread.works]
        runners: dict[TaskId, str] = {}
        for thread in self.threads.values():
            for task in thread.running:
                assert task not in runners, f"{task} runs on {runners[task]} and {thread.name}"
                runners[task] = thread.name
        if self.state.state is State.RUNNING:
            assert self.starting is None, "RUNNING, and start() is still at work"
            thread_states = {thread.name: thread.state for thread in at_work}
            assert set(thread_states.values()) <= {ThreadState.RUNNING}, f"RUNNING with {thread_states}"
            if self.global_thread is not None and self.global_thread.works:
                assert self.global_thread.state is ThreadState.RUNNING
            if at_work and self.member and self.state.group.lost is None:
                self.look_at_work(at_work, set(runners))
        if self.state.state.has_completed_shutdown and not self.world.gave_up:
            left = [thread.name for thread in self.threads.values() if thread.at != "dead"]
            assert not left, f"{self.state.state} with {left}"
            assert not self.open, f"{self.state.state}, and open: {self.open}"
            assert not self.member, f"{self.state.state}, and in the group"

    def look_at_work(self, at_work: list[Thread], running: set[TaskId]) -> None:
        """The client is RUNNING: its threads have all that the group gave it, and nothing is on its way."""
        agreed = self.state.group.agreed
        assert agreed is not None, "RUNNING before the group has agreed"
        assert self.knew_threads, "RUNNING by an agreement for a client without threads"
        under_way = [each for thread in at_work for each in thread.inbox if isinstance(each, Give | Lose)]
        assert not under_way, f"RUNNING, and on its way: {under_way}"
        # One that has failed still has what it had, until it is decided what happens.
        having = [*at_work, *(each for each in self.threads.values() if each.at == "asking")]
        had = {task for thread in having if not thread.stopping for task in thread.share.runs}
        assert had == set(agreed.runs), f"RUNNING with {had} of {agreed.runs}"
        # One that goes on after a pause is RUNNING, too, while its queries start.
        if not any(thread.paused or thread.inbox or thread.at in ("asking", "spark") for thread in having):
            assert running >= had, f"RUNNING, and {had - running} does not run"

    def check_answer(self, thread: Thread, answer: HandlerAnswer, before: ClientState) -> None:
        """What the handler said was carried out, or something stronger happens."""
        after, response = self.state, answer.response
        entry = None if thread.is_global else after.entry(thread.name)
        closing = after.closing is not None
        if response is Response.SHUTDOWN_APPLICATION:
            assert closing, "SHUTDOWN_APPLICATION, and the client goes on"
            told = after.group.shutdown is not None
            assert told or not before.group.is_member, "SHUTDOWN_APPLICATION, and nobody is told"
        elif response is Response.SHUTDOWN_CLIENT or thread.is_global:
            assert closing, f"{response}, and the client goes on"
        else:
            assert closing or (entry is not None and entry.ending), f"{response}, and the thread goes on"
            heirs = len(after.live) - len(before.live)
            was = before.entry(thread.name)
            if response is Response.REPLACE_THREAD and was is not None and was.lives and not closing:
                assert heirs == 0, "REPLACE_THREAD, and nobody takes its place"
        record = after.history.last()
        assert record is not None
        assert record.exception is thread.error

    # --- start() -------------------------------------------------------------------------------------------

    def start(self) -> bool:
        if not self.post(StartAsked()):
            return False
        self.starting = self._start()
        return True

    def _start(self) -> Iterator[None]:
        """Each step of start(); a `yield` is where others may come in between."""
        yield
        if Open() not in self.post(OpeningBegins()):
            self.starting = None
            return
        try:
            for what in ("server", "directory", "topics"):
                self.wanted()
                self.open.add(what)
                yield
            if self.world.broken:
                raise StreamsException("the directory is in use")
            if self.global_thread is not None:
                self.wanted()
                self.global_thread.at = "starting"
                while self.global_thread.state is ThreadState.CREATED:
                    yield
                if self.global_thread.at in ("dying", "dead"):
                    raise _Closed
            if self.state.threads:
                with suppress(MissingSourceTopicException):  # each thread finds the same
                    self.take_part()
            yield
            self.wanted()
            self.open.add("housekeeping")
        except _Closed:
            pass
        except StreamsException as error:
            self.starting = None
            self.post(StartFailed(Failure("main", error)))
            return
        self.starting = None
        self.post(OpeningEnded())

    def wanted(self) -> None:
        if not self.state.is_wanted:
            raise _Closed

    def take_part(self) -> None:
        if not self.state.is_wanted:
            return
        if self.world.topic_gone:
            raise GONE
        if self.state.plan is None:
            self.post(Planned(PLAN))
        if self.state.group.over and self.member:
            self.member = False
        if not self.member:
            self.member = self.world.dirty = True
            self.open.add("membership")
            self.post(GroupJoined())
        else:
            self.post(AgreementAsked())

    # --- a thread's turn -----------------------------------------------------------------------------------

    def turn(self, thread: Thread) -> bool:
        match thread.at:
            case "starting" if thread.stopping:
                thread.at = "dying"
            case "starting" if thread.is_global:
                thread.at = "loop"
                self.move(thread, ThreadState.RUNNING)
            case "starting":
                if thread.not_before > self.world.now:
                    return False
                if thread.state is ThreadState.CREATED:
                    self.move(thread, ThreadState.STARTING)
                    return True
                try:
                    self.take_part()
                except StreamsException as error:
                    self.fails(thread, error)
                else:
                    thread.at = "loop"
            case "loop" if thread.stopping:
                thread.at = "dying"
            case "loop" if thread.inbox:
                self.take(thread, thread.inbox.popleft())
            case "spark":
                return self.run(thread)
            case "dying":
                thread.running.clear()
                self.move(thread, ThreadState.PENDING_SHUTDOWN)
                thread.at = "dead"
                self.move(thread, ThreadState.DEAD)
            case _:
                return False
        return True

    def take(self, thread: Thread, event: Instruction) -> None:
        match event:
            case Give(_, share, ticket):
                assert set(share.runs) <= set(TASKS), f"{thread.name} is given {share.runs}"
                self.move(thread, ThreadState.PARTITIONS_REVOKED)
                thread.running &= set(share.runs)
                thread.share = share
                self.move(thread, ThreadState.PARTITIONS_ASSIGNED)
                self.post(Settled(thread.name, share, ticket))
                thread.at = "spark"
            case Lose(_, ticket):
                self.move(thread, ThreadState.PARTITIONS_REVOKED)
                thread.running.clear()
                thread.share = Share((), thread.share.parts)
                self.post(Settled(thread.name, thread.share, ticket))
            case FailThread(_, error):
                self.fails(thread, error)
            case PauseThread(_, paused):
                thread.paused = paused
                if paused:
                    thread.running.clear()
                else:
                    thread.at = "spark"
            case _:
                raise AssertionError(event)

    def run(self, thread: Thread) -> bool:
        """Start the tasks, which needs Spark. Nothing but Spark, or closing, ends the waiting for it."""
        missing = set(thread.share.runs) - thread.running
        if missing and not thread.paused:
            if self.interrupted:
                thread.at = "dying"  # nobody waits for Spark in a client that closes
                return True
            if self.spark == "off":
                self.spark = "starting"
                self.open.add("spark")
            if self.spark == "starting":
                return False
            assert self.state.closing is None, "a task is claimed by a client that closes"
            thread.running |= missing
        thread.at = "loop"
        if thread.state is ThreadState.PARTITIONS_ASSIGNED:
            self.move(thread, ThreadState.RUNNING)
        return True

    def fails(self, thread: Thread, error: StreamsException) -> None:
        thread.error, thread.at = error, "asking"

    def answer(self, thread: Thread, answer: HandlerAnswer) -> None:
        assert thread.error is not None
        before = self.state
        failure = Failure.of(thread.name, thread.error, thread.is_global, thread.line)
        self.post(Answered(failure, answer, None if thread.is_global else thread.name))
        self.check_answer(thread, answer, before)
        thread.at = "dying"

    # --- closing -------------------------------------------------------------------------------------------

    def close_step(self) -> bool:
        """The closing thread's turn."""
        closing = self.state.closing
        if not self.closer or closing is None:
            return False
        phase = closing.phase
        if phase is Phase.DONE:
            self.closer = False
            return True
        if not phase.is_work:
            if self.world.now - self.closer_since < WAIT_S:
                return False
            self.world.gave_up = True
            self.closer_since = self.world.now
            self.post(TimeUp(phase, WAIT_S))
            return True
        if phase is Phase.FRONT:
            self.open -= {"server", "housekeeping"}
        elif phase is Phase.GROUP:
            told = self.world.now - self.closer_since >= 2 or self.world.held
            if self.member and self.state.group.shutdown is not None and self.wants_to_tell and not told:
                return False
            self.member, self.world.dirty = False, True
            self.open.discard("membership")
            if self.spark == "ready":
                self.spark = "closed"
                self.open.discard("spark")
            self.open.discard("spark" if self.spark in ("off", "closed") else "")
        else:
            self.open -= {"directory", "topics"}
        if self.spark == "starting":
            self.open.discard("spark")  # its thread ends it, which `World.close` looks at
        self.closer_since = self.world.now
        self.post(ClosingDone(phase))
        return True

    def everybody(self) -> list[Thread]:
        """All threads, the global one too."""
        every = list(self.threads.values())
        return every if self.global_thread is None else [*every, self.global_thread]


class _Closed(Exception):
    """start() sees that the client closes."""


class World:
    """Some clients, their group, and what may happen to them."""

    def __init__(self, clients: int = 2, threads: int = 2, *, has_global: bool = False) -> None:
        self.now = 0.0
        self.script: list[str] = []
        self.dirty = self.held = self.topic_gone = self.broken = self.gave_up = False
        self.generation = 0
        self.clients = [Client(self, name, threads, has_global) for name in "ABC"[:clients]]

    # --- schedules -----------------------------------------------------------------------------------------

    def begin(self) -> None:
        """All clients are started, and run."""
        for client in self.clients:
            client.start()
        self.settle()
        self.script.clear()

    def copy(self) -> World:
        """Another one that goes on from here; when nobody is at anything."""
        other = copy.copy(self)
        other.script = []
        other.clients = [client.copy(other) for client in self.clients]
        return other

    def do(self, pick: Pick) -> bool:
        """One step, if it is possible now; and what must hold after it."""
        client = self.clients[pick.who % len(self.clients)]
        line = _STEPS[pick.kind](self, client, pick.which)
        if line is not None:
            self.script.append(f"{client.name}: {line}" if line else pick.kind)
        return line is not None

    def settle(self) -> None:
        """Everybody goes on, and every handler answers, until nobody can; then all that is wanted runs.

        Raises:
            AssertionError: it does not come to that.
        """
        self.held = False
        until, rounds = self.now + 5.0, 0  # what waits for a moment gets it
        while self._anybody_goes_on() or self.now < until:
            rounds += 1
            assert rounds < 2000, "it does not come to an end"
            if not self._anybody_goes_on():
                self.now += 2.5
        for client in self.clients:
            state = client.state
            assert client.starting is None
            assert state.state is not State.REBALANCING, f"{client.name} is REBALANCING for good"
            assert not state.state.is_shutting_down, f"{client.name} closes for good: {state.closing}"
        self._look_around()

    def _look_around(self) -> None:
        """Whether the clients that run share the work, once."""
        at_work = [each for each in self.clients if each.member and each.state.is_wanted and each.state.live]
        if at_work and not any(each.state.paused for each in at_work):
            running = sorted(
                task for each in at_work for thread in each.threads.values() for task in thread.running
            )
            assert running == list(TASKS), f"{running} run, of {TASKS}"

    def close(self, *, stuck: bool = False) -> None:
        """Close all clients; each ends within its deadline, and leaves nothing open.

        Args:
            stuck: no handler answers any more, Spark does not get on, and the broker is away. What is stuck
                is all that may be left then.
        """
        since = self.now
        self.held = self.held or stuck
        for client in self.clients:
            client.post(CloseAsked())
        rounds = 0
        while not all(client.state.state.has_completed_shutdown for client in self.clients):
            rounds += 1
            assert rounds < 3000, "closing does not come to an end"
            if not self._anybody_goes_on(stuck=stuck):
                self.now += 1.0
                assert self.now - since <= 2 * WAIT_S + 4, "closing takes too long"
        self._anybody_goes_on(stuck=stuck)
        for client in self.clients:
            left = {thread.at for thread in client.threads.values()} - {"dead"}
            assert left <= {"asking"}, f"{client.name} has left threads that are {left}"
            assert not left or stuck
            assert not client.open, f"{client.name} has left open: {client.open}"
            assert not client.member, f"{client.name} is still in the group"
            assert stuck or client.spark in ("off", "closed"), f"{client.name} has left Spark behind"

    def _anybody_goes_on(self, *, stuck: bool = False) -> bool:
        went_on = False
        kinds = ("start goes on", "a thread goes on", "hears the group", "closing")
        for client in self.clients:
            for kind in kinds if stuck else (*kinds, "spark is up"):
                every = range(len(client.everybody())) if kind == "a thread goes on" else (0,)
                for which in every:
                    went_on = _STEPS[kind](self, client, which) is not None or went_on
            for which, thread in enumerate(client.everybody()):
                if thread.at == "asking" and not stuck:
                    went_on = _answers(self, client, which * 8) is not None or went_on
        return _agrees(self, self.clients[0], 0) is not None or went_on

    # --- the group -----------------------------------------------------------------------------------------

    def agree(self) -> None:
        self.dirty = False
        self.generation += 1
        members = [client for client in self.clients if client.member and not client.state.group.over]
        said: dict[str, frozenset[TaskId]] = {}
        for client in members:
            state = client.state
            client.wants_to_tell = False
            lost = state.group.lost is not None
            held = frozenset() if lost else state.roster.held_runs
            client.post(Reported(len(state.live), held, frozenset(), {}))
            said[client.name] = held
        asker = next((each for each in members if each.state.group.shutdown is not None), None)
        able = [client for client in members if client.state.group.reported_threads > 0]
        for client in members:
            if asker is not None:
                told = Assignment(error_code=4, asked_by=asker.name, reason="asked to", leader=asker.name)
            else:
                told = self._work_of(client, able, said)
            generation = self.generation
            threads = client.state.group.reported_threads > 0
            client.heard.append(partial(self._tell, client, told, generation, threads))

    def _work_of(self, client: Client, able: list[Client], said: dict[str, frozenset[TaskId]]) -> Assignment:
        """Tasks in turn among those who have threads; what moves goes in two rounds."""
        active = [task for number, task in enumerate(TASKS) if able and able[number % len(able)] is client]
        withheld = [
            task for task in active if any(task in held for name, held in said.items() if name != client.name)
        ]
        return Assignment(
            active=tuple(active),
            withheld=tuple(withheld),
            leader=self.clients[0].name,
            threads=client.state.group.reported_threads,
        )

    def _tell(self, client: Client, told: Assignment, generation: int, threads: bool) -> None:
        if client.member and not client.state.group.over:
            client.knew_threads = threads
            client.post(Assigned(told, generation))

    def threads_of(self, client: Client, which: int) -> Thread | None:
        every = client.everybody()
        return every[which % len(every)] if every else None


# --- steps: what happens, or None if it cannot happen now ------------------------------------------------


def _start(world: World, client: Client, which: int) -> str | None:
    return "start()" if client.start() else None


def _start_goes_on(world: World, client: Client, which: int) -> str | None:
    starting = client.starting
    if starting is None:
        return None
    blocked = client.global_thread is not None and client.global_thread.at == "starting"
    next(starting, None)
    return "start() goes on" if not blocked else None


def _add(world: World, client: Client, which: int) -> str | None:
    if len(client.threads) > 4:
        return None
    before = client.state
    client.post(AddAsked())
    assert (len(client.state.threads) > len(before.threads)) == before.is_wanted
    return "add_stream_thread()"


def _remove(world: World, client: Client, which: int) -> str | None:
    thread = world.threads_of(client, which)
    client.post(RemoveAsked(thread.name if thread is not None and which % 3 == 0 else None))
    return "remove_stream_thread()"


def _pause(world: World, client: Client, which: int) -> str | None:
    client.post(PauseAsked(which % 2 == 0))
    return "pause()" if which % 2 == 0 else "resume()"


def _close(world: World, client: Client, which: int) -> str | None:
    return "close()" if client.post(CloseAsked()) else None


def _closing(world: World, client: Client, which: int) -> str | None:
    return "closing goes on" if client.close_step() else None


def _goes_on(world: World, client: Client, which: int) -> str | None:
    thread = world.threads_of(client, which)
    return f"{thread.name} goes on" if thread is not None and client.turn(thread) else None


_INNER = ("start goes on", "spark is up", "hears the group", "closing", *["a thread goes on"] * 4)


def _somebody(world: World, client: Client, which: int) -> str | None:
    """One to four turns of what goes on in a client by itself, in an order that `which` says."""
    lines = []
    for turn in range(1 + which % 4):
        for at in range(len(_INNER)):
            kind = _INNER[(which + turn + at) % len(_INNER)]
            line = _STEPS[kind](world, client, which + turn + at)
            if line is not None:
                lines.append(line)
                break
    return "; ".join(lines) or None


def _fails(world: World, client: Client, which: int) -> str | None:
    thread = world.threads_of(client, which)
    if (
        thread is None
        or thread.at != "loop"
        or (thread.is_global and thread.state is not ThreadState.RUNNING)
    ):
        return None
    task = min(thread.running, default=None)
    error = PipelineException("poison", pipeline=task.pipeline) if task else StreamsException("disk full")
    client.fails(thread, error)
    return f"{thread.name} fails"


_ANSWERS = (
    HandlerAnswer(Response.REPLACE_THREAD),
    HandlerAnswer(Response.SHUTDOWN_CLIENT),
    HandlerAnswer(Response.SHUTDOWN_APPLICATION),
    HandlerAnswer(Response.SHUTDOWN_THREAD),
    HandlerAnswer(Response.SHUTDOWN_CLIENT, problem=ValueError("a handler with a bug")),
    HandlerAnswer(Response.SHUTDOWN_THREAD, hook=True),
    HandlerAnswer(Response.REPLACE_THREAD),
    HandlerAnswer(Response.REPLACE_THREAD, budget=replace(BUDGET, then=Response.SHUTDOWN_APPLICATION)),
)


def _answers(world: World, client: Client, which: int) -> str | None:
    thread = world.threads_of(client, which // 8)
    if thread is None or thread.at != "asking":
        return None
    answer = _ANSWERS[which % 8]
    client.answer(thread, answer)
    return f"the handler answers {answer.response} on {thread.name}"


def _spark(world: World, client: Client, which: int) -> str | None:
    if client.spark != "starting":
        return None
    client.spark = "closed" if client.interrupted else "ready"
    return "Spark has started" + (", and ends" if client.interrupted else "")


def _agrees(world: World, client: Client, which: int) -> str | None:
    if not world.dirty or world.held:
        return None
    world.agree()
    return ""


def _hears(world: World, client: Client, which: int) -> str | None:
    if not client.heard:
        return None
    client.heard.popleft()()
    return "hears what the group has agreed"


_LIES: tuple[Assignment | StreamsException, ...] = (
    Assignment(standby=(TaskId(9, 9),), leader="X"),
    Assignment(active=(TaskId(9, 9),), leader="X"),
    Assignment(error_code=1, missing_topics=("lines",), leader="X"),
    Assignment(error_code=3, leader="X"),
    Assignment(error_code=77, leader="X"),
    TaskAssignmentException("it cannot be read"),
)


def _lies(world: World, client: Client, which: int) -> str | None:
    if not client.member or client.state.group.over:
        return None
    lie = _LIES[which % len(_LIES)]
    live = {entry.name for entry in client.state.live}
    failed = {
        each.name for each in client.post(Assigned(lie, world.generation)) if isinstance(each, FailThread)
    }
    assert failed == live, f"nonsense fails {failed} of {live}"
    if not client.state.live:
        world.dirty = True  # nobody is there to have the group agree again; the next round does it
    return f"is told nonsense: {lie!r:.60}"


def _loses(world: World, client: Client, which: int) -> str | None:
    if not client.member or client.state.group.over:
        return None
    client.post(GroupLost("silence"))
    world.dirty = True
    return "is lost for the group, and comes back"


def _refused(world: World, client: Client, which: int) -> str | None:
    if not client.member or client.state.group.over:
        return None
    client.post(GroupFailed(StreamsException("no rights")))
    world.dirty = True
    return "is put out of the group"


def _holds(world: World, client: Client, which: int) -> str | None:
    world.held = not world.held
    return f"the broker is {'away' if world.held else 'back'}"


def _topic(world: World, client: Client, which: int) -> str | None:
    if world.topic_gone or which % 4:
        return None
    world.topic_gone = True
    for each in world.clients:
        if each.state.plan is not None:
            each.post(TopicsMissing(GONE))
    return "the topic is deleted"


def _breaks(world: World, client: Client, which: int) -> str | None:
    if world.broken or which % 8:
        return None
    world.broken = True
    return "the next start() fails"


def _time(world: World, client: Client, which: int) -> str | None:
    world.now += which % 16
    return f"{which % 16} s pass"


_STEPS: dict[str, Callable[[World, Client, int], str | None]] = {
    "start": _start,
    "start goes on": _start_goes_on,
    "add": _add,
    "remove": _remove,
    "pause": _pause,
    "close": _close,
    "closing": _closing,
    "a thread goes on": _goes_on,
    "somebody goes on": _somebody,
    "a thread fails": _fails,
    "the handler answers": _answers,
    "spark is up": _spark,
    "the group agrees": _agrees,
    "hears the group": _hears,
    "the group lies": _lies,
    "the group loses": _loses,
    "the group refuses": _refused,
    "the broker": _holds,
    "the topic": _topic,
    "something breaks": _breaks,
    "time": _time,
}
_OFTEN = {
    "start": 2,
    "add": 3,
    "remove": 3,
    "pause": 1,
    "close": 1,
    "closing": 2,
    "somebody goes on": 22,
    "a thread goes on": 8,
    "a thread fails": 6,
    "the handler answers": 7,
    "spark is up": 2,
    "the group agrees": 7,
    "hears the group": 6,
    "the group lies": 2,
    "the group loses": 2,
}
_KINDS = [kind for kind in _STEPS for _ in range(_OFTEN.get(kind, 1))]


def picks(seed: int, steps: int) -> list[Pick]:
    """A schedule."""
    chance = random.Random(seed)
    draw = chance.random
    kinds, count = _KINDS, len(_KINDS)
    return [Pick(kinds[int(draw() * count)], int(draw() * 6), int(draw() * 64)) for _ in range(steps)]
