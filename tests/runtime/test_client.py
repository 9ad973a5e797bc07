"""The client: every method in every state, and what ends it, without Spark or a broker."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Make, put_into, two_pipelines
from waiting import wait_until

from millstream.errors import (
    ConfigException,
    IllegalStateException,
    InternalTopicException,
    InvalidStateStoreException,
    LockException,
    MissingSourceTopicException,
    PipelineException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    TopologyException,
    UnknownStateStoreException,
)
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import StreamThreadExceptionResponse
from millstream.states import State
from millstream.stores.directory import StateDirectory

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
ENDED = (State.NOT_RUNNING, State.ERROR)
STARTED = tuple(state for state in State if state is not State.CREATED)


def listened(client: KafkaStreams) -> list[tuple[State, State]]:
    """The transitions that a listener is told, as (old, new)."""
    told: list[tuple[State, State]] = []
    client.set_state_listener(lambda new, old: told.append((old, new)))
    return told


# --- every method in every state ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", STARTED)
def test_start_works_once_and_else_changes_nothing(state: State, make: Make, world: FakeWorld) -> None:
    """In any state but CREATED, start() raises IllegalStateException, and the client is unchanged."""
    client = make()
    put_into(state, client, world)
    with pytest.raises(IllegalStateException, match=f"is {state}; start\\(\\) works once"):
        client.start()
    assert client.state is state
    client.check()


@pytest.mark.parametrize("state", [State.CREATED, State.REBALANCING, State.RUNNING])
def test_close_ends_a_client_in_not_running(state: State, make: Make, world: FakeWorld) -> None:
    """Everything that it had taken is closed."""
    client = make()
    put_into(state, client, world)
    world.engine.gate.set()
    assert client.close(SOON) is True
    assert client.state is State.NOT_RUNNING
    assert world.everything_closed
    client.check()


def test_close_waits_for_a_client_that_is_closing(make: Make, world: FakeWorld) -> None:
    """PENDING_SHUTDOWN: false at the deadline, true once it is done."""
    client = make()
    put_into(State.PENDING_SHUTDOWN, client, world)
    assert client.close(timedelta(milliseconds=10)) is False
    assert client.state is State.PENDING_SHUTDOWN
    world.engine.stop_gate.set()
    assert client.close(SOON) is True
    assert client.state is State.NOT_RUNNING


def test_close_of_a_closed_client_does_nothing(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """True at once, and a line at INFO."""
    client = make()
    put_into(State.NOT_RUNNING, client, world)
    with caplog.at_level(logging.INFO):
        assert client.close() is True
    assert "already in the terminal NOT_RUNNING state" in caplog.text


@pytest.mark.parametrize(("state", "done"), [(State.PENDING_ERROR, False), (State.ERROR, True)])
def test_close_after_a_failure_returns_at_once_with_a_warning(
    state: State, done: bool, make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """KIP-696: it does not wait, and does not change ERROR into NOT_RUNNING."""
    client = make()
    put_into(state, client, world)
    with caplog.at_level(logging.WARNING):
        assert client.close() is done
    assert client.state is state
    assert f"close() does nothing: the client is {state}" in caplog.text


@pytest.mark.parametrize("state", State)
def test_a_negative_timeout_is_refused_in_every_state(state: State, make: Make, world: FakeWorld) -> None:
    """ValueError, and nothing changes."""
    client = make()
    put_into(state, client, world)
    with pytest.raises(ValueError, match=r"can't be negative; got -1 ms$"):
        client.close(timedelta(milliseconds=-1))
    assert client.state is state


def test_a_timeout_is_a_timedelta(make: Make) -> None:
    """A number has no unit."""
    with pytest.raises(TypeError, match="timedelta"):
        make().close(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("state", State)
def test_clean_up_is_for_clients_that_do_not_run(
    state: State, make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """CREATED, NOT_RUNNING and ERROR; else IllegalStateException and the files stay."""
    client = make()
    put_into(state, client, world)
    task = tmp_path / "app" / "0_7"
    task.mkdir(parents=True)
    if state is State.CREATED or state in ENDED:
        client.clean_up()
        assert not task.exists()
    else:
        with pytest.raises(IllegalStateException, match=r"Cannot clean up while running\."):
            client.clean_up()
        assert task.exists()
    assert client.state is state


@pytest.mark.parametrize("state", STARTED)
def test_listeners_are_set_before_start(state: State, make: Make, world: FakeWorld) -> None:
    """Upstream's text, in every state but CREATED."""
    client = make()
    put_into(state, client, world)
    text = f"before calling start\\(\\). Current state is: {state}"
    with pytest.raises(IllegalStateException, match=f"Can only set StateListener {text}"):
        client.set_state_listener(None)
    with pytest.raises(IllegalStateException, match=f"Can only set GlobalStateRestoreListener {text}"):
        client.set_global_state_restore_listener(None)


def test_none_takes_the_state_listener_away(make: Make) -> None:
    """Java does the same."""
    client = make()
    told = listened(client)
    client.set_state_listener(None)
    client.close(SOON)
    assert told == []


def test_a_state_listener_has_to_be_callable(make: Make) -> None:
    """TypeError at once, not at the first change."""
    with pytest.raises(TypeError, match="a state listener must be callable as"):
        make().set_state_listener("log it")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (State.CREATED, StreamsNotStartedException),
        (State.PENDING_SHUTDOWN, StateStoreNotAvailableException),
        (State.NOT_RUNNING, StateStoreNotAvailableException),
        (State.PENDING_ERROR, StateStoreNotAvailableException),
        (State.ERROR, StateStoreNotAvailableException),
    ],
)
def test_a_store_is_refused_where_there_is_none(
    state: State, expected: type[InvalidStateStoreException], make: Make, world: FakeWorld
) -> None:
    """KIP-216's leaves, by the client's state."""
    client = make()
    put_into(state, client, world)
    with pytest.raises(expected):
        client.store(COUNTS)


def test_an_unknown_store_is_named(make: Make, world: FakeWorld) -> None:
    """UnknownStateStoreException, once the client runs."""
    client = make()
    put_into(State.RUNNING, client, world)
    with pytest.raises(UnknownStateStoreException, match="'count'"):
        client.store(StoreQueryParameters.from_name_and_type("count", QueryableStoreTypes.key_value_store()))


def test_a_store_can_be_read_as_soon_as_the_client_is_running(make: Make, world: FakeWorld) -> None:
    """Whoever has waited for RUNNING never meets a store that is still restoring."""
    for number in range(3):
        long = (number + 1).to_bytes(8, "big")
        world.log.append(TopicPartition("app-counts-changelog", number), (b"k%d" % number, long, 1))
    client = make(num__stream__threads=2)
    client.start()
    client.wait_until_running(SOON)
    assert dict(client.store(COUNTS).all()) == {"k0": 1, "k1": 2, "k2": 3}


def test_a_store_cannot_be_read_while_it_restores(make: Make, world: FakeWorld) -> None:
    """StreamsRebalancingException, as KIP-216 says."""
    client = make()
    put_into(State.REBALANCING, client, world)
    with pytest.raises(StreamsRebalancingException):
        client.store(COUNTS).get("a")


def test_a_held_handle_says_that_the_client_has_ended(make: Make, world: FakeWorld) -> None:
    """StateStoreNotAvailableException, not an error of the storage engine."""
    client = make()
    put_into(State.RUNNING, client, world)
    handle = client.store(COUNTS)
    assert handle.get("a") is None
    client.close(SOON)
    with pytest.raises(StateStoreNotAvailableException):
        handle.get("a")


@pytest.mark.parametrize("state", State)
def test_metadata_can_be_asked_in_every_state(state: State, make: Make, world: FakeWorld) -> None:
    """Threads that are DEAD are left out, so an ended client has none."""
    client = make(num__stream__threads=2)
    put_into(state, client, world)
    threads = client.metadata_for_local_threads()
    if state in ENDED:
        assert threads == ()
        assert client.all_local_store_partition_lags() == {}
    elif state in (State.CREATED, State.RUNNING):
        assert [thread.thread_state for thread in threads] == [state.name] * 2


def test_metadata_tells_pipelines_tasks_and_lags(make: Make, world: FakeWorld) -> None:
    """Each thread's own, and lags by store and partition."""
    client = make(num__stream__threads=2)
    put_into(State.RUNNING, client, world)
    first, second = client.metadata_for_local_threads()
    for thread in (first, second):
        assert [(pipeline.name, pipeline.running) for pipeline in thread.pipelines] == [("p0", True)]
    tasks = [task.task_id for task in (*first.active_tasks, *second.active_tasks)]
    assert sorted(tasks) == [TaskId(0, partition) for partition in range(3)]
    parts = [{task.task_id.partition for task in thread.active_tasks} for thread in (first, second)]
    assert sorted(map(sorted, parts)) == sorted(map(sorted, world.engine.partitions("p0")))
    assert client.all_local_store_partition_lags() == {
        "counts": {partition: LagInfo(0, 0) for partition in range(3)}
    }


# --- start -------------------------------------------------------------------------------------------------


def test_a_started_client_goes_through_rebalancing_to_running(make: Make) -> None:
    """The listener is told each change, once and in order, (new, old)."""
    client = make(num__stream__threads=3)
    told = listened(client)
    client.start()
    client.wait_until_running(SOON)
    client.close(SOON)
    assert told == [
        (State.CREATED, State.REBALANCING),
        (State.REBALANCING, State.RUNNING),
        (State.RUNNING, State.PENDING_SHUTDOWN),
        (State.PENDING_SHUTDOWN, State.NOT_RUNNING),
    ]


def test_names_of_threads_follow_kafkas_rule(make: Make) -> None:
    """`<application.id>-<process uuid>-StreamThread-<n>`, or `client.id` in front."""
    client = make(num__stream__threads=2)
    assert client.client_id.startswith("app-")
    assert len(client.client_id) == len("app-") + 36
    names = [thread.thread_name for thread in client.metadata_for_local_threads()]
    assert names == [f"{client.client_id}-StreamThread-{number}" for number in (1, 2)]
    assert make(client__id="mine").metadata_for_local_threads()[0].thread_name == "mine-StreamThread-1"


def test_all_pipelines_are_compiled_before_one_starts(make: Make, world: FakeWorld) -> None:
    """One engine for the client; the fake engine asserts the order."""
    for name in "abcd":
        world.topics.add(name, 1)
    client = make(two_pipelines(), num__stream__threads=2)
    client.start()
    client.wait_until_running(SOON)
    assert world.engines == 1
    assert sorted(world.engine.compiled) == sorted(world.engine.started) == ["p0", "p1"]


def test_missing_source_topics_are_named_with_a_suggestion(make: Make, world: FakeWorld) -> None:
    """KIP-662: on the stream thread; by default the client ends in ERROR with everything closed."""
    world.topics.remove("lines")
    world.topics.add("line", 1)
    client = make()
    told = listened(client)
    client.start()
    with pytest.raises(MissingSourceTopicException) as raised:
        client.wait(SOON)
    assert client._closed.wait(SOON.total_seconds())
    assert raised.value.topics == ("lines",)
    assert "source topic 'lines' (did you mean 'line'?) does not exist on 'fake:9092'; create it" in str(
        raised.value
    )
    assert client.state is State.ERROR
    assert told[-2:] == [
        (State.REBALANCING, State.PENDING_ERROR),
        (State.PENDING_ERROR, State.ERROR),
    ]
    assert world.everything_closed
    assert world.engines == 0
    client.check()
    with pytest.raises(MissingSourceTopicException):
        client.wait()


def test_a_cluster_that_cannot_be_reached_is_told_by_start(make: Make, world: FakeWorld) -> None:
    """StreamsException with bootstrap.servers; ERROR."""
    world.topics.away = True
    client = make()
    with pytest.raises(StreamsException, match=r"bootstrap\.servers"):
        client.start()
    assert client.state is State.ERROR


def test_internal_topics_are_made_with_their_configs(make: Make, world: FakeWorld) -> None:
    """A compacted changelog, partitioned as its task; `topic.*` goes on top, but not its policy."""
    client = make(topic__segment__bytes=1000, topic__cleanup__policy="delete")
    client.start()
    (created,) = world.topics.created
    assert (created.name, created.partitions) == ("app-counts-changelog", 3)
    assert created.configs["cleanup.policy"] == "compact"
    assert created.configs["segment.bytes"] == "1000"


def test_a_changelog_keeps_the_partitions_it_has(make: Make, world: FakeWorld) -> None:
    """A source topic may get more; the tasks are those of the changelog."""
    world.topics.add("app-counts-changelog", 5, {"cleanup.policy": "compact"})
    client = make()
    put_into(State.RUNNING, client, world)
    (thread,) = client.metadata_for_local_threads()
    assert [str(task.task_id) for task in thread.active_tasks] == ["0_0", "0_1", "0_2", "0_3", "0_4"]


@pytest.mark.parametrize(
    ("partitions", "configs", "told"),
    [
        (3, {"cleanup.policy": "delete"}, "has cleanup.policy 'delete'; it needs 'compact'"),
    ],
)
def test_an_internal_topic_that_does_not_fit_is_refused(
    partitions: int, configs: dict[str, str], told: str, make: Make, world: FakeWorld
) -> None:
    """InternalTopicException with the facts and the way out; nothing is created or changed."""
    world.topics.add("app-counts-changelog", partitions, configs)
    client = make()
    with pytest.raises(InternalTopicException, match=told) as raised:
        client.start()
    assert "reset it with `millstream reset`" in str(raised.value)
    assert client.state is State.ERROR
    assert world.topics.created == []


def test_an_internal_topic_that_fits_is_used(make: Make, world: FakeWorld) -> None:
    """A restart finds its own topics."""
    world.topics.add("app-counts-changelog", 3, {"cleanup.policy": "compact"})
    client = make()
    client.start()
    client.wait_until_running(SOON)
    assert world.topics.created == []


def test_a_state_directory_in_use_is_refused(make: Make, tmp_path: Path) -> None:
    """Two clients of one application need two directories."""
    with StateDirectory(tmp_path, "app"):
        client = make()
        with pytest.raises(LockException):
            client.start()
        assert client.state is State.ERROR


def test_a_mistake_that_compiling_finds_ends_the_client_in_error(make: Make, world: FakeWorld) -> None:
    """It comes from a thread, so wait() raises it; start() has returned."""
    world.engine.compile_error = TopologyException("a lambda is wrong")
    client = make(num__stream__threads=2)
    client.start()
    with pytest.raises(TopologyException, match="a lambda is wrong"):
        client.wait(SOON)
    assert client.state is State.ERROR
    assert world.engine.started == []
    assert world.everything_closed


def test_a_spark_that_does_not_start_ends_the_client_in_error(make: Make, world: FakeWorld) -> None:
    """What the engine raised is the cause, whichever thread reports first."""
    world.engine_error = OSError("no such file: java")
    client = make(num__stream__threads=2)
    client.start()
    with pytest.raises(StreamsException, match="OSError: no such file: java") as raised:
        client.wait_until_running(SOON)
    assert isinstance(raised.value.__cause__, OSError)


def test_an_embedded_broker_is_started_and_gets_the_topics(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """`bootstrap.servers=embedded`: data under state.dir, missing topics made, closed with the client."""
    world.topics.remove("lines")
    client = make(bootstrap__servers="embedded")
    assert client.bootstrap_servers == "embedded"
    client.start()
    client.wait_until_running(SOON)
    assert world.broker is not None
    assert world.broker.data_dir == tmp_path / "app" / "kafka"
    assert client.bootstrap_servers == world.configs[0].bootstrap_servers[0] == "127.0.0.1:19092"
    assert [topic.name for topic in world.topics.created] == ["lines", "app-counts-changelog"]
    client.close(SOON)
    assert world.broker.closed


def test_topics_are_not_made_on_a_broker_that_is_not_ours(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """A missing output topic is a warning: brokers may create it."""
    world.topics.remove("out")
    client = make()
    client.start()
    assert "out" not in [topic.name for topic in world.topics.created]
    assert "output topic 'out' does not exist" in caplog.text


# --- how it ends -------------------------------------------------------------------------------------------


def test_a_failed_pipeline_ends_the_client_in_error(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The default of KIP-671: RUNNING, PENDING_ERROR, ERROR; logged with its story, raised by wait()."""
    client = make(num__stream__threads=2)
    told = listened(client)
    put_into(State.RUNNING, client, world)
    error = PipelineException("pipeline 'p0' failed: poison", pipeline="p0")
    error.__cause__ = ValueError("poison pill")
    world.engine.end("p0", error)
    with pytest.raises(PipelineException, match="poison") as raised:
        client.wait(SOON)
    assert raised.value is error
    assert [new for _, new in told][2:] == [State.PENDING_ERROR, State.ERROR]
    assert world.everything_closed
    assert "opted to SHUTDOWN_CLIENT" in caplog.text
    assert "poison pill" in caplog.text
    client.check()


def test_error_comes_only_after_everything_is_closed(make: Make, world: FakeWorld) -> None:
    """KIP-696: a listener that is told ERROR finds nothing open."""
    client = make()
    closed: list[bool] = []
    client.set_state_listener(
        lambda new, old: closed.append(world.everything_closed) if new is State.ERROR else None
    )
    put_into(State.ERROR, client, world)
    assert closed == [True]


def test_a_failing_updater_ends_the_client_in_error(make: Make, world: FakeWorld) -> None:
    """Any failure of what a thread owns is a failure of the thread."""
    client = make()
    put_into(State.RUNNING, client, world)
    world.consumers[0].fail(StreamsException("the changelog is gone"))
    with pytest.raises(StreamsException, match="the changelog is gone"):
        client.wait(SOON)


def test_a_pipeline_that_somebody_else_stopped_is_a_failure(make: Make, world: FakeWorld) -> None:
    """The client is never RUNNING with nothing running."""
    client = make()
    put_into(State.RUNNING, client, world)
    world.engine._end(world.engine._one("p0"), None)
    with pytest.raises(PipelineException, match="stopped from outside"):
        client.wait(SOON)


def test_of_two_failures_the_first_is_told(make: Make, world: FakeWorld) -> None:
    """The second is logged, and changes nothing."""
    for name in "abcd":
        world.topics.add(name, 1)
    client = make(two_pipelines(), num__stream__threads=2)
    put_into(State.RUNNING, client, world)
    world.engine.stop_gate.clear()
    world.engine.end("p0", PipelineException("first", pipeline="p0"))
    assert client._owner.wait_until({State.PENDING_ERROR}, 20)
    world.engine.end("p1", PipelineException("second", pipeline="p1"))
    world.engine.stop_gate.set()
    with pytest.raises(PipelineException, match="first"):
        client.wait(SOON)


def test_a_thread_that_ends_without_a_decision_takes_the_client_with_it(make: Make, world: FakeWorld) -> None:
    """The client is never RUNNING without a thread (upstream: a zombie)."""
    client = make()
    put_into(State.RUNNING, client, world)
    client._crew.threads[0].stop()
    with pytest.raises(StreamsException, match="ended unexpectedly"):
        client.wait(SOON)
    assert client.state is State.ERROR
    assert world.everything_closed


def test_a_failing_listener_is_logged_and_not_fatal(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream it kills a stream thread."""
    client = make()

    def broken(new: State, old: State) -> None:
        raise ValueError("listener bug")

    client.set_state_listener(broken)
    put_into(State.RUNNING, client, world)
    assert "listener bug" in caplog.text
    assert client.close(SOON)
    assert client.state is State.NOT_RUNNING


@pytest.mark.parametrize("at", [State.REBALANCING, State.RUNNING])
def test_close_in_a_state_listener_does_not_block(
    at: State, make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream it deadlocks. Here it returns at once, and the client closes in the background."""
    client = make()
    answers: list[bool] = []
    client.set_state_listener(lambda new, old: answers.append(client.close()) if new is at else None)
    client.start()
    assert client.wait(SOON) is State.NOT_RUNNING
    assert len(answers) == 1
    assert "does not wait" in caplog.text


def test_close_while_start_is_at_work_wins(make: Make, world: FakeWorld) -> None:
    """A start() that finds the client closing ends quietly, with what it had opened closed."""
    client = make()
    inside, go_on = threading.Event(), threading.Event()
    describe = world.topics.describe

    def slow(names: object) -> object:
        inside.set()
        assert go_on.wait(20)
        return describe(names)  # type: ignore[arg-type]

    world.topics.describe = slow  # type: ignore[assignment,method-assign]
    starter = threading.Thread(target=client.start)
    starter.start()
    assert inside.wait(20)
    assert client.close(timedelta(0)) is False
    go_on.set()
    starter.join(20)
    assert client.wait(SOON) is State.NOT_RUNNING
    assert world.everything_closed
    assert world.engine.started == []


def test_close_while_spark_starts_ends_it_when_it_has_started(make: Make, world: FakeWorld) -> None:
    """No pipeline runs afterwards."""
    client = make()
    put_into(State.REBALANCING, client, world)
    assert client.close(timedelta(0)) is False
    world.engine.gate.set()
    assert client.close(SOON)
    assert world.engine.running == set()
    assert world.everything_closed


def test_what_does_not_close_keeps_nothing_else_open(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the client ends."""

    world.disconnect_error = OSError("will not close")
    client = make()
    put_into(State.RUNNING, client, world)
    assert client.close(SOON)
    assert "will not close" in caplog.text
    assert world.everything_closed
    client.check()


def test_the_context_manager_starts_and_closes(make: Make, world: FakeWorld) -> None:
    """It closes as well if the block raises."""
    client = make()

    def use() -> None:
        with client:
            assert client.state.is_running_or_rebalancing
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        use()
    assert client.state is State.NOT_RUNNING


def test_the_context_manager_leaves_nothing_open_after_a_failure(
    make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for ERROR, and does not warn of a close() that nobody asked for."""
    client = make()

    def use() -> None:
        with client:
            world.engine.end("p0")
            client.wait(SOON)

    with pytest.raises(PipelineException):
        use()
    assert client.state is State.ERROR
    assert world.everything_closed
    assert "close() does nothing" not in caplog.text


# --- waiting -----------------------------------------------------------------------------------------------


def test_waiting_needs_a_started_client(make: Make) -> None:
    """There is nothing to wait for."""
    client = make()
    with pytest.raises(IllegalStateException, match=r"call start\(\) first"):
        client.wait()
    with pytest.raises(IllegalStateException, match=r"call start\(\) first"):
        client.wait_until_running()


def test_wait_returns_the_state_at_its_deadline(make: Make, world: FakeWorld) -> None:
    """A client that runs on is RUNNING."""
    client = make()
    put_into(State.RUNNING, client, world)
    assert client.wait(timedelta(milliseconds=1)) is State.RUNNING


def test_waiting_for_running_ends_at_its_deadline(make: Make, world: FakeWorld) -> None:
    """TimeoutException tells what each thread is at."""
    client = make()
    put_into(State.REBALANCING, client, world)

    def is_assigned() -> bool:
        (thread,) = client.metadata_for_local_threads()
        return thread.thread_state == "PARTITIONS_ASSIGNED"

    wait_until(is_assigned, "the thread has its work", SOON_S)
    with pytest.raises(TimeoutException, match="StreamThread-1 is PARTITIONS_ASSIGNED"):
        client.wait_until_running(timedelta(milliseconds=1))


def test_waiting_for_running_on_a_closed_client_is_an_error(make: Make, world: FakeWorld) -> None:
    """It will never be."""
    client = make()
    put_into(State.NOT_RUNNING, client, world)
    with pytest.raises(IllegalStateException, match="it was closed"):
        client.wait_until_running()


def test_restoring_is_told_to_the_users_listener(make: Make, world: FakeWorld) -> None:
    """Start, batches and end for each partition, before the client is RUNNING."""
    partition = TopicPartition("app-counts-changelog", 1)
    world.log.append(partition, *[(b"k", bytes(8), 1)] * 5)
    told: list[tuple[str, str, int]] = []

    class Listener:
        def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
            told.append(("start", str(partition), end))

        def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
            told.append(("batch", str(partition), count))

        def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
            told.append(("end", str(partition), total))

    client = make()
    client.set_global_state_restore_listener(Listener())
    client.start()
    client.wait_until_running(SOON)
    assert [event for event in told if event[1] == str(partition)] == [
        ("start", str(partition), 5),
        ("batch", str(partition), 5),
        ("end", str(partition), 5),
    ]


DROP = {"deserialization__exception__handler": "continue"}


@pytest.mark.parametrize(
    ("topic", "told"),
    [("dead", "there is no such topic on 'fake:9092'"), ("lines", "which a source of the topology reads")],
)
def test_dead_letters_need_a_topic_of_their_own(topic: str, told: str, make: Make, world: FakeWorld) -> None:
    """Told by start(), before the first record that fails would end its pipeline."""
    client = make(**DROP, errors__dead__letter__queue__topic__name=topic)
    with pytest.raises(ConfigException, match=told):
        client.start()
    assert client.state is State.ERROR


def test_dead_letters_that_nobody_writes_need_no_topic(make: Make, world: FakeWorld) -> None:
    """The handlers end the pipeline, so there are none; and one that exists will do."""
    put_into(State.RUNNING, make(errors__dead__letter__queue__topic__name="dead"), world)


def test_a_topic_for_dead_letters_will_do(make: Make, world: FakeWorld) -> None:
    """It exists, and no source reads it."""
    world.topics.add("dead", 1)
    put_into(State.RUNNING, make(**DROP, errors__dead__letter__queue__topic__name="dead"), world)


def test_a_jvm_that_is_gone_is_replaced_with_the_thread(make: Make, world: FakeWorld) -> None:
    """REPLACE_THREAD starts Spark anew: another engine, on which everything is compiled again."""
    client = make()
    client.set_uncaught_exception_handler(lambda error: StreamThreadExceptionResponse.REPLACE_THREAD)
    put_into(State.RUNNING, client, world)
    lost = world.engine
    lost.die()
    wait_until(lambda: world.engines == 2 and world.engine.running == {"p0"}, "another engine", 20.0)
    client.wait_until_running(SOON)
    assert lost.closed
    assert world.engine is not lost
