"""The broker restarts, and is away for longer than a session: clients survive it and catch up."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from cluster_world import WITHOUT_SPARK, Cluster
from pool import Pool
from waiting import holds_for

from millstream.broker import EmbeddedKafka

pytestmark = [pytest.mark.cluster, WITHOUT_SPARK]

WORDS = [f"w{number}" for number in range(40)]
SESSION_S = 5
AWAY_S = 8


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[[], EmbeddedKafka]]:
    """Starts a broker, always on the same port and with the same data."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    started: list[EmbeddedKafka] = []

    def start() -> EmbeddedKafka:
        broker = EmbeddedKafka(tmp_path / "kafka", port=port, start_timeout=timedelta(seconds=60))
        started.append(broker)
        return broker.start()

    yield start
    for broker in started:
        broker.close()


def _failed(cluster: Cluster) -> list[str]:
    return [client.name for client in cluster.clients if "PENDING_ERROR" in client.states()]


@pytest.mark.timeout(300)
def test_clients_survive_a_restart_of_the_broker_and_a_long_absence(
    start_broker: Callable[[], EmbeddedKafka], tmp_path: Path, pool: Pool, engine: str
) -> None:
    """Two clients, no handler: any failure that reached a thread would end one in ERROR."""
    cluster = Cluster(start_broker(), tmp_path, pool=pool, engine=engine)
    config = {"consumer.session.timeout.ms": SESSION_S * 1000, "consumer.heartbeat.interval.ms": 1000}
    try:
        spec = {"source": cluster.topic("in", 4), "output": cluster.topic("out", 4)}
        cluster.start("a", config, **spec)
        cluster.start("b", config, **spec)
        cluster.wait_until_running()
        cluster.produce(spec["source"], WORDS * 5)
        cluster.wait_until_counted()
        for away_s in (0, AWAY_S):
            gone_at = time.time()
            cluster.kafka.close()
            holds_for(away_s, lambda: _failed(cluster) == [], "no client fails")
            cluster.restarted(start_broker())
            returned_at = time.time()
            cluster.produce(spec["source"], WORDS * 5)
            cluster.wait_until_counted(timeout_s=60)
            print(
                f"\nbroker away for {returned_at - gone_at:.1f} s; all counted "
                f"{time.time() - returned_at:.1f} s after its return"
            )
            cluster.wait_until_running()
        assert cluster.last_values(spec["output"]) == cluster.expected
        for client in cluster.clients:
            assert "PENDING_ERROR" not in client.states()
            client.end()
    finally:
        cluster.close()
