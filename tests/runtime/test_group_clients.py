"""Several clients of one application, in one fake group: who runs what, who takes over, who is told."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from scenes import (
    SOON,
    SOON_S,
    Handler,
    Make,
    at_rest,
    ended,
    listened,
    names_of,
    only_a_table,
    poison,
    running,
    runs,
    two_pipelines,
    wait_for_state,
    word_count,
)
from waiting import wait_until

from millstream.errors import (
    ApplicationShutdownException,
    MissingSourceTopicException,
    StreamsException,
    TaskAssignmentException,
    TaskMigratedException,
)
from millstream.group.codes import AssignorError
from millstream.group.userdata import Assignment
from millstream.model import TopicPartition
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import Response
from millstream.states import State

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
PIPELINES = ("p0", "p1")


@pytest.fixture
def wide(world: FakeWorld) -> FakeWorld:
    """The world with the topics of two pipelines."""
    for name in "abcd":
        world.topics.add(name, 1)
    return world


def tasks_of(*clients: KafkaStreams) -> list[str]:
    return sorted(
        str(task.task_id)
        for client in clients
        for thread in client.metadata_for_local_threads()
        for task in thread.active_tasks
    )


def runs_of(client: KafkaStreams) -> int:
    """How many tasks the client is to run."""
    return len(client._owner.state.roster.work.runs)


def all_run_once(world: FakeWorld, pipelines: tuple[str, ...] = PIPELINES) -> bool:
    return all(len(world.runners(name)) == 1 for name in pipelines)


def test_a_table_alone_needs_no_spark(make: Make, world: FakeWorld, tmp_path: Path) -> None:
    """Its clients share its partitions. None starts an engine, even if Spark is to be kept warm."""
    world.topics.add("users", 4)
    world.log.append(TopicPartition("users", 0), (b"ann", b"Ann", 1))
    clients = [
        make(only_a_table(), state__dir=str(tmp_path / name), client__id=name, num__standby__replicas=1)
        for name in "AB"
    ]
    running(*clients)
    at_rest(world, *clients)
    assert sorted(tasks_of(*clients)) == ["0_0", "0_1", "0_2", "0_3"]
    assert all(tasks_of(client) for client in clients)
    users = StoreQueryParameters.from_name_and_type("users", QueryableStoreTypes.key_value_store())
    owner = next(client for client in clients if "0_0" in tasks_of(client))
    wait_until(lambda: owner.store(users).get("ann") == "Ann", "the table is read", SOON_S)
    assert world.engines == 0
    assert all(client.health.ready for client in clients)


@pytest.mark.parametrize(("has_state", "most"), [(True, 3), (False, 7)])
def test_a_client_that_joins_gets_its_tasks_in_few_rebalances(
    has_state: bool, most: int, member: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """One to warm up all that it still has on its disk, and one to take it over; two tasks at a time if it
    has nothing. Its stores catch up one after the other: none makes the group rebalance for itself."""
    world.topics.add("users", 20)
    for number in range(20):
        for at in range(600):
            world.log.append(TopicPartition("users", number), (b"%d" % at, b"v", at))
        if has_state:
            (tmp_path / "B" / "app" / f"0_{number}").mkdir(parents=True)
    first, second = (member(name, only_a_table(), acceptable__recovery__lag=0) for name in "AB")
    running(first)
    at_rest(world, first)
    before = world.group.generation
    running(second)
    at_rest(world, first, second)
    assert (len(tasks_of(first)), len(tasks_of(second))) == (10, 10)
    assert len({*tasks_of(first), *tasks_of(second)}) == 20
    assert world.group.generation - before <= most


# --- sharing -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
def test_clients_share_the_work(count: int, member: Make, wide: FakeWorld) -> None:
    """Each pipeline runs once, on different clients; one without any is RUNNING too, and starts no engine."""
    clients = [member(name, two_pipelines()) for name in "ABC"[:count]]
    running(*clients)
    at_rest(wide, *clients)
    assert all_run_once(wide)
    assert {wide.runners(name)[0] for name in PIPELINES} <= {"A", "B", "C"}
    assert len({wide.runners(name)[0] for name in PIPELINES}) == 2
    assert all(client.health.ready for client in clients)
    assert wide.overlaps == []
    for client in clients:
        if client.client_id not in {wide.runners(name)[0] for name in PIPELINES}:
            assert "the pipelines run on other clients" in client.health.reason


def test_tasks_are_shared_too_and_each_client_can_be_asked_for_its_own(
    member: Make, world: FakeWorld
) -> None:
    """Every task has one active place."""
    first, second = member("A"), member("B")
    running(first, second)
    at_rest(world, first, second)
    wait_until(lambda: tasks_of(first, second) == ["0_0", "0_1", "0_2"], "all tasks, once", SOON_S)
    assert tasks_of(first)
    assert tasks_of(second)
    for client in (first, second):
        client.wait_until_running(SOON)
        assert client.all_local_store_partition_lags().keys() == {"counts"}


def test_a_client_that_closes_gives_its_work_to_the_others(member: Make, wide: FakeWorld) -> None:
    """They get it after the client has released it, without a session timeout."""
    first, second = member("A", two_pipelines()), member("B", two_pipelines())
    running(first, second)
    wait_until(lambda: all_run_once(wide), "each runs once", SOON_S)
    assert first.close(SOON)
    wait_until(lambda: all(wide.runners(name) == ["B"] for name in PIPELINES), "B has both", SOON_S)
    second.wait_until_running(SOON)
    assert second.failures == ()
    assert wide.overlaps == []
    assert wide.group.members == [wide.membership_of("B").member_id]


def test_a_pipeline_changes_hands_only_when_its_holder_has_let_go(member: Make, wide: FakeWorld) -> None:
    """The new owner waits, however long stopping takes, and starts then."""
    first = member("A", two_pipelines())
    running(first)
    assert [wide.runners(name) for name in PIPELINES] == [["A"], ["A"]]
    wide.stop_gate.clear()
    second = member("B", two_pipelines())
    second.start()
    second.wait_until_running(SOON)  # with nothing to run for now
    wait_until(lambda: runs_of(first) == 1, "A is to let go of one", SOON_S)
    assert wide.group.wait_until_quiet()
    assert [wide.runners(name) for name in PIPELINES] == [["A"], ["A"]]
    wide.stop_gate.set()
    wait_until(lambda: sorted(wide.runners("p0") + wide.runners("p1")) == ["A", "B"], "each has one", SOON_S)
    assert all_run_once(wide)
    assert wide.overlaps == []


def test_partitions_change_hands_only_when_their_holder_has_let_go(member: Make, world: FakeWorld) -> None:
    """The query that loses them goes on with the others, and so does that of the new owner meanwhile."""
    first = member("A")
    running(first)
    assert world.shares("p0") == {"A": {0, 1, 2}}
    world.stop_gate.clear()
    second = member("B")
    second.start()
    second.wait_until_running(SOON)  # with nothing to run for now
    wait_until(lambda: runs_of(first) < 3, "A is to let go of some", SOON_S)
    assert world.group.wait_until_quiet()
    assert world.shares("p0") == {"A": {0, 1, 2}}
    world.stop_gate.set()
    wait_until(lambda: "B" in world.shares("p0"), "B has some", SOON_S)
    at_rest(world, first, second)
    shares = world.shares("p0")
    assert shares["A"] | shares["B"] == {0, 1, 2}
    assert sorted(map(len, shares.values())) == [1, 2]
    engine = world.engine_of("A")
    assert engine is not None
    assert (engine.started, engine.stopped) == (["p0"], [])
    assert first.close(SOON)
    wait_until(lambda: world.shares("p0") == {"B": {0, 1, 2}}, "B has all", SOON_S)
    assert world.engine.started == ["p0"]
    assert world.overlaps == []


def test_a_task_without_state_moves_once_spark_runs_where_it_goes(member: Make, wide: FakeWorld) -> None:
    """Nothing stops meanwhile: Spark takes seconds to start."""
    first, second = member("A", two_pipelines()), member("B", two_pipelines())
    running(first)
    wide.spark_gate.clear()
    wide.spark_asked.clear()
    running(second)
    assert wide.spark_asked.wait(SOON_S)
    assert wide.group.wait_until_quiet()
    assert [wide.runners(name) for name in PIPELINES] == [["A"], ["A"]]
    assert (runs_of(first), runs_of(second)) == (2, 0)
    wide.spark_gate.set()
    wait_until(lambda: sorted(wide.runners("p0") + wide.runners("p1")) == ["A", "B"], "each has one", SOON_S)
    assert wide.overlaps == []


# --- lost --------------------------------------------------------------------------------------------------


def test_a_client_that_is_lost_stops_its_queries_and_joins_again(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Queries stop before anything else; stores stay open and can be read; the handler is not asked.

    Source: StreamThreadTest.shouldThrowTaskMigratedExceptionHandlingTaskLost (Differs: no exception).
    """
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = member("A")
    client.set_uncaught_exception_handler(handler)
    running(client)
    told = len(world.stores)
    world.group.hold()
    world.group.kick(world.membership_of("A"), "its heartbeats had no answer")
    wait_until(lambda: not world.engine.running, "the query stops", SOON_S)
    wait_for_state(client, State.REBALANCING)
    assert client.health.status == "lost"
    assert "its heartbeats had no answer" in client.health.reason
    assert sum(store.is_open for store in world.stores) == told
    world.group.release()
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "it runs again", SOON_S)
    client.wait_until_running(SOON)
    assert client.health.ready
    assert handler.exceptions == []
    assert "is no longer in its group: its heartbeats had no answer" in caplog.text


def test_what_a_lost_client_had_goes_to_another_one_even_if_it_hangs(member: Make, world: FakeWorld) -> None:
    """A zombie cannot commit anything then: the broker has fenced its tasks (D19)."""
    first, second = member("A"), member("B")
    running(first)
    running(second)
    at_rest(world, first, second)
    assert sorted(world.shares("p0")) == ["A", "B"]
    world.stop_gate.clear()  # A hangs in stopping its query
    world.group.kick(world.membership_of("A"), again=False)
    wait_until(lambda: world.shares("p0")["B"] == {0, 1, 2}, "B takes over", SOON_S)
    assert [(each.runner, each.newcomer) for each in world.overlaps] == [("A", "B")]
    world.stop_gate.set()
    wait_until(lambda: world.shares("p0") == {"B": {0, 1, 2}}, "A has stopped", SOON_S)


# --- shutting down the application (KIP-671) ---------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("who", ["the leader", "a follower"])
def test_one_shuts_down_all_and_each_logs_who_and_why(
    who: str, count: int, member: Make, wide: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Through PENDING_ERROR to ERROR, on each; no other handler is called."""
    handlers = {name: Handler(Response.SHUTDOWN_APPLICATION) for name in "ABC"[:count]}
    clients = {name: member(name, two_pipelines()) for name in handlers}
    told = {name: listened(client) for name, client in clients.items()}
    for name, client in clients.items():
        client.set_uncaught_exception_handler(handlers[name])
        running(client)
    at_rest(wide, *clients.values())
    assert all_run_once(wide)
    leader = next(name for name in clients if wide.membership_of(name).member_id == wide.group.led_by)
    culprit = leader if who == "the leader" else next(name for name in clients if name != leader)
    clients[culprit]._crew.threads[0].fail(poison("p0"))  # whoever runs it
    for name, client in clients.items():
        assert ended(client) is State.ERROR
        assert [new for _, new in told[name]][-2:] == [State.PENDING_ERROR, State.ERROR]
        assert len(handlers[name].exceptions) == (1 if name == culprit else 0)
        if name != culprit:
            with pytest.raises(ApplicationShutdownException) as raised:
                client.wait(SOON)
            assert raised.value.client == culprit
            assert f"is requesting to shutdown the application: client '{culprit}'" in str(raised.value)
            assert "pipeline p0" in str(raised.value)
            assert "poison pill" not in str(raised.value)  # it may quote a record
            assert client.health.status == "failed"
    assert caplog.text.count("is requesting to shutdown the application") >= count - 1


def test_the_shutdown_reaches_a_client_that_was_away_when_it_comes_back(
    member: Make, world: FakeWorld
) -> None:
    """The client that requested it is still waiting for an answer."""
    first, second = member("A"), member("B")
    first.set_uncaught_exception_handler(Handler(Response.SHUTDOWN_APPLICATION))
    running(first)
    running(second)
    at_rest(world, first, second)
    world.group.hold()
    engine = world.engine_of("A")
    assert engine is not None
    engine.end("p0", poison())
    wait_for_state(first, State.PENDING_ERROR)
    assert second.state is State.RUNNING
    world.group.release()
    assert ended(first) is State.ERROR
    assert ended(second) is State.ERROR


def test_a_closing_client_is_not_moved_by_a_shutdown(member: Make, world: FakeWorld) -> None:
    """PENDING_SHUTDOWN ends in NOT_RUNNING."""
    first, second = member("A"), member("B")
    first.set_uncaught_exception_handler(Handler(Response.SHUTDOWN_APPLICATION))
    running(first)
    running(second)
    at_rest(world, first, second)
    world.stop_gate.clear()
    assert second.close(timedelta(0)) is False
    engine = world.engine_of("A")
    assert engine is not None
    engine.end("p0", poison())
    wait_for_state(first, State.PENDING_ERROR)
    world.stop_gate.set()
    assert ended(second) is State.NOT_RUNNING
    assert ended(first) is State.ERROR


# --- what the leader says (StreamsRebalanceListenerTest) ---------------------------------------------------


def send(client: KafkaStreams, world: FakeWorld, assignment: bytes) -> None:
    world.membership_of(client.client_id).member.assigned(assignment, 99)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (1, MissingSourceTopicException, "One or more source topics were missing during rebalance: 'lines'"),
        (3, TaskAssignmentException, "Hit an unexpected exception during task assignment phase of rebalance"),
        (77, TaskAssignmentException, "Hit an unrecognized exception during rebalance: error code 77"),
        (2**31 - 1, TaskAssignmentException, "Hit an unrecognized exception during rebalance"),
    ],
)
def test_an_error_code_reaches_the_handler_on_each_thread(
    code: int,
    kind: type[StreamsException],
    text: str,
    threads: int,
    member: Make,
    world: FakeWorld,
) -> None:
    """Each with an exception of its own.

    Source: StreamsRebalanceListenerTest shouldThrowMissingSourceTopicException,
        shouldThrowTaskAssignmentException, shouldThrowTaskAssignmentExceptionOnUnrecognizedErrorCode.
    """
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = member("A", num__stream__threads=threads)
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.group.hold()
    told = Assignment(error_code=code, missing_topics=("lines",) if code == 1 else (), leader="L")
    send(client, world, told.encode())
    assert ended(client) is State.ERROR
    assert 1 <= len(handler.exceptions) <= threads  # one may have been told to stop already
    for error in handler.exceptions:
        assert type(error) is kind
        assert text in str(error)
    assert len({id(error) for error in handler.exceptions}) == len(handler.exceptions)


@pytest.mark.parametrize("code", [1, 3, 77])
def test_each_thread_is_replaced_after_an_error_code(code: int, member: Make, world: FakeWorld) -> None:
    """The client continues, since its place in the group is the same."""
    handler = Handler(Response.REPLACE_THREAD)
    client = member("A", num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    send(client, world, Assignment(error_code=code, leader="L").encode())
    wait_until(lambda: len(handler.exceptions) == 2, "both threads are asked", SOON_S)
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "it runs again", SOON_S)
    client.wait_until_running(SOON)
    assert len(names_of(client)) == 2
    assert not {"StreamThread-1", "StreamThread-2"} <= set(names_of(client))
    assert len(set(handler.threads)) == 2


def test_version_probing_is_an_assignment_like_any_other(member: Make, world: FakeWorld) -> None:
    """Source: StreamsRebalanceListenerTest.shouldHandleAssignedPartitions, code 2."""
    client = member("A")
    running(client)
    world.group.hold()
    send(client, world, Assignment(error_code=AssignorError.VERSION_PROBING).encode())
    wait_until(lambda: not world.engine.running, "nothing is left to it", SOON_S)
    client.wait_until_running(SOON)
    assert client.failures == ()
    world.group.release()
    world.group.rebalance()
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "it has its work again", SOON_S)


def test_a_shutdown_that_was_asked_for_does_not_ask_the_handler(member: Make, world: FakeWorld) -> None:
    """Source: StreamsRebalanceListenerTest.shouldSendShutdown (code 4)."""
    handler = Handler(Response.REPLACE_THREAD)
    client = member("A", num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    told = Assignment(error_code=4, asked_by="B", reason="thread 'B-1', pipeline p0: Bad", leader="L")
    send(client, world, told.encode())
    with pytest.raises(ApplicationShutdownException, match="client 'B', because of: thread 'B-1'"):
        client.wait(SOON)
    assert ended(client) is State.ERROR
    assert handler.exceptions == []


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, bytes(200)])
def test_bytes_that_are_no_assignment_are_a_failure_and_no_crash(
    garbage: bytes, member: Make, world: FakeWorld
) -> None:
    """The handler decides; with REPLACE_THREAD the next round of the group puts it right."""
    handler = Handler(Response.REPLACE_THREAD)
    client = member("A")
    client.set_uncaught_exception_handler(handler)
    running(client)
    send(client, world, garbage)
    wait_until(lambda: len(handler.exceptions) == 1, "the handler is asked", SOON_S)
    assert isinstance(handler.exceptions[0], TaskAssignmentException)
    world.group.rebalance()
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "it runs again", SOON_S)
    client.wait_until_running(SOON)


def test_a_client_that_the_group_refuses_fails(member: Make, world: FakeWorld) -> None:
    """Another protocol: TaskAssignmentException, no crash loop."""
    client = member("A")
    running(client)
    world.group.refuse(world.membership_of("A"), TaskAssignmentException("another protocol"))
    with pytest.raises(TaskAssignmentException, match="another protocol"):
        client.wait(SOON)
    assert ended(client) is State.ERROR


def test_a_client_that_the_group_refused_asks_again_when_it_is_told_to(
    member: Make, world: FakeWorld
) -> None:
    """REPLACE_THREAD: the threads are replaced, run nothing meanwhile, and the first one joins anew."""
    handler = Handler(Response.REPLACE_THREAD)
    client = member("A", num__stream__threads=2)
    client.set_uncaught_exception_handler(handler)
    running(client)
    world.group.hold()
    world.group.refuse(world.membership_of("A"), TaskAssignmentException("another protocol"))
    wait_until(lambda: len(handler.exceptions) == 2, "both threads are asked", SOON_S)
    wait_until(lambda: len(world.memberships) == 2, "it joins anew", SOON_S)
    assert world.memberships[0].closed
    assert world.engine.started == ["p0", "p0"]  # each thread did, and nobody who is in no group
    assert client.health.status in ("lost", "waiting")
    world.group.release()
    wait_until(lambda: world.shares("p0") == {"A": {0, 1, 2}}, "it runs again", SOON_S)
    client.wait_until_running(SOON)
    assert client.close(SOON)
    assert world.group.members == []


def test_a_client_that_the_group_refused_cannot_tell_others(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """SHUTDOWN_APPLICATION is for this client alone then, and the log says so."""
    client = member("A")
    client.set_uncaught_exception_handler(Handler(Response.SHUTDOWN_APPLICATION))
    running(client)
    world.group.refuse(world.membership_of("A"), TaskAssignmentException("another protocol"))
    assert ended(client) is State.ERROR
    assert "SHUTDOWN_APPLICATION reaches this client only" in caplog.text
    assert [record.response for record in client.failures] == [Response.SHUTDOWN_CLIENT]


def test_a_client_with_another_topology_is_told_so_and_the_others_go_on(
    member: Make, wide: FakeWorld
) -> None:
    """TaskAssignmentException that names both; the one that works is left alone."""
    first, second = member("A"), member("B", two_pipelines())
    running(first)
    second.start()
    with pytest.raises(TaskAssignmentException, match=r"'B' run.* a different topology .* from client.* 'A'"):
        second.wait(SOON)
    assert ended(second) is State.ERROR
    assert wide.runners("p0") == ["A"]
    first.wait_until_running(SOON)
    assert first.failures == ()


# --- migrated ----------------------------------------------------------------------------------------------


def test_a_pipeline_that_migrated_is_no_failure_and_comes_back(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler is not asked, the client joins again, and gets the pipeline if the group says so.

    Source: StreamThreadTest.shouldCatchTaskMigratedExceptionOnOnTaskCorruptedExceptionPath.
    """
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = member("A")
    client.set_uncaught_exception_handler(handler)
    running(client)
    generation = world.group.generation
    with caplog.at_level(logging.WARNING):
        world.engine.end("p0", TaskMigratedException("fenced by another client"))
        runs(world, times=2)
    client.wait_until_running(SOON)
    assert handler.exceptions == []
    assert client.failures == ()
    assert world.group.generation > generation
    assert "drops pipeline p0: fenced by another client" in caplog.text
    assert names_of(client) == ["StreamThread-1"]


# --- reading stores while clients come and go --------------------------------------------------------------


def test_what_a_client_can_be_asked_moves_with_its_tasks(member: Make, world: FakeWorld) -> None:
    """Source: QueryableStateIntegrationTest.shouldBeAbleToQueryDuringRebalance, in miniature."""
    for number in range(3):
        partition = TopicPartition("app-counts-changelog", number)
        world.log.append(partition, (b"k%d" % number, (number + 1).to_bytes(8, "big"), 1))
    first, second = member("A", word_count()), member("B", word_count())
    running(first, second)
    at_rest(world, first, second)
    wait_until(lambda: tasks_of(first, second) == ["0_0", "0_1", "0_2"], "all tasks, once", SOON_S)
    running(first, second)
    found = dict(first.store(COUNTS).all()) | dict(second.store(COUNTS).all())
    assert found == {"k0": 1, "k1": 2, "k2": 3}
    assert second.close(SOON)
    wait_until(lambda: tasks_of(first) == ["0_0", "0_1", "0_2"], "A has all", SOON_S)
    first.wait_until_running(SOON)
    assert dict(first.store(COUNTS).all()) == {"k0": 1, "k1": 2, "k2": 3}
