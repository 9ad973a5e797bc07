"""`ports.Topics`: the fake and a real cluster keep one contract."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from fake_ports import FakeLog, FakeTopics
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.errors import StreamsException
from millstream.model import TopicPartition
from millstream.ports import Topics
from millstream.topology.internal_topics import InternalTopic


@dataclass
class Cluster:
    """A port, and what others do to the cluster behind it."""

    port: Topics
    write: Callable[[TopicPartition, int], None]
    truncate: Callable[[TopicPartition, int], None]
    commit: Callable[[str, TopicPartition, int], None]
    grow: Callable[[str, int], None]
    unreachable: Callable[[], Topics]


def fake() -> Iterator[Cluster]:
    log = FakeLog()
    topics = FakeTopics(log=log)

    def away() -> Topics:
        other = FakeTopics()
        other.away = True
        return other

    yield Cluster(
        topics,
        lambda at, count: [log.append(at, (b"k", b"v", 0)) for _ in range(count)] and None,
        log.truncate,
        lambda group, at, offset: topics.commits.setdefault(group, {}).__setitem__(at, offset),
        topics.grow,
        away,
    )


def real(kafka: EmbeddedKafka) -> Iterator[Cluster]:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka import TopicPartition as Native
    from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

    from millstream.config import StreamsConfig
    from millstream.kafka.topics import KafkaTopics

    servers = {"bootstrap.servers": kafka.bootstrap_servers}
    admin, producer = AdminClient(servers), Producer(servers)
    ports: list[Topics] = []

    def port(at: str, **more: str) -> Topics:
        config = {"application.id": "contract", "bootstrap.servers": at, **more}
        ports.append(KafkaTopics(StreamsConfig(config)))
        return ports[-1]

    def write(at: TopicPartition, count: int) -> None:
        for _ in range(count):
            producer.produce(at.topic, b"v", b"k", at.partition)
        assert producer.flush(20) == 0

    def truncate(at: TopicPartition, first: int) -> None:
        for future in admin.delete_records([Native(at.topic, at.partition, first)]).values():
            future.result(20)

    def commit(group: str, at: TopicPartition, offset: int) -> None:
        member = Consumer({**servers, "group.id": group, "enable.auto.commit": False})
        member.commit(offsets=[Native(at.topic, at.partition, offset)], asynchronous=False)
        member.close()

    def grow(name: str, partitions: int) -> None:
        for future in admin.create_partitions([NewPartitions(name, partitions)]).values():
            future.result(20)

    yield Cluster(
        port(kafka.bootstrap_servers),
        write,
        truncate,
        commit,
        grow,
        lambda: port("localhost:1", **{"request.timeout.ms": "500"}),
    )
    for each in ports:
        each.close()
        each.close()


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    yield from fake() if request.param == "fake" else real(request.getfixturevalue("kafka"))


@pytest.fixture
def name() -> str:
    return f"contract-{uuid.uuid4().hex[:10]}"


def test_asking_creates_nothing_and_leaves_out_what_is_missing(cluster: Cluster, name: str) -> None:
    """This holds for every kind of request."""
    port = cluster.port
    for ask in (port.describe, port.look, port.confirm):
        assert ask([name]) == {}
        assert ask([]) == {}
    assert name not in port.names()
    assert port.describe([name]) == {}


def test_a_created_topic_is_described_with_its_configs_and_looked_at_without(
    cluster: Cluster, name: str
) -> None:
    """One that exists already is left as it is; ids are each topic's own."""
    port, other = cluster.port, f"{name}-other"
    port.create([InternalTopic(name, 3, {"cleanup.policy": "compact"}), InternalTopic(other, 1, {})], 1)
    described = port.describe([name, other, f"{name}-missing"])
    assert described.keys() == {name, other}
    found = described[name]
    assert (found.name, found.partitions, found.configs["cleanup.policy"]) == (name, 3, "compact")
    assert {found.topic_id, described[other].topic_id} > {found.topic_id} != {""}
    for ask in (port.look, port.confirm):
        looked = ask([name])[name]
        assert (looked.partitions, looked.topic_id, looked.configs) == (3, found.topic_id, {})
    port.create([InternalTopic(name, 5, {"cleanup.policy": "delete"})], 1)
    assert port.describe([name])[name] == found
    assert {name, other} <= port.names(lambda names: name in names)


def test_a_topic_that_gets_partitions_is_the_same_topic(cluster: Cluster, name: str) -> None:
    """Its id stays the same."""
    cluster.port.create([InternalTopic(name, 1, {})], 1)
    before = cluster.port.look([name])[name]
    cluster.grow(name, 4)
    wait_until(lambda: cluster.port.confirm([name])[name].partitions == 4, "the broker has heard of it")
    assert cluster.port.confirm([name])[name].topic_id == before.topic_id


def test_a_deleted_topic_is_gone_when_delete_returns_and_comes_back_as_another(
    cluster: Cluster, name: str
) -> None:
    """Empty, with another id (KIP-516); deleting what is missing is nothing."""
    port, at = cluster.port, TopicPartition(name, 0)
    port.create([InternalTopic(name, 1, {})], 1)
    before = port.look([name])[name]
    cluster.write(at, 3)
    port.delete([name, f"{name}-missing"])
    assert port.look([name]) == port.confirm([name]) == port.describe([name]) == {}
    port.delete([name])
    port.create([InternalTopic(name, 1, {})], 1)
    assert port.look([name])[name].topic_id != before.topic_id
    assert port.end_offsets([at]) == {at: 0}


def test_offsets_are_those_of_the_log(cluster: Cluster, name: str) -> None:
    """The first that is there, and the one after the last; of each partition that is asked for."""
    port = cluster.port
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    port.create([InternalTopic(name, 2, {})], 1)
    cluster.write(first, 5)
    cluster.truncate(first, 2)
    assert port.end_offsets([first, second]) == {first: 5, second: 0}
    assert port.beginning_offsets([first, second]) == {first: 2, second: 0}
    assert port.end_offsets([]) == port.beginning_offsets([]) == {}


def test_offsets_of_what_does_not_exist_are_an_error(cluster: Cluster, name: str) -> None:
    """A topic, or a partition of one that does: never an offset that is made up."""
    cluster.port.create([InternalTopic(name, 1, {})], 1)
    for missing in (TopicPartition(f"{name}-missing", 0), TopicPartition(name, 7)):
        for ask in (cluster.port.end_offsets, cluster.port.beginning_offsets):
            with pytest.raises(StreamsException):
                ask([missing])


def test_a_groups_commits_are_read_and_deleted_with_it(cluster: Cluster, name: str) -> None:
    """One that there is not has committed nothing, and can be deleted all the same."""
    port, at = cluster.port, TopicPartition(name, 0)
    port.create([InternalTopic(name, 1, {})], 1)
    assert port.committed(name, [at]) == {}
    port.delete_group(name)
    cluster.commit(name, at, 4)
    assert port.committed(name, [at]) == {at: 4}
    port.delete_group(name)
    assert port.committed(name, [at]) == {}


def test_a_cluster_that_is_away_is_an_error_that_names_it(cluster: Cluster, name: str) -> None:
    """The answer is never empty, because that would mean that a topic is gone."""
    port, at = cluster.unreachable(), TopicPartition(name, 0)
    for ask in (
        lambda: port.describe([name]),
        lambda: port.look([name]),
        lambda: port.confirm([name]),
        lambda: port.names(),
        lambda: port.end_offsets([at]),
        lambda: port.committed("g", [at]),
        lambda: port.create([InternalTopic(name, 1, {})], 1),
        lambda: port.delete([name]),
        lambda: port.delete_group("g"),
    ):
        with pytest.raises(StreamsException, match=r"bootstrap\.servers|localhost:1"):
            ask()
