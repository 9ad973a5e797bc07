"""The client under random events: whatever happens in whatever order, its invariants hold."""

from __future__ import annotations

import itertools
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scenes import SOON, two_pipelines

from millstream.errors import IllegalStateException, PipelineException, StreamsException
from millstream.runtime.client import KafkaStreams
from millstream.runtime.states import CLIENT, State
from millstream.testing.world import FakeWorld


class ClientLifecycle(RuleBasedStateMachine):
    """A client of two pipelines, and everybody who can do something to it."""

    @initialize(
        threads=st.integers(1, 3),
        mistake=st.sampled_from((None, None, None, "topic", "lambda")),
        begin=st.sampled_from(("created", "rebalancing", "running", "running")),
    )
    def make(self, threads: int, mistake: str | None, begin: str) -> None:
        self.world = FakeWorld({"a": 1, "b": 1, "c": 1, "d": 1})
        if mistake == "topic":
            self.world.topics.remove("c")
        if mistake == "lambda":
            self.world.engine.compile_error = StreamsException("does not compile")
        self.startable = mistake != "topic"
        self.directory = tempfile.TemporaryDirectory()
        self.client = KafkaStreams(
            two_pipelines(),
            {
                "application.id": "app",
                "bootstrap.servers": "fake:9092",
                "state.dir": self.directory.name,
                "num.stream.threads": threads,
            },
            parts=self.world.parts(),
        )
        self.told: list[tuple[State, State]] = []
        self.client.set_state_listener(lambda new, old: self.told.append((old, new)))
        self.failed = mistake == "lambda"
        if begin == "rebalancing":
            self.hold_up_starts()
        if begin != "created":
            self.start()
        if begin == "running" and mistake is None:
            self.client.wait_until_running(SOON)

    # Rules have no preconditions: the client works in threads, so its state is no choice of Hypothesis's.

    # --- what users do ---

    @rule()
    def start(self) -> None:
        before = self.client.state
        if before is not State.CREATED:
            with pytest.raises(IllegalStateException):
                self.client.start()
        elif self.startable:
            self.client.start()
        else:
            self.failed = True
            with pytest.raises(StreamsException):
                self.client.start()
            assert self.client.state is State.ERROR

    @rule(wait=st.booleans())
    def close(self, wait: bool) -> None:
        ended_well = self.client.state not in (State.PENDING_ERROR, State.ERROR)
        wait = wait and self.gates_open
        done = self.client.close(SOON if wait else timedelta(0))
        if wait and ended_well and self.client.state is not State.PENDING_ERROR:
            assert done
            assert self.client.state.has_completed_shutdown

    @rule()
    def clean_up(self) -> None:
        if self.client.state.has_not_started or self.client.state.has_completed_shutdown:
            self.client.clean_up()
        # Else it may be refused, or the client may have ended in between.

    @rule()
    def wait_until_running(self) -> None:
        if not self.gates_open or self.client.state is not State.REBALANCING:
            return
        try:
            self.client.wait_until_running(SOON)
        except StreamsException:
            assert self.failed

    # --- what the world does ---

    @rule(pipeline=st.sampled_from(["p0", "p1"]))
    def fail(self, pipeline: str) -> None:
        if pipeline in self.world.engine.running:
            self.failed = True
            self.world.engine._end(pipeline, PipelineException("poison", pipeline=pipeline))

    @rule(pipeline=st.sampled_from(["p0", "p1"]))
    def stop_outside(self, pipeline: str) -> None:
        if pipeline in self.world.engine.running:
            self.failed = True
            self.world.engine._end(pipeline, None)

    @rule()
    def hold_up_starts(self) -> None:
        self.world.engine.gate.clear()

    @rule()
    def hold_up_stops(self) -> None:
        self.world.engine.stop_gate.clear()

    @rule()
    def let_go_on(self) -> None:
        self.world.engine.gate.set()
        self.world.engine.stop_gate.set()

    # --- what holds ---

    @property
    def gates_open(self) -> bool:
        return self.world.engine.gate.is_set() and self.world.engine.stop_gate.is_set()

    @invariant()
    def its_own_checks_hold(self) -> None:
        if hasattr(self, "client"):
            self.client.check()

    @invariant()
    def every_transition_told_is_in_the_table(self) -> None:
        for old, new in getattr(self, "told", ()):
            assert CLIENT.allows(old, new), f"{old} -> {new}"

    @invariant()
    def transitions_are_told_without_a_gap(self) -> None:
        told = list(getattr(self, "told", ()))
        assert all(earlier[1] is later[0] for earlier, later in itertools.pairwise(told))

    @invariant()
    def error_needs_a_failure(self) -> None:
        if hasattr(self, "client") and self.client.state in (State.PENDING_ERROR, State.ERROR):
            assert self.failed

    @invariant()
    def an_ended_client_holds_nothing(self) -> None:
        if hasattr(self, "client") and self.client.state.has_completed_shutdown:
            assert self.world.everything_closed
            assert not self.world.engine.running

    def teardown(self) -> None:
        if not hasattr(self, "client"):
            return
        self.let_go_on()
        self.client.close(SOON)
        if self.client.state is not State.CREATED:
            assert self.client._closed.wait(SOON.total_seconds())
            assert self.client.state.has_completed_shutdown
            assert self.told[-1][1] is self.client.state
        self.client.check()
        assert not list(Path(self.directory.name).glob("*/.owner"))
        self.directory.cleanup()


TestClientLifecycle = ClientLifecycle.TestCase
TestClientLifecycle.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None, derandomize=True
)
