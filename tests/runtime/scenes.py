"""Clients in a fake world: topologies for them, handlers, and a way to put one into each state."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

from fake_world import FakeWorld
from waiting import wait_until

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import PipelineException
from millstream.model import TopicPartition
from millstream.runtime.client import KafkaStreams
from millstream.runtime.threads.handler import FailureContext
from millstream.serdes.serdes import Serdes
from millstream.states import State
from millstream.topology.topology import Topology

SOON = timedelta(seconds=20)
SOON_S = SOON.total_seconds()
Make = Callable[..., KafkaStreams]


# --- topologies --------------------------------------------------------------------------------------------


def word_count() -> Topology:
    """One pipeline, one store `counts`."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    return builder.build()


def two_pipelines() -> Topology:
    """Two pipelines without a store: `a` to `b` and `c` to `d`."""
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    builder.stream("c").to("d")
    return builder.build()


def with_global_table() -> Topology:
    """The word count, and a global table `users`."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    builder.global_table("users", Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("users"))
    return builder.build()


def global_only() -> Topology:
    """A global table `users`, and nothing for stream threads to do."""
    builder = StreamsBuilder()
    builder.global_table("users", Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("users"))
    return builder.build()


# --- handlers and failures ---------------------------------------------------------------------------------


class Handler:
    """An uncaught exception handler that gives its answers in turn, the last one for ever.

    An answer that is an exception is raised, one that is a plain function is called for the answer.

    Attributes:
        exceptions, contexts, threads: what it was asked, and on which threads.
    """

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self._lock = threading.Lock()
        self.exceptions: list[BaseException] = []
        self.contexts: list[FailureContext] = []
        self.threads: list[str] = []

    def __call__(self, exception: BaseException, context: FailureContext) -> object:
        with self._lock:
            self.exceptions.append(exception)
            self.contexts.append(context)
            self.threads.append(threading.current_thread().name)
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if type(answer) is type(lambda: None) else answer


def poison(
    pipeline: str = "p0", first: int | None = None, end: int | None = None, topic: str = "lines"
) -> PipelineException:
    """What a pipeline fails with; with offsets, of partition 0 of `topic`."""
    offsets = {} if first is None or end is None else {TopicPartition(topic, 0): (first, end)}
    error = PipelineException(f"pipeline '{pipeline}' failed: poison", pipeline=pipeline, offsets=offsets)
    error.__cause__ = ValueError("poison pill")
    return error


# --- looking at a client -----------------------------------------------------------------------------------


def listened(client: KafkaStreams) -> list[tuple[State, State]]:
    """The transitions that a listener is told, as (old, new)."""
    told: list[tuple[State, State]] = []
    client.set_state_listener(lambda new, old: told.append((old, new)))
    return told


def assert_reported(told: list[tuple[State, State]], since: int, *states: State) -> None:
    """Wait until a listener was told of these changes, and of no others. It is told after the change."""
    wait_until(lambda: [new for _, new in told[since:]] == list(states), f"told of {states}", SOON_S)


def names_of(client: KafkaStreams) -> list[str]:
    """Its threads, without the client's id: `StreamThread-1`."""
    return [
        thread.thread_name.removeprefix(f"{client.client_id}-")
        for thread in client.metadata_for_local_threads()
    ]


def pipelines_of(client: KafkaStreams) -> dict[str, list[str]]:
    """The pipelines that each of its threads runs."""
    return {
        thread.thread_name.removeprefix(f"{client.client_id}-"): [
            pipeline.name for pipeline in thread.pipelines if pipeline.running
        ]
        for thread in client.metadata_for_local_threads()
    }


def wait_for_state(client: KafkaStreams, *states: State) -> None:
    """Until the client is in one of these states."""
    assert client._owner.wait_until(states, SOON_S), f"{client} is not in {states}: {client.health}"


def running(*clients: KafkaStreams) -> None:
    """Start those that are not started, and wait until all are RUNNING."""
    for client in clients:
        if client.state is State.CREATED:
            client.start()
    for client in clients:
        client.wait_until_running(SOON)


def at_rest(world: FakeWorld, *clients: KafkaStreams) -> None:
    """Wait until the group has nothing to say any more, and all clients have done what it said and told
    their listeners; no task waits until it has warmed up somewhere.
    """

    def still() -> bool:
        generation = world.group.generation
        assert world.group.wait_until_quiet()
        done = all(client.state is State.RUNNING and client._owner.state.is_settled for client in clients)
        agreed = [client._owner.state.group.agreed for client in clients]
        done = done and not any(each is not None and each.warming for each in agreed)
        announcers = [client._announcer for client in clients]
        done = done and not any(each._undelivered or each._deliverer for each in announcers)
        return done and world.group.wait_until_quiet() and world.group.generation == generation

    wait_until(still, "all is shared out", SOON_S)


def ended(client: KafkaStreams) -> State:
    """Wait until the client has ended; how."""
    assert client._closed.wait(SOON_S), f"{client} does not end: {client.health}"
    client.check()
    return client.state


def runs(world: FakeWorld, pipeline: str = "p0", times: int = 1) -> None:
    """Wait until the newest engine has started a pipeline so many times, and runs it."""
    wait_until(
        lambda: world.engine.started.count(pipeline) >= times and pipeline in world.engine.running,
        f"start number {times} of {pipeline}",
        SOON_S,
    )


# --- states ------------------------------------------------------------------------------------------------


def put_into(state: State, client: KafkaStreams, world: FakeWorld) -> None:
    """Bring a client that is CREATED into `state`, by what users and Spark do."""
    if state is State.CREATED:
        return
    if state is State.REBALANCING:
        world.gate.clear()
        client.start()
        assert world.engine_made.wait(SOON_S)  # from here on the thread waits at the gate
        return
    client.start()
    client.wait_until_running(SOON)
    match state:
        case State.PENDING_SHUTDOWN:
            world.stop_gate.clear()
            assert client.close(timedelta(0)) is False
        case State.NOT_RUNNING:
            assert client.close(SOON)
        case State.PENDING_ERROR:
            world.stop_gate.clear()
            world.engine.end("p0")
            wait_for_state(client, State.PENDING_ERROR)
            wait_until(
                lambda: len(client._owner.state.threads) == len(world.engine.partitions("p0")),
                "its threads have ended, except for those that stop a query",
                SOON_S,
            )
        case State.ERROR:
            world.engine.end("p0")
            ended(client)
        case _:
            pass
    assert client.state is state
    client.check()


def only_a_table() -> Topology:
    """A table that can be asked for, and nothing else."""
    builder = StreamsBuilder()
    builder.table("users", Consumed.with_(Serdes.string(), Serdes.string()), Materialized.as_("users"))
    return builder.build()
