"""A client whose store's topic was deleted and created again while it was closed, with RocksDB."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from scenes import SOON, global_only

from millstream.model import TopicPartition
from millstream.runtime import wiring
from millstream.runtime.client import KafkaStreams

pytestmark = pytest.mark.disk

USERS = TopicPartition("users", 0)


def rows(world: FakeWorld, path: Path) -> dict[str, str]:
    config = {"application.id": "app", "bootstrap.servers": "fake:9092", "state.dir": str(path)}
    # Only the stores are real.
    client = KafkaStreams(global_only(), config, parts=replace(world.parts(), store=wiring._store))
    client.start()
    try:
        client.wait_until_running(SOON)
        store = client.store("users")
        return {row.key: row.value for row in store.all()}
    finally:
        assert client.close(timedelta(seconds=30))


@pytest.mark.parametrize("again", [False, True], ids=["the same topic", "created again"])
def test_a_store_never_mixes_a_topic_with_an_earlier_one_of_its_name(
    world: FakeWorld, tmp_path: Path, again: bool
) -> None:
    """The new topic is longer, so that the position of the old one exists in it, too."""
    world.topics.add("users", 1)
    for number in range(3):
        world.log.append(USERS, (f"old-{number}".encode(), b"1", 1))
    assert sorted(rows(world, tmp_path)) == ["old-0", "old-1", "old-2"]
    if again:
        world.topics.recreate("users")
        world.log.recreate(USERS)
    for number in range(5):
        world.log.append(USERS, (f"new-{number}".encode(), b"2", 2))
    new = [f"new-{number}" for number in range(5)]
    assert sorted(rows(world, tmp_path)) == (new if again else sorted(["old-0", "old-1", "old-2", *new]))
