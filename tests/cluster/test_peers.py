"""Members that do not fit: another program under the same application.id, and ones that talk nonsense."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
from cluster_world import SESSION_MS, WITHOUT_SPARK, Cluster
from waiting import wait_until

from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.kafka.membership import KafkaMembership
from millstream.model import TopicPartition

pytestmark = [pytest.mark.cluster, WITHOUT_SPARK]

WORDS = [f"w{number}" for number in range(20)]


class Babbler:
    """A group member that says random bytes, as a follower and as a leader."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.generations: list[int] = []
        self.led = 0

    def _nonsense(self) -> bytes:
        return self._random.randbytes(self._random.randint(0, 200))

    def user_data(self) -> bytes:
        return self._nonsense()

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        self.led += 1
        return {member: self._nonsense() for member in members}

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return ()

    def assigned(self, assignment: bytes, generation: int) -> None:
        self.generations.append(generation)

    def lost(self, reason: str) -> None:
        pass

    def failed(self, error: StreamsException) -> None:
        pass

    def tick(self) -> None: ...


@pytest.fixture
def babbler(cluster: Cluster) -> Iterator[tuple[Babbler, KafkaMembership]]:
    member = Babbler(4)
    config = StreamsConfig(
        {
            "application.id": cluster.application_id,
            "bootstrap.servers": cluster.servers,
            "consumer.session.timeout.ms": SESSION_MS,
            "consumer.heartbeat.interval.ms": SESSION_MS // 5,
        }
    )
    membership = KafkaMembership(config, member, (cluster.name("in"),), client_id="babbler")
    yield member, membership
    membership.close(5)


def test_nonsense_from_a_follower_is_ignored(
    cluster: Cluster, babbler: tuple[Babbler, KafkaMembership]
) -> None:
    """It gets nothing to do, and the work goes on, however often it joins."""
    member, membership = babbler
    spec = {"source": cluster.topic("in", 2), "handler": "SHUTDOWN_CLIENT"}
    client = cluster.start("a", **spec)
    cluster.wait_until_running()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    membership.start()
    for round_ in range(1, 6):
        wait_until(lambda round_=round_: len(member.generations) >= round_, "the group agrees", 15)
        cluster.produce(spec["source"], WORDS)
        cluster.wait_until_counted()
        membership.rejoin("again")
    assert member.led == 0
    assert not client.handled()
    assert client.pipelines() == ["p0", "p1"]
    client.end()


def test_nonsense_from_the_leader_is_a_clear_failure(
    cluster: Cluster, babbler: tuple[Babbler, KafkaMembership]
) -> None:
    """TaskAssignmentException at the handler, which decides; nothing hangs."""
    member, membership = babbler
    source = cluster.topic("in", 2)
    membership.start()
    wait_until(lambda: member.generations, "it is alone in the group, and leads", 15)
    client = cluster.start("a", {"num.stream.threads": 2}, source=source, handler="SHUTDOWN_CLIENT")
    client.reached("ERROR")
    assert member.led > 1
    assert {call["error"] for call in client.handled()} == {"TaskAssignmentException"}
    assert client.ask("close") is True
    client.end()


def test_only_the_odd_one_out_fails(cluster: Cluster) -> None:
    """Another topology under the same application.id: what is agreed stays, the newcomer is told why, and is
    not told again and again."""
    spec: dict[str, Any] = {"source": cluster.topic("in", 2), "handler": "SHUTDOWN_CLIENT"}
    client = cluster.start("a", **spec)
    cluster.wait_until_running()
    other = cluster.start("b", {"num.stream.threads": 2}, **{**spec, "store": "others"})
    other.reached("ERROR")
    assert {call["error"] for call in other.handled()} == {"TaskAssignmentException"}
    assert "run(s) a different topology" in other.handled()[0]["text"]
    assert len(other.handled()) <= 2, "once for each thread"
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted(client)
    assert not client.handled()
    assert client.is_running()
    started = time.time()
    other.end()
    assert time.time() - started < 20
    client.end()
