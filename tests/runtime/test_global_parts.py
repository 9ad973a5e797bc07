"""What is known of global tables before their thread starts: parts, serdes, and topics that are not there."""

from __future__ import annotations

import pytest
from fake_ports import FakeTopics

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import MissingSourceTopicException, StreamsException, TopologyException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.threads.global_tables import declared_serdes, find_global_parts, global_parts
from millstream.serdes.serdes import Serdes
from millstream.topology.topology import Topology


def two_tables() -> Topology:
    """Subtopology 0 is `users`, 1 a stream, 2 `cities`."""
    builder = StreamsBuilder()
    builder.global_table("users", Consumed.with_(Serdes.string()), Materialized.as_("by-id"))
    builder.stream("in").to("out")
    builder.global_table("cities", Materialized.as_("cities"))
    return builder.build()


def test_a_global_store_has_a_part_for_each_partition_of_its_topic() -> None:
    """Parts have the number of the store's own subtopology, which distinguishes them from those of tasks."""
    parts = global_parts(two_tables(), {"users": 2, "cities": 1, "in": 7})
    assert [(part.task_id, part.store.name, part.changelog) for part in parts] == [
        (TaskId(0, 0), "by-id", TopicPartition("users", 0)),
        (TaskId(0, 1), "by-id", TopicPartition("users", 1)),
        (TaskId(2, 0), "cities", TopicPartition("cities", 0)),
    ]


def test_all_topics_that_are_missing_are_named() -> None:
    """The message has Kafka Streams' words, each store, and what to do."""
    with pytest.raises(MissingSourceTopicException) as caught:
        global_parts(two_tables(), {"in": 1, "users": 0}, "kafka:9092")
    assert caught.value.topics == ("cities", "users")
    assert str(caught.value) == (
        "There are no partitions available for topic users when initializing global store by-id; "
        "There are no partitions available for topic cities when initializing global store cities; "
        "create them on 'kafka:9092', or correct the topology, then start a new client"
    )


def test_the_cluster_says_how_many_partitions_there_are() -> None:
    """Only the topics of global tables are asked for, and nothing is created."""
    topics = FakeTopics({"users": 3, "cities": 1})
    assert len(find_global_parts(topics, two_tables(), "kafka:9092", create_missing=False)) == 4
    topics.remove("cities")
    with pytest.raises(
        MissingSourceTopicException, match="topic cities when initializing global store cities"
    ):
        find_global_parts(topics, two_tables(), "kafka:9092", create_missing=False)
    assert topics.created == []
    topics.away = True
    with pytest.raises(StreamsException, match="could not reach the cluster"):
        find_global_parts(topics, two_tables(), "kafka:9092", create_missing=False)


def test_an_embedded_broker_gets_the_topics_it_does_not_have() -> None:
    """It has just been started, and nobody else could make them."""
    topics = FakeTopics({"users": 3})
    parts = find_global_parts(topics, two_tables(), "127.0.0.1:1", create_missing=True)
    assert [topic.name for topic in topics.created] == ["cities"]
    assert [str(part.changelog) for part in parts] == ["users-0", "users-1", "users-2", "cities-0"]


def test_without_global_tables_the_cluster_is_not_asked() -> None:
    """A client that has none pays nothing."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    topics = FakeTopics()
    topics.away = True
    assert find_global_parts(topics, builder.build(), "kafka:9092", create_missing=True) == ()


def test_serdes_are_the_declared_ones_then_the_configured() -> None:
    """Nothing can be inferred; without any, the error shows what to write."""
    serdes = declared_serdes(two_tables(), Serdes.uuid(), Serdes.long())
    assert serdes == {
        "by-id": (Serdes.string(), Serdes.long()),
        "cities": (Serdes.uuid(), Serdes.long()),
    }
    with pytest.raises(TopologyException) as caught:
        declared_serdes(two_tables(), Serdes.uuid())
    assert "KTABLE-SOURCE-0000000001: no value serde for the global table of topic 'users'" in str(
        caught.value
    )
    assert "Consumed.with_(Serdes.string(), Serdes.string())" in str(caught.value)
    assert "default.value.serde" in str(caught.value)
