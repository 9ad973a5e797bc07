"""A client in a fake world."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_world import FakeWorld
from scenes import SOON, Make, word_count

from millstream.runtime.client import KafkaStreams
from millstream.states import State
from millstream.topology.topology import Topology


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    """Topics `lines` (3 partitions) and `out`."""
    world = FakeWorld({"lines": 3, "out": 1})
    yield world
    world.gate.set()
    world.stop_gate.set()
    world.spark_gate.set()
    world.close()


@pytest.fixture
def make(world: FakeWorld, tmp_path: Path) -> Iterator[Make]:
    """Makes clients of the fake world, and closes them all at the end."""
    made: list[KafkaStreams] = []

    def make(topology: Topology | None = None, **options: Any) -> KafkaStreams:
        config = {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "state.dir": str(tmp_path),
            **{name.replace("__", "."): value for name, value in options.items()},
        }
        client = KafkaStreams(topology or word_count(), config, parts=world.parts())
        made.append(client)
        return client

    yield make
    world.gate.set()
    world.stop_gate.set()
    world.spark_gate.set()
    for client in made:
        client.close(timedelta(0))
    for client in made:
        assert client.state is State.CREATED or client._closed.wait(SOON.total_seconds())
        client.check()


@pytest.fixture
def member(make: Make, tmp_path: Path) -> Make:
    """Makes clients of one application, each as on a machine of its own: `member("A")`."""

    def member(name: str, topology: Topology | None = None, **options: Any) -> KafkaStreams:
        return make(topology, **{"client__id": name, "state__dir": str(tmp_path / name), **options})

    return member
