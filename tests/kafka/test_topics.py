"""`ports.Topics` on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from forgetful_broker import ForgetfulBroker
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, InternalTopicException, StreamsException
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition
from millstream.ports import TopicDescription
from millstream.topology.internal_topics import InternalTopic

pytestmark = pytest.mark.kafka


def config(servers: str, **options: str) -> StreamsConfig:
    return StreamsConfig(
        {
            "application.id": "topics-test",
            "bootstrap.servers": servers,
            **{name.replace("__", "."): value for name, value in options.items()},
        }
    )


@pytest.fixture
def topics(kafka: EmbeddedKafka) -> Iterator[KafkaTopics]:
    topics = KafkaTopics(config(kafka.bootstrap_servers))
    yield topics
    topics.close()


def name() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def test_a_created_topic_is_there_when_create_returns(topics: KafkaTopics) -> None:
    """It has its partitions, its configuration and an id."""
    topic = name()
    topics.create([InternalTopic(topic, 3, {"cleanup.policy": "compact"})], -1)
    found = topics.describe([topic])[topic]
    assert (found.name, found.partitions, found.configs["cleanup.policy"]) == (topic, 3, "compact")
    assert found.topic_id
    assert topic in topics.names()


def test_a_topic_that_exists_is_left_as_it_is(topics: KafkaTopics) -> None:
    """Two clients may create it at the same time."""
    topic = name()
    topics.create([InternalTopic(topic, 3, {})], 1)
    before = topics.describe([topic])
    topics.create([InternalTopic(topic, 5, {"cleanup.policy": "compact"})], 1)
    assert topics.describe([topic]) == before


def test_a_topic_made_anew_has_another_id(topics: KafkaTopics, kafka: EmbeddedKafka) -> None:
    """This makes a deletion and recreation visible (KIP-516)."""
    topic = name()
    topics.create([InternalTopic(topic, 1, {})], 1)
    before = topics.describe([topic])[topic].topic_id
    kafka.delete_topic(topic)
    topics.create([InternalTopic(topic, 1, {})], 1)
    assert topics.describe([topic])[topic].topic_id != before


def test_a_look_is_a_description_without_configs(topics: KafkaTopics, kafka: EmbeddedKafka) -> None:
    """Missing topics are left out, and do not come into being; a deleted one is gone with the next look."""
    one, other, missing = name(), name(), name()
    topics.create([InternalTopic(one, 3, {}), InternalTopic(other, 1, {})], 1)
    described = topics.describe([one])[one]
    assert topics.look([one, missing])[one] == TopicDescription(one, 3, described.topic_id)
    assert set(topics.look([one, other, missing])) == {one, other}
    kafka.delete_topic(one)
    for _ in range(20):
        assert set(topics.look([one, other, missing])) == {other}
    assert {one, missing} & topics.names() == set()
    assert topics.look([]) == {}


def test_each_partition_has_the_racks_of_its_brokers(topics: KafkaTopics) -> None:
    """Of one without a broker.rack, too: the leader of a group has to know that it is not known (KIP-925)."""
    topic = name()
    topics.create([InternalTopic(topic, 3, {})], 1)
    assert topics.look([topic])[topic].racks == (frozenset({""}),) * 3
    assert topics.describe([topic])[topic].racks == (frozenset({""}),) * 3


def test_a_look_is_quick(topics: KafkaTopics) -> None:
    """A few milliseconds, so that it can be repeated several times a second."""
    topic = name()
    topics.create([InternalTopic(topic, 1, {})], 1)
    topics.look([topic])
    took = []
    for _ in range(50):
        before = time.monotonic()
        topics.look([topic])
        took.append(time.monotonic() - before)
    assert sorted(took)[25] < 0.05


def test_asking_for_a_topic_does_not_create_it(topics: KafkaTopics) -> None:
    """A missing one is left out, among others that exist too; and it is still missing after."""
    there, missing = name(), name()
    topics.create([InternalTopic(there, 1, {})], 1)
    assert set(topics.describe([there, missing])) == {there}
    assert topics.describe([missing]) == {}
    assert topics.describe([]) == {}
    assert missing not in topics.names()


def test_offsets_are_those_of_the_log(topics: KafkaTopics, kafka: EmbeddedKafka) -> None:
    """The end is after the last record."""
    from confluent_kafka import Producer

    topic = name()
    topics.create([InternalTopic(topic, 2, {})], 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for _ in range(7):
        producer.produce(topic, b"v", partition=1)
    producer.flush(10)
    parts = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert topics.end_offsets(parts) == {parts[0]: 0, parts[1]: 7}
    assert topics.beginning_offsets(parts) == {parts[0]: 0, parts[1]: 0}
    assert topics.end_offsets([]) == {}


def test_topics_and_groups_are_deleted_and_a_group_with_members_is_not(
    topics: KafkaTopics, kafka: EmbeddedKafka
) -> None:
    """What is not there is no error; what a group has committed is gone with it."""
    from confluent_kafka import Consumer
    from confluent_kafka import TopicPartition as NativePartition

    topic, group = name(), name()
    topics.create([InternalTopic(topic, 1, {})], 1)
    at = TopicPartition(topic, 0)
    assert topics.committed(group, [at]) == {}
    topics.delete_group(group)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": group}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "it is a member", 30)
    consumer.commit(offsets=[NativePartition(topic, 0, 3)], asynchronous=False)
    with pytest.raises(IllegalStateException, match=f"group '{group}' has members"):
        topics.delete_group(group)
    consumer.close()
    assert topics.committed(group, [at]) == {at: 3}
    topics.delete_group(group)
    assert topics.committed(group, [at]) == {}
    topics.delete([topic, name()])
    assert topic not in topics.names()


def test_a_topic_that_the_cluster_refuses_is_an_error(topics: KafkaTopics) -> None:
    """InternalTopicException with the topic and the cluster's reason."""
    topic = name()
    with pytest.raises(InternalTopicException, match=f"topic '{topic}' could not be created: .*eplication"):
        topics.create([InternalTopic(topic, 1, {})], 3)
    with pytest.raises(InternalTopicException, match=r"no\.such\.config"):
        topics.create([InternalTopic(topic, 1, {"no.such.config": "1"})], 1)
    assert topics.describe([topic]) == {}


def test_a_closed_one_says_so(kafka: EmbeddedKafka) -> None:
    """Closing it twice is allowed."""
    topics = KafkaTopics(config(kafka.bootstrap_servers))
    topics.close()
    topics.close()
    with pytest.raises(IllegalStateException, match="closed"):
        topics.names()


@pytest.mark.parametrize(
    "call",
    [
        lambda topics: topics.names(),
        lambda topics: topics.describe(["t"]),
        lambda topics: topics.look(["t"]),
        lambda topics: topics.create([InternalTopic("t", 1, {})], 1),
        lambda topics: topics.end_offsets([TopicPartition("t", 0)]),
    ],
    ids=["names", "describe", "look", "create", "end_offsets"],
)
def test_a_cluster_that_is_not_there_is_told_within_the_deadline(call: object) -> None:
    """StreamsException that names bootstrap.servers, after request.timeout.ms, not after a minute."""
    topics = KafkaTopics(config("127.0.0.1:1", request__timeout__ms="500"))
    before = time.monotonic()
    with pytest.raises(StreamsException, match=r"bootstrap\.servers is '127\.0\.0\.1:1'"):
        call(topics)  # type: ignore[operator]
    assert time.monotonic() - before < 5
    topics.close()


def test_who_asks_once_waits_longer_than_who_asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that starts while its broker is slow would otherwise end, after 5 s."""
    topics = KafkaTopics(config("127.0.0.1:1", request__timeout__ms="40000"))
    waited: list[float] = []

    def ask(*_: object, timeout_s: float, **__: object) -> dict[str, object]:
        waited.append(timeout_s)
        return {}

    monkeypatch.setattr(topics, "_ask", ask)
    topics.look(["t"])
    topics.look(["t"], patient=True)
    topics.close()
    assert waited == [5.0, 40.0]


def test_an_only_broker_that_says_there_are_none_is_found_again(kafka: EmbeddedKafka) -> None:
    """librdkafka alone may never ask anybody again. One question is enough, if it may take long enough."""
    broker = ForgetfulBroker(kafka.bootstrap_servers)
    topics = KafkaTopics(
        config(
            broker.bootstrap_servers,
            request__timeout__ms="30000",
            admin__metadata__recovery__strategy="none",
        )
    )
    topic = name()
    kafka.create_topic(topic, 1)
    try:
        for ask in (
            lambda: set(topics.describe([topic])),
            lambda: {topic} & topics.names(),
            lambda: set(topics.end_offsets([TopicPartition(topic, 0)])) and {topic},
        ):
            assert ask() == {topic}
            broker.knows_brokers = False
            denied = broker.denied
            with suppress(StreamsException):
                topics.look([topic])
            wait_until(lambda denied=denied: broker.denied > denied, "it hears of no brokers")  # type: ignore[misc]
            broker.knows_brokers = True
            assert ask() == {topic}
    finally:
        topics.close()
        broker.close()


def test_describing_is_quick_enough_to_be_repeated(topics: KafkaTopics) -> None:
    """A watch over source topics asks several times a second."""
    topic = name()
    topics.create([InternalTopic(topic, 1, {})], 1)
    before = time.monotonic()
    for _ in range(20):
        topics.describe([topic])
    assert (time.monotonic() - before) / 20 < 0.1


def test_a_topic_that_was_created_a_moment_before_is_confirmed(
    topics: KafkaTopics, kafka: EmbeddedKafka
) -> None:
    """A broker may not know of it yet; the controller does. One that is missing is left out at
    once, and does not come into being.
    """
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    late = 0
    for _ in range(40):
        topic = name()
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        late += topic not in topics.look([topic])
        assert set(topics.confirm([topic])) == {topic}
    print(f"\n{late} of 40 new topics were not in a plain look")
    missing = [name(), name()]
    began = time.monotonic()
    assert topics.confirm(missing) == {}
    assert time.monotonic() - began < 1.0
    kafka.delete_topic(topic)
    assert topics.confirm([topic]) == {}
    assert not {topic, *missing} & topics.names()
    soon = name()
    admin.create_topics([NewTopic(soon, 1, 1)])
    assert soon in topics.names(lambda names: soon in names)
