"""Clients under random events: whatever happens in whatever order, their invariants hold.

One client, or two that share their work, of two pipelines and two threads; users, Spark, the group and the
cluster each do what they can do.
"""

from __future__ import annotations

import itertools
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scenes import SOON, SOON_S, poison, two_pipelines
from tiers import examples
from waiting import wait_until

from millstream.errors import IllegalStateException, StreamsException, TimeoutException
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import Response
from millstream.states import CLIENT, State

PIPELINES = ("p0", "p1")
ANSWERS: tuple[object, ...] = (
    Response.REPLACE_THREAD,
    Response.REPLACE_THREAD,
    Response.REPLACE_THREAD,
    Response.SHUTDOWN_THREAD,
    Response.SHUTDOWN_CLIENT,
    Response.SHUTDOWN_APPLICATION,
    None,
    ValueError("a handler with a bug"),
)
CLOSING = (State.PENDING_ERROR, State.PENDING_SHUTDOWN)
SAYS = {
    State.CREATED: {"created"},
    State.PENDING_SHUTDOWN: {"closing"},
    State.PENDING_ERROR: {"closing"},
    State.NOT_RUNNING: {"closed"},
    State.ERROR: {"failed"},
    State.REBALANCING: {"waiting", "missing", "lost", "restoring", "rebalancing"},
    State.RUNNING: {"waiting", "empty", "missing", "lost", "restoring", "paused", "degraded", "running"},
}
"""What health may say in each state."""
who = st.integers(0, 1)
pipeline = st.sampled_from(PIPELINES)


class ClientLifecycle(RuleBasedStateMachine):
    """Rules have no preconditions on states: clients work in threads, so states are no choice of ours."""

    @initialize(
        count=st.sampled_from((1, 1, 2)),
        threads=st.integers(1, 2),
        mistake=st.sampled_from((None, None, None, None, "topic", "lambda")),
        begin=st.sampled_from(("created", "rebalancing", "running", "running", "running")),
        answer=st.sampled_from(ANSWERS),
    )
    def make(self, count: int, threads: int, mistake: str | None, begin: str, answer: object) -> None:
        self.world = FakeWorld({"a": 1, "b": 1, "c": 1, "d": 1})
        self.answer = answer
        self.told: dict[str, list[tuple[State, State]]] = {}
        self.excuses: list[str] = []  # why a client may be in ERROR
        self.missing = False
        self.kicked: set[str] = set()
        self.emptied: set[str] = set()
        if mistake == "topic":
            self.take_topic_away()
        if mistake == "lambda":
            self.world.engine.compile_error = StreamsException("does not compile")
            self.excuses.append("a lambda")
        self.directory = tempfile.TemporaryDirectory()
        self.clients = [self._client(name, threads) for name in ("A", "B")[:count]]
        if begin == "rebalancing":
            self.hold_up_starts()
        if begin != "created":
            for number in range(count):
                self.start(number)
        if begin == "running" and mistake is None:
            self.settle()

    def _client(self, name: str, threads: int) -> KafkaStreams:
        config = {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "client.id": name,
            "state.dir": f"{self.directory.name}/{name}",
            "checkpoint.location": f"{self.directory.name}/checkpoints",
            "num.stream.threads": threads,
            "replace.thread.backoff.ms": 2,
            "replace.thread.backoff.max.ms": 5,
            "replace.thread.max.failures": 4,
        }
        client = KafkaStreams(two_pipelines(), config, parts=self.world.parts())
        client.set_uncaught_exception_handler(self.handle)
        told: list[tuple[State, State]] = []
        client.set_state_listener(lambda new, old: told.append((old, new)))
        self.told[name] = told
        return client

    def handle(self, exception: BaseException) -> Response:
        answer = self.answer
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[return-value]  # a None is what it is about

    # --- what users do -----------------------------------------------------------------------------------

    @rule(number=who)
    def start(self, number: int) -> None:
        client = self._at(number)
        if client.state is State.CREATED:
            client.start()
        else:
            with pytest.raises(IllegalStateException):
                client.start()

    @rule(number=who, wait=st.booleans())
    def close(self, number: int, wait: bool) -> None:
        client = self._at(number)
        wait = wait and self.gates_open
        done = client.close(SOON if wait else timedelta(0))
        if wait:
            assert done or client.state in (State.PENDING_ERROR, State.ERROR)
            assert client.state in (*CLOSING, State.NOT_RUNNING, State.ERROR)

    @rule(number=who)
    def clean_up(self, number: int) -> None:
        client = self._at(number)
        if client.state.has_not_started or client.state.has_completed_shutdown:
            client.clean_up()
        # Else it may be refused, or the client may have ended in between.

    @rule(number=who)
    def add(self, number: int) -> None:
        client = self._at(number)
        name = client.add_stream_thread()
        if client.state.is_running_or_rebalancing:
            assert name is not None
            assert name.startswith(f"{client.client_id}-StreamThread-")
        if name is not None:
            self.emptied.discard(client.client_id)

    @rule(number=who, wait=st.booleans())
    def remove(self, number: int, wait: bool) -> None:
        client = self._at(number)
        self.emptied.add(client.client_id)
        try:
            client.remove_stream_thread(SOON if wait and self.gates_open else timedelta(0))
        except TimeoutException:
            assert not (wait and self.gates_open)

    @rule(number=who, paused=st.booleans())
    def pause(self, number: int, paused: bool) -> None:
        client = self._at(number)
        (client.pause if paused else client.resume)()
        assert client.is_paused is paused

    @rule(answer=st.sampled_from(ANSWERS))
    def change_of_mind(self, answer: object) -> None:
        self.answer = answer

    @rule()
    def settle(self) -> None:
        """Left alone, every client gets to RUNNING, and every pipeline to one that runs it."""
        if not self.gates_open or self.missing:
            return
        for client in self.clients:
            if client.state is State.REBALANCING:
                try:
                    client.wait_until_running(SOON)
                except TimeoutException:
                    raise
                except IllegalStateException:
                    raise
                except StreamsException:
                    assert self.excuses
        wait_until(self._all_is_run, "each pipeline runs, once", SOON_S)

    def _all_is_run(self) -> bool:
        at_work = [client for client in self.clients if client.state.is_running_or_rebalancing]
        if any(client.is_paused or not client._owner.state.live for client in at_work) or not at_work:
            return True
        return all(len(self.world.runners(name)) == 1 for name in PIPELINES)

    # --- what the world does -----------------------------------------------------------------------------

    @rule(name=pipeline)
    def fail(self, name: str) -> None:
        self._end(name, poison(name))

    @rule(name=pipeline)
    def stop_outside(self, name: str) -> None:
        self._end(name, None)

    def _end(self, name: str, error: BaseException | None) -> None:
        for runner in self.world.runners(name):
            engine = self.world.engine_of(runner)
            assert engine is not None
            self.excuses.append(f"{name} failed")
            engine._end(name, error)

    @rule(number=who)
    def kick(self, number: int) -> None:
        client = self._at(number)
        self.kicked.add(client.client_id)
        if client._owner.state.group.is_member:
            self.world.group.kick(self.world.membership_of(client.client_id))

    @rule()
    def take_topic_away(self) -> None:
        if not self.missing:
            self.missing = True
            self.excuses.append("a topic")
            self.world.topics.remove("c")

    @rule()
    def give_topic_back(self) -> None:
        # For the clients it stays missing if they had it before: it is another topic.
        if self.world.topics.names() & {"c"} == set():
            self.world.topics.add("c", 1)

    @rule()
    def hold_up_starts(self) -> None:
        self.world.gate.clear()

    @rule()
    def hold_up_stops(self) -> None:
        self.world.stop_gate.clear()

    @rule()
    def let_go_on(self) -> None:
        self.world.gate.set()
        self.world.stop_gate.set()

    # --- what holds --------------------------------------------------------------------------------------

    def _at(self, number: int) -> KafkaStreams:
        return self.clients[number % len(self.clients)]

    @property
    def gates_open(self) -> bool:
        return self.world.gate.is_set() and self.world.stop_gate.is_set()

    @invariant()
    def its_own_checks_hold(self) -> None:
        for client in self.clients:
            client.check()

    @invariant()
    def transitions_are_in_the_table_and_told_without_a_gap(self) -> None:
        for told in self.told.values():
            for old, new in told:
                assert CLIENT.allows(old, new), f"{old} -> {new}"
            assert all(earlier[1] is later[0] for earlier, later in itertools.pairwise(list(told)))

    @invariant()
    def error_has_a_reason(self) -> None:
        for client in self.clients:
            if client.state in (State.PENDING_ERROR, State.ERROR):
                assert self.excuses, f"{client}: {client._owner.state.failure}"

    @invariant()
    def nobody_runs_with_no_threads_unless_the_user_removed_them(self) -> None:
        for client in self.clients:
            before, live, after = client.state, client._owner.state.live, client.state
            if before is after is State.RUNNING and not live:
                assert client.client_id in self.emptied

    @invariant()
    def one_client_runs_a_pipeline_but_for_zombies(self) -> None:
        for overlap in self.world.overlaps:
            assert overlap.runner in self.kicked, overlap

    @invariant()
    def health_says_what_the_state_says(self) -> None:
        for client in self.clients:
            before, health, after = client.state, client.health, client.state
            assert health.reason
            if before is after:
                assert health.status in SAYS[after], f"{after}: {health}"
                assert not health.ready or after is State.RUNNING

    @invariant()
    def an_ended_client_holds_nothing(self) -> None:
        for client in self.clients:
            if client.state.has_completed_shutdown:
                engine = self.world.engine_of(client.client_id)
                assert engine is None or (engine.closed and not engine.running)
                assert not client._owner.state.group.is_member or (
                    self.world.membership_of(client.client_id).closed
                )

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        self.let_go_on()
        for client in self.clients:
            client.close(timedelta(0))
        for client in self.clients:
            if client.state is not State.CREATED:
                assert client._closed.wait(SOON_S), f"{client} does not close"
                assert client.state.has_completed_shutdown
                assert self.told[client.client_id][-1][1] is client.state
            client.check()
        assert self.world.everything_closed
        assert not list(Path(self.directory.name).glob("*/*/.owner"))
        self.world.close()
        self.directory.cleanup()


TestClientLifecycle = ClientLifecycle.TestCase
TestClientLifecycle.settings = settings(
    max_examples=examples(40), stateful_step_count=25, deadline=None, derandomize=True
)
