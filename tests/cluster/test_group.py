"""Several client processes share one application: they join, leave, die, freeze and wake.

Whatever happens, the stores of all clients together, and the last values of the output, are what counting
the records by hand gives.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from cluster_world import SESSION_MS, ClientProcess, Cluster, is_alive
from waiting import wait_until

pytestmark = pytest.mark.cluster

WORDS = [f"w{number}" for number in range(40)]
WARM = {"keep.spark.warm": True}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("engine", ["counting", "spark"])
def test_joining_and_leaving_move_the_work_and_lose_nothing(cluster: Cluster) -> None:
    """A second client gets half of the tasks of each pipeline; when the first one closes, it goes on with all
    from what is committed. Who closes commits, and whoever goes on repeats nothing."""
    spec: dict[str, Any] = {"source": cluster.topic("in", 4), "output": cluster.topic("out", 4)}
    first = cluster.start("a", **spec)
    cluster.wait_until_running()
    cluster.produce(spec["source"], WORDS * 5)
    cluster.wait_until_counted()
    assert first.tasks() == [f"{pipeline}_{number}" for pipeline in range(2) for number in range(4)]

    second = cluster.start("b", fresh=True, **spec)
    cluster.wait_until_running()
    wait_until(  # a task moves when it has warmed up where it goes
        lambda: len(first.tasks()) == len(second.tasks()) == 4, second.told("the tasks are shared")
    )
    cluster.produce(spec["source"], WORDS * 5)
    cluster.wait_until_counted()
    assert first.pipelines() == second.pipelines() == ["p0", "p1"]
    assert first.counts(), "each has a part of the store"
    assert second.counts(), "each has a part of the store"

    cluster.produce(spec["source"], WORDS * 5)
    assert first.ask("close")
    cluster.produce(spec["source"], WORDS * 5)
    cluster.wait_until_counted(second)
    first.end()
    first = cluster.again(first)
    cluster.wait_until_running(first)
    wait_until(lambda: len(first.tasks()) == 4, first.told("the client that came back has tasks"))
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    assert first.pipelines() == second.pipelines() == ["p0", "p1"]
    assert cluster.last_values(spec["output"]) == cluster.expected
    first.end()
    second.end()
    assert first.states()[-1] == second.states()[-1] == "NOT_RUNNING"


def _two_of(cluster: Cluster) -> tuple[ClientProcess, ClientProcess]:
    """One that counts, and the other one; each has some tasks."""
    owner = cluster.owner()
    other = next(client for client in cluster.clients if client is not owner)
    wait_until(lambda: other.pipelines(), other.told("it has a pipeline"), 90)
    return owner, other


@pytest.mark.timeout(240)
def test_killed_and_frozen_clients_lose_nothing_and_count_nothing_twice(cluster: Cluster) -> None:
    """kill -9 of one that counts; then SIGSTOP of its Python, while its Spark goes on, and of
    both, and SIGCONT when the other one has long taken over. The other one has kept Spark warm."""
    spec: dict[str, Any] = {"source": cluster.topic("in", 4), "output": cluster.topic("out", 4)}
    cluster.start("a", WARM, **spec)
    cluster.start("b", WARM, **spec)
    cluster.wait_until_running()
    cluster.produce(spec["source"], WORDS * 5)
    cluster.wait_until_counted()

    owner, other = _two_of(cluster)
    cluster.produce(spec["source"], WORDS * 50)
    killed_at = time.time()
    children = owner.kill()
    cluster.produce(spec["source"], WORDS * 50)
    detected = other.reached("REBALANCING", after=killed_at)
    running = other.reached("RUNNING", after=detected)
    cluster.wait_until_counted(other)
    print(
        f"\nkill -9: noticed after {detected - killed_at:.2f} s (session {SESSION_MS / 1000:g} s), running "
        f"{running - detected:.2f} s after that, all counted {time.time() - detected:.2f} s after that"
    )
    assert running - detected < 5
    wait_until(lambda: not any(is_alive(child) for child in children), "its Spark has ended, too", 10)
    cluster.wait_until_running(cluster.again(owner))
    cluster.wait_until_counted()

    for jvm in (False, True):
        zombie, other = _two_of(cluster)
        cluster.produce(spec["source"], WORDS * 20)
        zombie.freeze(jvm=jvm)
        frozen_at = time.time()
        cluster.produce(spec["source"], WORDS * 20)
        other.reached("RUNNING", after=other.reached("REBALANCING", after=frozen_at))
        cluster.produce(spec["source"], WORDS * 20)
        cluster.wait_until_counted(other)
        woken_at = time.time()
        zombie.wake()
        cluster.produce(spec["source"], WORDS * 20)
        cluster.wait_until_counted()
        zombie.reached("RUNNING", after=woken_at)
        cluster.produce(spec["source"], WORDS)
        cluster.wait_until_counted()
        assert {*other.pipelines(), *zombie.pipelines()} == {"p0", "p1"}
        assert not zombie.handled(), "losing one's place is no failure"
        assert cluster.last_values(spec["output"]) == cluster.expected
