"""An application that is reset begins anew, exactly where one says: real Kafka, real Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner
from waiting import wait_until
from world import World, content, key_value_store

from millstream import (
    Consumed,
    IllegalStateException,
    KafkaStreams,
    Materialized,
    Produced,
    Repartitioned,
    Serdes,
    StreamsBuilder,
    Topology,
)
from millstream.cli.main import app
from millstream.config import StreamsConfig
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

NOON = 1_767_268_800_000  # 2026-01-01T12:00:00Z


def counting(source: str, output: str) -> Topology:
    """Two pipelines, with a repartition topic between them, and a changelog."""
    builder = StreamsBuilder()
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    words = builder.stream(source, strings).repartition(Repartitioned.as_("words"))
    counts = words.group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().to(output, Produced.with_(Serdes.string(), Serdes.long()))
    return builder.build()


def cli(*arguments: str) -> tuple[int, str]:
    """`millstream reset …`: its exit code, and all that it says."""
    result = CliRunner().invoke(app, ["reset", *arguments], env={"NO_COLOR": "1", "COLUMNS": "200"})
    return result.exit_code, result.output


def test_a_reset_application_counts_exactly_from_where_it_was_told(world: World, tmp_path: Path) -> None:
    """By the command, to an offset, and from the program, to a time. Refused while a client lives; a dry run
    changes nothing; one that was interrupted is finished before anything starts.
    """
    source, output = world.topic("in", 2), world.topic("out", 1)
    application_id = world.name("app")
    topology = counting(source, output)
    for number in range(6):
        world.produce(source, [("a", str(number))], partition=0, timestamp=NOON + number * 60_000)
    world.produce(source, [("b", "0")], partition=1, timestamp=NOON)
    servers = world.kafka.bootstrap_servers
    where = ("--bootstrap-server", servers, "--state-dir", str(tmp_path / "state"))
    read = [TopicPartition(source, 0), TopicPartition(source, 1)]
    own = {f"{application_id}-counts-changelog", f"{application_id}-words-repartition"}
    kafka = KafkaTopics(StreamsConfig({"application.id": "test", "bootstrap.servers": servers}))

    def counted(client: KafkaStreams, expected: dict[str, int]) -> None:
        store = key_value_store(client, "counts")
        wait_until(lambda: content(store) == expected, lambda: f"{expected}, not {content(store)}", 60)

    # 1. It runs: nobody may reset it.
    first = world.client(topology, application_id)
    counted(first, {"a": 6, "b": 1})
    wait_until(
        lambda: sum(kafka.committed(application_id, read).values()) == 7, "the offsets are committed", 30
    )
    code, said = cli(application_id, *where)
    assert code == 1
    assert "is running: its group has" in said
    with pytest.raises(IllegalStateException, match="Cannot reset while running"):
        first.reset()
    first.close(timedelta(seconds=30))

    # 2. What would be done.
    code, said = cli(application_id, *where, "--to-offset", "2", "--input-topics", source, "--dry-run")
    assert code == 0, said
    assert f"input '{source}' partition 0: read from offset 2 on (it has 0 to 6)" in said
    assert f"input '{source}' partition 1: read from offset 1 on (it has 0 to 1); 2 was asked for" in said
    assert all(f"delete internal topic '{name}'" in said for name in own)
    assert own <= kafka.names()

    # 3. It is done.
    code, said = cli(application_id, *where, "--to-offset", "2", "--input-topics", source)
    assert code == 0, said
    assert not own & kafka.names()
    offsets = {TopicPartition(source, 0): 2, TopicPartition(source, 1): 1}
    assert kafka.committed(application_id, read) == offsets, "Kafka's tools see it, too"
    second = world.client(topology, application_id)
    counted(second, {"a": 4})
    world.produce(source, [("b", "1")], partition=1, timestamp=NOON)
    counted(second, {"a": 4, "b": 1})
    second.close(timedelta(seconds=30))
    assert second.failures == ()

    # 4. By the program, which knows its topics.
    third = world.created(topology, application_id)
    done = third.reset(datetime.fromtimestamp(NOON / 1000 + 240, UTC))
    assert [(each.at.partition, each.offset) for each in done.positions] == [(0, 4), (1, 2)]
    assert set(done.internal) == own
    third.start()
    third.wait_until_running(timedelta(seconds=90))
    counted(third, {"a": 2})
    world.produce(source, [("a", "6"), ("c", "0")], partition=1, timestamp=NOON)
    counted(third, {"a": 3, "c": 1})
    kafka.close()
