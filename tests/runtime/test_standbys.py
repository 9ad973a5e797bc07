"""Standbys: kept warm on other clients, read when asked for, and active where they are when it matters."""

from __future__ import annotations

import logging
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Handler, Make, at_rest, names_of, poison, running, with_global_table
from waiting import wait_until

from millstream.errors import (
    InvalidStateStorePartitionException,
    StateStoreNotAvailableException,
    StreamsNotStartedException,
    UnknownStateStoreException,
)
from millstream.group.userdata_layout import UNKNOWN_OFFSET_SUM
from millstream.model import LagInfo, TaskId, TopicPartition
from millstream.query.composite import QueryableStoreTypes
from millstream.query.metadata import HostInfo, KeyQueryMetadata, default_partition
from millstream.query.parameters import StoreQueryParameters
from millstream.query.provider import PartRole
from millstream.runtime.client import KafkaStreams
from millstream.runtime.state.failure import Response
from millstream.runtime.threads.standby_updates import SuspendReason

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
STALE = COUNTS.enable_stale_stores()
WORDS = [f"word{number}" for number in range(12)]
CHANGELOG = "app-counts-changelog"


def partition_of(word: str) -> int:
    return default_partition(word.encode(), 3)


def count(world: FakeWorld, value: int, *words: str) -> None:
    """Write to the changelog what a pipeline writes for these words."""
    for word in words:
        at = TopicPartition(CHANGELOG, partition_of(word))
        world.log.append(at, (word.encode(), value.to_bytes(8, "big"), 0))


def active(client: KafkaStreams) -> list[str]:
    return [
        str(task.task_id) for thread in client.metadata_for_local_threads() for task in thread.active_tasks
    ]


def standby(client: KafkaStreams) -> list[str]:
    return [
        str(task.task_id) for thread in client.metadata_for_local_threads() for task in thread.standby_tasks
    ]


def roles(client: KafkaStreams) -> dict[int, PartRole]:
    return {
        part.task_id.partition: part.role
        for parts in client._view.snapshot().local.values()
        for part in parts
    }


def opened(world: FakeWorld) -> list[object]:
    return [store for store in world.stores if store.is_open]


def pair(member: Make, world: FakeWorld, **options: object) -> tuple[KafkaStreams, KafkaStreams]:
    """Two clients with a standby of each task, in which all is shared out and warm."""
    clients = (
        member("A", num__standby__replicas=1, **options),
        member("B", num__standby__replicas=1, **options),
    )
    running(*clients)
    at_rest(world, *clients)
    wait_until(lambda: all(is_warm(client) for client in clients), "all is warm", SOON_S)
    at_rest(world, *clients)  # one that is warm says so to the group
    return clients


def is_warm(client: KafkaStreams) -> bool:
    lags = client.all_local_store_partition_lags().get("counts", {})
    return len(lags) == 3 and all(lag.offset_lag == 0 for lag in lags.values())


# --- keeping them ------------------------------------------------------------------------------------------


def test_each_task_has_a_standby_on_the_other_client(member: Make, world: FakeWorld) -> None:
    """Shown by the threads, with positions; and no standby keeps a client from RUNNING."""
    count(world, 1, *WORDS)
    first, second = pair(member, world)
    assert sorted(active(first) + active(second)) == ["0_0", "0_1", "0_2"]
    assert sorted(standby(first)) == sorted(active(second))
    assert sorted(standby(second)) == sorted(active(first))
    for client in (first, second):
        assert client.all_local_store_partition_lags().keys() == {"counts"}
        for thread in client.metadata_for_local_threads():
            for task in thread.standby_tasks:
                at = TopicPartition(CHANGELOG, task.task_id.partition)
                assert task.topic_partitions == {at}
                assert task.committed_offsets == task.end_offsets == {at: world.log.end(at)}


def test_a_standby_answers_stale_reads_only(member: Make, world: FakeWorld) -> None:
    """The error of another read by partition number says that a standby is there."""
    count(world, 1, *WORDS)
    first, second = pair(member, world)
    for client in (first, second):
        stale = client.store(STALE)
        assert {word: stale.get(word) for word in WORDS} == dict.fromkeys(WORDS, 1)
        here = {partition for partition, role in roles(client).items() if role is PartRole.ACTIVE}
        fresh = client.store(COUNTS)
        assert {word for word in WORDS if fresh.get(word)} == {
            word for word in WORDS if partition_of(word) in here
        }
        for partition in {0, 1, 2} - here:
            with pytest.raises(InvalidStateStorePartitionException, match="here as a standby"):
                client.store(COUNTS.with_partition(partition)).get("x")
            assert client.store(STALE.with_partition(partition)).all() is not None


def test_a_standby_follows_its_changelog(member: Make, world: FakeWorld) -> None:
    """It does so even if the active client does nothing."""
    first, second = pair(member, world)
    count(world, 7, *WORDS)
    for client in (first, second):
        stale = client.store(STALE)
        wait_until(lambda stale=stale: [stale.get(word) for word in WORDS] == [7] * 12, "it is there", SOON_S)


def test_the_lag_of_a_standby_is_told(member: Make, world: FakeWorld) -> None:
    """What it has, and what there is by now, though it does not get on."""
    count(world, 1, *WORDS)
    _, second = pair(member, world)
    partition = int(standby(second)[0].partition("_")[2])
    at = TopicPartition(CHANGELOG, partition)
    before = world.log.end(at)
    for consumer in world.consumers:
        consumer.hold()
    world.log.append(at, *[(b"more", b"12345678", 0)] * 5)
    wait_until(
        lambda: second.all_local_store_partition_lags()["counts"][partition] == LagInfo(before, before + 5),
        "the lag",
        SOON_S,
    )
    for consumer in world.consumers:
        consumer.release()
    wait_until(
        lambda: second.all_local_store_partition_lags()["counts"][partition].offset_lag == 0, "none", SOON_S
    )


def test_too_few_clients_are_told_once(
    member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader logs it, and not at each rebalance."""
    with caplog.at_level(logging.WARNING):
        client = member("A", num__standby__replicas=2)
        running(client)
        for _ in range(3):
            world.group.rebalance()
            at_rest(world, client)
    told = [record.getMessage() for record in caplog.records if "num.standby.replicas" in record.getMessage()]
    assert len(told) == 1
    assert "num.standby.replicas is 2 and the application has 1 client(s)" in told[0]
    assert standby(client) == []


def test_the_cleaner_keeps_its_hands_off_standbys(member: Make, world: FakeWorld) -> None:
    """They are owned as active tasks are."""
    _, second = pair(member, world)
    assert {str(task) for task in second._owned_tasks()} == {"0_0", "0_1", "0_2"}


# --- changing their role -----------------------------------------------------------------------------------


def test_standbys_become_active_where_they_are(member: Make, world: FakeWorld) -> None:
    """No store is closed, opened or wiped; what came after the client had gone is in them before they are
    read."""
    count(world, 1, *WORDS)
    first, second = pair(member, world)
    mine = opened(world)
    first_gone = [store for store in mine if store in _stores(first)]
    made = len(world.stores)
    assert first.close(SOON)
    at_rest(world, second)
    count(world, 2, *WORDS)
    wait_until(lambda: len(active(second)) == 3 and not standby(second), "all are active", SOON_S)
    second.wait_until_running(SOON)
    fresh = second.store(COUNTS)
    wait_until(lambda: [fresh.get(word) for word in WORDS] == [2] * 12, "all is there", SOON_S)
    assert len(world.stores) == made
    assert opened(world) == [store for store in mine if store not in first_gone]
    assert set(roles(second).values()) == {PartRole.ACTIVE}


def _stores(client: KafkaStreams) -> tuple[object, ...]:
    return client._view.open_stores()


def test_a_standby_is_not_read_as_active_before_it_has_caught_up(member: Make, world: FakeWorld) -> None:
    """It catches up to the end of the changelog at the time when it becomes active, not when it was
    opened."""
    count(world, 1, *WORDS)
    first, second = pair(member, world)
    mine = [consumer for consumer in world.consumers if not consumer.closed]
    for consumer in mine:
        consumer.hold()
    count(world, 2, *WORDS)
    was_standby = {int(task.partition("_")[2]) for task in standby(second)}
    assert first.close(SOON)
    wait_until(lambda: len(active(second)) == 3, "all are to be active", SOON_S)
    wait_until(
        lambda: {p for p, role in roles(second).items() if role is PartRole.RESTORING} == was_standby,
        "those that were standbys restore",
        SOON_S,
    )
    assert second.store(STALE).get(WORDS[0]) == 1
    for consumer in mine:
        consumer.release()
    second.wait_until_running(SOON)
    fresh = second.store(COUNTS)
    assert [fresh.get(word) for word in WORDS if partition_of(word) in was_standby] == [2] * sum(
        partition_of(word) in was_standby for word in WORDS
    )


def test_a_task_moves_once_its_state_is_where_tasks_run(member: Make, world: FakeWorld) -> None:
    """The view that queries read may be up to date before; until then the other client runs it."""
    count(world, 1, *WORDS)
    first, second = member("A"), member("B")
    running(first)
    world.catches_up.clear()
    running(second)

    def followed() -> frozenset[int]:
        engine = world.engine_of("B")
        return frozenset() if engine is None else engine.followed.get("p0", frozenset())

    wait_until(followed, "it follows what is to come", SOON_S)
    coming = followed()
    wait_until(lambda: second._view.up_to_date(), "its view is up to date", SOON_S)
    wait_until(lambda: second._assembly.is_warm, "its Spark is warm", SOON_S)
    assert world.group.wait_until_quiet()
    assert sorted(active(first)) == ["0_0", "0_1", "0_2"]
    world.catches_up.set()
    wait_until(lambda: active(second) == [f"0_{at}" for at in sorted(coming)], "it has moved", SOON_S)
    wait_until(lambda: not followed(), "nothing is followed any more", SOON_S)


def test_an_active_task_that_moves_leaves_a_standby(member: Make, world: FakeWorld) -> None:
    """Its store stays open, and follows."""
    count(world, 1, *WORDS)
    first = member("A", num__standby__replicas=1)
    running(first)
    at_rest(world, first)
    stores = _stores(first)
    second = member("B", num__standby__replicas=1)
    running(second)
    at_rest(world, first, second)
    wait_until(lambda: len(standby(first)) == len(active(second)) > 0, "something has moved", SOON_S)
    assert _stores(first) == stores
    assert set(roles(first).values()) == {PartRole.ACTIVE, PartRole.STANDBY}
    count(world, 2, *WORDS)
    stale = first.store(STALE)
    wait_until(lambda: [stale.get(word) for word in WORDS] == [2] * 12, "it follows", SOON_S)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_rebalance_that_changes_nothing_moves_nothing(threads: int, member: Make, world: FakeWorld) -> None:
    """Nothing moves between clients or between threads."""
    clients = pair(member, world, num__stream__threads=threads)
    before = [client.metadata_for_local_threads() for client in clients]
    made = len(world.stores)
    for _ in range(3):
        world.group.rebalance()
        at_rest(world, *clients)
    after = [client.metadata_for_local_threads() for client in clients]
    assert [[(t.thread_name, t.active_tasks, t.standby_tasks) for t in each] for each in after] == [
        [(t.thread_name, t.active_tasks, t.standby_tasks) for t in each] for each in before
    ]
    assert len(world.stores) == made


def test_a_client_that_was_lost_gets_its_tasks_back_as_standbys(member: Make, world: FakeWorld) -> None:
    """The other one has them by then; nothing is opened or closed anywhere."""
    first, second = pair(member, world)
    made = opened(world)
    world.group.kick(world.membership_of("A"))
    at_rest(world, first, second)
    wait_until(lambda: sorted(active(first) + active(second)) == ["0_0", "0_1", "0_2"], "once each", SOON_S)
    wait_until(lambda: sorted(standby(first) + standby(second)) == ["0_0", "0_1", "0_2"], "warm", SOON_S)
    assert opened(world) == made


def test_the_heir_of_a_thread_has_its_standbys_too(member: Make, world: FakeWorld) -> None:
    """REPLACE_THREAD: what was active is active, what was a standby is one, and the group is not asked."""
    count(world, 1, *WORDS)
    first, second = pair_with_handlers(member, world)
    before = active(second), standby(second)
    generation = world.group.generation
    second._crew.threads[0].fail(poison("p0"))
    wait_until(lambda: "StreamThread-2" in names_of(second), "another thread", SOON_S)
    second.wait_until_running(SOON)
    wait_until(lambda: (active(second), standby(second)) == before, "the same tasks", SOON_S)
    wait_until(lambda: is_warm(second), "it is warm", SOON_S)
    assert {word: second.store(STALE).get(word) for word in WORDS} == dict.fromkeys(WORDS, 1)
    assert world.group.generation == generation
    first.check()


def pair_with_handlers(member: Make, world: FakeWorld) -> tuple[KafkaStreams, KafkaStreams]:
    """As `pair`; threads that fail are replaced."""
    clients = member("A", num__standby__replicas=1), member("B", num__standby__replicas=1)
    for client in clients:
        client.set_uncaught_exception_handler(Handler(Response.REPLACE_THREAD))
    running(*clients)
    at_rest(world, *clients)
    wait_until(lambda: all(is_warm(client) for client in clients), "all is warm", SOON_S)
    at_rest(world, *clients)  # one that is warm says so to the group
    return clients


class Restores:
    """A restore listener that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def on_restore_start(self, partition: TopicPartition, store: str, starting: int, ending: int) -> None:
        self.told.append(("start", partition.partition))

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        self.told.append(("batch", partition.partition))

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.told.append(("end", partition.partition))


def test_the_restore_listener_hears_of_what_becomes_active(member: Make, world: FakeWorld) -> None:
    """It does not hear of standbys, which never finish."""
    count(world, 1, *WORDS)
    listener = Restores()
    first, second = member("A", num__standby__replicas=1), member("B", num__standby__replicas=1)
    second.set_global_state_restore_listener(listener)
    running(first)
    at_rest(world, first)
    running(second)
    at_rest(world, first, second)
    wait_until(lambda: is_warm(second), "it is warm", SOON_S)
    there = {int(task.partition("_")[2]) for task in active(second)}
    assert there
    assert {partition for _, partition in listener.told} == there
    first.close(SOON)
    wait_until(lambda: len(active(second)) == 3, "all are active", SOON_S)
    second.wait_until_running(SOON)
    for partition in {0, 1, 2} - there:
        assert [what for what, where in listener.told if where == partition] == ["start", "end"]


class Updates:
    """A standby update listener that remembers what it was told, by partition."""

    def __init__(self) -> None:
        self.told: dict[int, list[tuple[object, ...]]] = {0: [], 1: [], 2: []}

    def on_update_start(self, partition: TopicPartition, store: str, start: int) -> None:
        self.told[partition.partition].append(("start", store, start))

    def on_batch_loaded(
        self, partition: TopicPartition, store: str, task_id: TaskId, position: int, size: int, end: int
    ) -> None:
        assert task_id == TaskId(0, partition.partition)
        self.told[partition.partition].append(("loaded", store, position, size, end))

    def on_update_suspended(
        self, partition: TopicPartition, store: str, position: int, end: int, reason: SuspendReason
    ) -> None:
        self.told[partition.partition].append(("suspended", store, position, end, reason))
        raise RuntimeError("what it raises changes nothing")


def test_the_standby_listener_hears_of_standbys_alone(member: Make, world: FakeWorld) -> None:
    """KIP-988: where each begins, what it loads, also later, and that it is active now, or closed."""
    count(world, 1, *WORDS)
    first, second = member("A", num__standby__replicas=1), member("B", num__standby__replicas=1)
    updates, others = Updates(), Updates()
    first.set_standby_update_listener(others)
    second.set_standby_update_listener(updates)
    running(first)
    at_rest(world, first)
    running(second)
    at_rest(world, first, second)
    for client in (first, second):
        wait_until(lambda client=client: is_warm(client), "it is warm", SOON_S)
    kept = {int(task.partition("_")[2]) for task in standby(second)}
    assert kept
    for number in {0, 1, 2} - kept:  # warmed up before they moved here
        assert [told[0] for told in updates.told[number]] in ([], ["start", "loaded", "suspended"])
    ends = {number: world.log.end(TopicPartition(CHANGELOG, number)) for number in range(3)}
    for number in kept:
        assert updates.told[number] == [("start", "counts", 0), ("loaded", "counts", *[ends[number]] * 3)]
    count(world, 2, *WORDS)
    later = {number: world.log.end(TopicPartition(CHANGELOG, number)) for number in range(3)}
    for number in kept:
        wait_until(lambda number=number: updates.told[number][-1][2] == later[number], "it follows", SOON_S)
        assert sum(told[3] for told in updates.told[number][2:]) == later[number] - ends[number]
        assert {told[0] for told in updates.told[number][2:]} == {"loaded"}
    first.close(SOON)
    for number, told in others.told.items():
        closed = [each for each in told if each[0] == "suspended"]
        assert number in kept or closed
        assert all(each[-1] is SuspendReason.MIGRATED for each in closed)
    wait_until(lambda: len(active(second)) == 3, "all are active", SOON_S)
    for number in kept:
        suspended = ("suspended", "counts", later[number], later[number], SuspendReason.PROMOTED)
        wait_until(
            lambda number=number, last=suspended: updates.told[number][-1] == last, "it is active now", SOON_S
        )


# --- where is my key ---------------------------------------------------------------------------------------


def test_every_client_knows_who_has_a_key(member: Make, world: FakeWorld) -> None:
    """Active and standby, by `application.server`; all clients say the same."""
    servers = {"A": HostInfo("a", 1), "B": HostInfo("b", 2)}
    clients = {
        name: member(name, num__standby__replicas=1, application__server=str(host))
        for name, host in servers.items()
    }
    running(*clients.values())
    at_rest(world, *clients.values())
    for word in WORDS:
        task = f"0_{partition_of(word)}"
        (owner,) = [name for name, client in clients.items() if task in active(client)]
        other = "B" if owner == "A" else "A"
        wanted = KeyQueryMetadata(servers[owner], frozenset({servers[other]}), partition_of(word))
        for client in clients.values():
            assert client.query_metadata_for_key("counts", word) == wanted
    for client in clients.values():
        told = {each.host_info: each for each in client.metadata_for_all_streams_clients()}
        assert told.keys() == set(servers.values())
        for name, host in servers.items():
            assert told[host].topic_partitions == {
                TopicPartition(CHANGELOG, TaskId.parse(task).partition) for task in active(clients[name])
            }
            assert told[host].standby_topic_partitions == {
                TopicPartition(CHANGELOG, TaskId.parse(task).partition) for task in standby(clients[name])
            }
            assert told[host].state_store_names == told[host].standby_state_store_names == {"counts"}
        assert client.streams_metadata_for_store("counts") == client.metadata_for_all_streams_clients()


def test_metadata_follows_the_group(member: Make, world: FakeWorld) -> None:
    """It is that of the last agreement, and there is none for a client outside its group."""
    first = member("A", application__server="a:1")
    second = member("B", application__server="b:2")
    running(first, second)
    at_rest(world, first, second)
    assert len(first.metadata_for_all_streams_clients()) == 2
    second.close(SOON)
    wait_until(lambda: len(first.metadata_for_all_streams_clients()) == 1, "the other one is gone", SOON_S)
    assert {first.query_metadata_for_key("counts", word).active_host for word in WORDS} == {HostInfo("a", 1)}
    world.group.hold()
    world.group.kick(world.membership_of("A"))
    wait_until(lambda: first.metadata_for_all_streams_clients() == (), "forgotten", SOON_S)
    assert first.query_metadata_for_key("counts", "x") == KeyQueryMetadata.NOT_AVAILABLE
    world.group.release()
    wait_until(lambda: len(first.metadata_for_all_streams_clients()) == 1, "back", SOON_S)


def test_without_an_application_server_the_partition_is_told(member: Make, world: FakeWorld) -> None:
    """Upstream tells nothing then."""
    client = member("A")
    running(client)
    at_rest(world, client)
    for word in WORDS:
        assert client.query_metadata_for_key("counts", word) == KeyQueryMetadata(
            HostInfo.unavailable(), frozenset(), partition_of(word)
        )
    assert client.metadata_for_all_streams_clients() == ()


def test_a_global_store_is_on_every_client(member: Make, world: FakeWorld) -> None:
    """The client that is asked names itself."""
    world.topics.add("users", 2)
    first = member("A", with_global_table(), application__server="a:1")
    second = member("B", with_global_table(), application__server="b:2")
    running(first, second)
    at_rest(world, first, second)
    assert first.query_metadata_for_key("users", "x") == KeyQueryMetadata(HostInfo("a", 1))
    assert second.query_metadata_for_key("users", "x") == KeyQueryMetadata(HostInfo("b", 2))
    assert len(first.streams_metadata_for_store("users")) == 2


def test_who_asks_too_early_too_late_or_for_what_there_is_not_is_told(member: Make, world: FakeWorld) -> None:
    """`store()` raises the same errors."""
    client = member("A")
    asks = (
        client.metadata_for_all_streams_clients,
        lambda: client.streams_metadata_for_store("counts"),
        lambda: client.query_metadata_for_key("counts", "x"),
    )
    for ask in asks:
        with pytest.raises(StreamsNotStartedException):
            ask()
    running(client)
    with pytest.raises(UnknownStateStoreException, match=r"no state store 'count' .* Did you mean 'counts'"):
        client.query_metadata_for_key("count", "x")
    with pytest.raises(UnknownStateStoreException):
        client.streams_metadata_for_store("nothing")
    client.close(timedelta(seconds=20))
    for ask in asks:
        with pytest.raises(StateStoreNotAvailableException):
            ask()


# --- whatever happens --------------------------------------------------------------------------------------


def test_state_on_the_disk_is_told_to_the_leader(member: Make, world: FakeWorld, tmp_path: Path) -> None:
    """A client that comes back gets what it had, rather than something that it would have to restore."""
    first, second = pair(member, world)
    mine, theirs = active(first), active(second)
    for number in range(3):
        (tmp_path / "C" / "app" / f"0_{number}").mkdir(parents=True)
    third = member("C", num__standby__replicas=1)
    (tmp_path / "C" / "app" / "7_7").mkdir()  # of another program
    running(third)
    at_rest(world, first, second, third)
    told = third._participation._member_info(third._owner.state).tasks
    assert {str(task) for task in told} == {*mine, *theirs}
    not_here = set(told) - {TaskId.parse(task) for task in (*active(third), *standby(third))}
    assert {told[task] for task in not_here} <= {UNKNOWN_OFFSET_SUM}


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_to_clients_the_tasks_end_up_once_and_warm(
    seed: int, member: Make, world: FakeWorld
) -> None:
    """They come, close, are lost and come back, get and lose threads, while the changelog is written: each
    task is active once and standby once in the end, all stale reads everywhere are right, and what metadata
    says is so."""
    chance = random.Random(seed)
    clients: dict[str, KafkaStreams] = {}
    numbers = iter(range(100))

    def join() -> None:
        name = f"C{next(numbers)}"
        clients[name] = member(name, num__standby__replicas=1, application__server=f"{name}:80")
        clients[name].start()

    def one() -> KafkaStreams:
        return clients[chance.choice(sorted(clients))]

    join()
    join()
    value = 0
    for _ in range(12):
        value += 1
        count(world, value, *WORDS)
        match chance.choice(["join", "close", "kick", "add", "remove", "rebalance"]):
            case "join" if len(clients) < 4:
                join()
            case "close" if len(clients) > 2:
                assert clients.pop(chance.choice(sorted(clients))).close(SOON)
            case "kick":
                client = one()
                with suppress(KeyError):
                    world.group.kick(world.membership_of(client.client_id))
            case "add":
                one().add_stream_thread()
            case "remove":
                client = one()
                if len(client.metadata_for_local_threads()) > 1:
                    client.remove_stream_thread(SOON)
            case _:
                world.group.rebalance()
        for client in clients.values():
            client.check()
    running(*clients.values())
    at_rest(world, *clients.values())

    def placed() -> bool:
        everywhere = list(clients.values())
        return all(
            sorted(task for client in everywhere for task in kind(client)) == ["0_0", "0_1", "0_2"]
            for kind in (active, standby)
        )

    wait_until(placed, "each task is active once and standby once", SOON_S)
    for client in clients.values():
        if _stores(client):
            stale = client.store(STALE)
            here = set(roles(client))
            wait_until(
                lambda stale=stale, here=here: all(
                    stale.get(word) == (value if partition_of(word) in here else None) for word in WORDS
                ),
                "all is there",
                SOON_S,
            )
        for word in WORDS:
            found = client.query_metadata_for_key("counts", word)
            task = f"0_{partition_of(word)}"
            assert task in active(clients[found.active_host.host])
            (host,) = found.standby_hosts
            assert task in standby(clients[host.host])
    assert len(opened(world)) == 6
    assert [client.failures for client in clients.values()] == [()] * len(clients)
