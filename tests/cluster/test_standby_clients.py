"""Standbys on real clients: one is killed or closed, and the other one has its part of the store at once."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any

import pytest
from cluster_world import WITHOUT_SPARK, ClientProcess, Cluster
from waiting import wait_until

pytestmark = [pytest.mark.cluster, WITHOUT_SPARK]

WORDS = [f"w{number}" for number in range(200)]
CONFIG = {"num.standby.replicas": 1}  # which keeps Spark warm
AGREED = re.compile(r"^(\S+ \S+) INFO .* generation \d+: tasks (.*), standbys (.*)$", re.MULTILINE)


def _assigned_at(client: ClientProcess, tasks: int, after: float) -> float:
    """When it was told, after a time of day, that it has so many active tasks."""
    for at, active, _ in AGREED.findall(client.log()):
        moment = datetime.strptime(at, "%Y-%m-%d %H:%M:%S,%f").timestamp()
        if moment > after and len(active.split(", ")) == tasks:
            return moment
    return 0.0


def _start_pair(cluster: Cluster, spec: dict[str, Any]) -> tuple[ClientProcess, ClientProcess]:
    """Two clients that share eight tasks, each with standbys of those of the other's that have a store."""
    for port, name in enumerate("ab", 8001):
        cluster.start(name, {**CONFIG, "application.server": f"{name}:{port}"}, **spec)
    cluster.wait_until_running()
    owner = cluster.owner()
    other = next(client for client in cluster.clients if client is not owner)
    wait_until(other.pipelines, other.told("it runs some tasks, so Spark runs on both"), 90)
    cluster.produce(spec["source"], WORDS * 20)
    _wait_until_warm(cluster, owner, other)
    return owner, other


def _wait_until_warm(cluster: Cluster, *clients: ClientProcess) -> None:
    """Until each has four active tasks, two of them with a store, and two standbys, and all have all."""

    def shared() -> bool:
        return all(len(c.tasks()) == 4 and len(c.tasks("standbys")) == 2 for c in clients)

    wait_until(shared, clients[0].told("the tasks are shared"))
    cluster.wait_until_counted(*clients)
    for client in clients:
        wait_until(
            lambda client=client: client.ask("stale") == cluster.expected,
            client.told("its standbys have all"),
        )


def _take_over(
    cluster: Cluster, source: str, leaver: ClientProcess, stayer: ClientProcess, how: str
) -> float:
    """Have one client go, and tell how long it took from the assignment until the other one could be read."""
    theirs = sorted(leaver.counts())
    assert theirs
    stayer.tell("watch", *theirs)
    gone_at = time.time()
    if how.startswith("killed"):
        leaver.kill()
    else:
        assert leaver.ask("close")
    cluster.produce(source, WORDS * 5)
    readable = wait_until(
        lambda: next((e["at"] for e in stayer.events("readable") if e["at"] > gone_at), 0.0),
        stayer.told("all can be read"),
    )
    assigned = _assigned_at(stayer, 8, gone_at)
    assert assigned, stayer.told("it was given all tasks")
    running = stayer.reached("RUNNING", after=assigned)
    print(
        f"\n{how}: assigned after {assigned - gone_at:.2f} s, all of its part can be read "
        f"{readable - assigned:.3f} s after that, RUNNING {running - assigned:.2f} s after that"
    )
    cluster.wait_until_counted(stayer)
    return readable - assigned


@pytest.mark.timeout(300)
def test_the_former_standby_answers_within_a_second_and_exactly(cluster: Cluster) -> None:
    """Stale reads before; then kill -9 of one of two clients, twice, and an orderly close of the other one.
    What the client had can be read on the other one soon after the assignment; no record is lost or counted
    twice, and everybody knows at each time who has which key."""
    spec: dict[str, Any] = {"source": cluster.topic("in", 4), "output": cluster.topic("out", 4)}
    owner, other = _start_pair(cluster, spec)
    for client in (owner, other):
        wait_until(
            lambda: set(client.ask("lags").values()) == {0},  # noqa: B023
            client.told("all of it is read"),
        )
        assert client.ask("hosts") == {"a:8001": [2, 2], "b:8002": [2, 2]}
    for word in WORDS[:10]:
        host, standbys, partition = owner.ask("owner", word)
        assert other.ask("owner", word) == [host, standbys, partition]
        assert sorted([host, *standbys]) == ["a:8001", "b:8002"]
        assert word in (owner if host.startswith(owner.name) else other).counts()

    source = spec["source"]
    assert _take_over(cluster, source, owner, other, "killed") < 2
    assert set(other.ask("hosts")) == {f"{other.name}:{8001 + 'ab'.index(other.name)}"}
    back = cluster.again(owner)
    cluster.wait_until_running(back)
    _wait_until_warm(cluster, back, other)
    assert _take_over(cluster, source, back, other, "killed, and again") < 1

    back = cluster.again(back)
    cluster.wait_until_running(back)
    wait_until(back.pipelines, back.told("it runs a pipeline"), 90)
    _wait_until_warm(cluster, back, other)
    assert _take_over(cluster, source, other, back, "closed, the other one") < 2
    assert cluster.last_values(spec["output"]) == cluster.expected
