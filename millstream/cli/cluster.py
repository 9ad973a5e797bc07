"""How commands reach the Kafka cluster: its settings, its topics, and a group's offsets."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millstream.cli.command_settings import settings
from millstream.errors import StreamsException
from millstream.model import TopicPartition

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.kafka.topics import KafkaTopics

__all__ = ["NOBODY", "PATIENCE", "cluster_config", "lags", "partitions_of", "topics_of"]

NOBODY = "millstream-cli"
"""The application id for commands that do not need one."""


PATIENCE = {"request.timeout.ms": 10_000}
"""How long commands wait for an answer, unless set otherwise. A person waits, and can start them again."""


def cluster_config(
    config_file: Path | None,
    set_: list[str] | None,
    bootstrap_server: str | None,
    application_id: str | None = None,
) -> StreamsConfig:
    """The configuration for the cluster.

    Raises:
        typer.BadParameter: its address is unknown.
    """
    from millstream.config import StreamsConfig

    given: dict[str, Any] = PATIENCE | settings(
        config_file,
        os.environ,
        set_,
        {"bootstrap.servers": bootstrap_server, "application.id": application_id},
    )
    given.setdefault("application.id", NOBODY)
    if "bootstrap.servers" not in given:
        raise typer.BadParameter(
            "set Kafka's address here, in MILLSTREAM_BOOTSTRAP_SERVERS, or in --config-file",
            param_hint="--bootstrap-server",
        )
    return StreamsConfig(given)


@contextmanager
def topics_of(config: StreamsConfig) -> Iterator[KafkaTopics]:
    """The cluster's topics, closed afterwards."""
    from millstream.kafka.topics import KafkaTopics

    topics = KafkaTopics(config)
    try:
        yield topics
    finally:
        topics.close()


def partitions_of(topics: KafkaTopics, topic: str) -> list[TopicPartition]:
    """The partitions of a topic.

    Raises:
        StreamsException: there is no such topic.
    """
    found = topics.look([topic], patient=True)
    if topic not in found:
        near = difflib.get_close_matches(topic, topics.names(), n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise StreamsException(f"there is no topic '{topic}'{hint}")
    return [TopicPartition(topic, number) for number in range(found[topic].partitions)]


def lags(
    committed: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> list[tuple[TopicPartition, int, int, int]]:
    """(partition, the group's offset, the end, the lag), in order; deleted records do not count as lag."""
    found = []
    for at in sorted(committed):
        if at in ends:
            here = max(committed[at], begins.get(at, 0))
            found.append((at, committed[at], ends[at], max(0, ends[at] - here)))
    return found
