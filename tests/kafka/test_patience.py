"""Waiting for a cluster that is away: what is said meanwhile, and when it ends."""

from __future__ import annotations

import logging
import socket
from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import ClusterMetadata, PartitionMetadata, TopicMetadata

from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.kafka import patience
from millstream.kafka.patience import patiently, reachability
from millstream.kafka.topics import KafkaTopics, electing


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_cluster_that_is_away_is_told_of_until_time_is_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The log names the servers, the result of a connection to them, and the time left, for any request."""
    monkeypatch.setattr(patience, "_REPORT_AFTER_S", 0.2)
    server = f"127.0.0.1:{unused_port()}"
    topics = KafkaTopics(
        StreamsConfig({"application.id": "a", "bootstrap.servers": server, "request.timeout.ms": 1_400})
    )
    try:
        for question, ask in (
            ("list topics", topics.names),
            ("describe topics", lambda: topics.describe(["x"])),
        ):
            caplog.clear()
            with caplog.at_level(logging.WARNING, "millstream"), pytest.raises(StreamsException) as raised:
                ask()
            assert f"could not {question}" in str(raised.value)
            assert server in str(raised.value)
            told = [record.getMessage() for record in caplog.records]
            assert len(told) == 2  # after 0.2 and 0.6 s, and not anew for each client that is tried
            assert all(text.startswith("no answer from Kafka for ") for text in told)
            assert f"s (to {question}): {server} cannot be reached (Connection refused); " in told[0]
        caplog.clear()
        with caplog.at_level(logging.WARNING, "millstream.kafka.patience"), pytest.raises(StreamsException):
            topics.look(["x"])
        assert caplog.records == [], "it is asked again and again, and who asks it tells"
    finally:
        topics.close()


def test_an_answer_ends_it_and_so_does_a_refusal() -> None:
    """What says no at once has answered."""
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "localhost:1"})
    assert patiently(config, "ask", lambda seconds: seconds, 1.0) == pytest.approx(1.0, abs=0.5)
    refused: Future[None] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException):
        patiently(config, "ask", refused.result, 60.0)


def test_what_a_connection_meets_is_said_in_words() -> None:
    """The first three servers are listed."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        server = f"127.0.0.1:{listening.getsockname()[1]}"
        said = reachability([server, f"[::1]:{unused_port()}", "nonesuch.invalid:9092", "left:1"])
    assert len(said) == 3
    assert said[0].startswith(f"{server} accepts connections, but does not answer as expected")
    assert "cannot be reached (" in said[1]
    assert said[2].startswith("nonesuch.invalid:9092 cannot be reached (")


@pytest.mark.parametrize(
    ("topic", "leaders", "expected"), [("a", [1, -1], True), ("a", [1, 1], False), ("b", [-1], False)]
)
def test_a_partition_without_a_leader_is_waited_for_and_a_topic_that_is_gone_is_not(
    topic: str, leaders: list[int], expected: bool
) -> None:
    """Brokers that have just started elect leaders for as long as that takes: they are asked again."""
    listed = ClusterMetadata()
    listed.topics = {topic: TopicMetadata()}
    for number, leader in enumerate(leaders):
        partition = listed.topics[topic].partitions[number] = PartitionMetadata()
        partition.leader = leader
    assert electing(listed, [NativePartition("a", number) for number in range(2)]) is expected
