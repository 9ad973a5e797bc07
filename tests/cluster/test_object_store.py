"""Clients whose checkpoints are in an object store, by the protocol of S3."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from cluster_world import Cluster
from s3_server import KEY, SECRET, S3Server
from waiting import wait_until

pytestmark = pytest.mark.cluster

WORDS = [f"w{number % 5}" for number in range(10)]


@pytest.fixture
def store() -> Iterator[S3Server]:
    """An empty bucket."""
    server = S3Server()
    yield server
    server.close()


def objects(store: S3Server, below: str) -> set[str]:
    """The names of all objects."""
    listed = store.request("GET", f"/{store.bucket}?list-type=2&prefix={below}").decode()
    return {name.removeprefix(below) for name in re.findall(r"<Key>([^<]*)</Key>", listed)}


@pytest.mark.timeout(240)
def test_a_checkpoint_in_an_object_store_changes_hands_and_nothing_is_counted_twice(
    cluster: Cluster, store: S3Server
) -> None:
    """One client's Python stands still while its Spark goes on: the other takes over, and the store refuses
    the next batch of the first. Then kill -9 of the other, and the first has the checkpoint again.
    """
    config = {**store.config, "checkpoint.location": f"s3a://{store.bucket}/cp", "keep.spark.warm": True}
    spec = {"source": cluster.topic("in", 2)}
    cluster.start("a", config, fresh=True, **spec)
    cluster.start("b", config, fresh=True, **spec)
    cluster.wait_until_running()
    zombie = cluster.owner()
    other = next(client for client in cluster.clients if client is not zombie)
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    before = {name.split("/")[0] for name in objects(store, f"cp/{cluster.application_id}/") if "/" in name}
    assert len(before) == 1

    zombie.freeze(jvm=False)
    frozen_at = zombie.started_at
    cluster.produce(spec["source"], WORDS)
    other.reached("RUNNING", after=other.reached("REBALANCING", after=frozen_at), timeout_s=90)
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted(other)
    (old,) = before
    log = f"/{store.bucket}/cp/{cluster.application_id}/{old}/offsets/"
    wait_until(
        lambda: [path for path, status in store.writes if path.startswith(log) and status == "412"],
        "the store refuses the zombie's next batch",
    )
    left = objects(store, f"cp/{cluster.application_id}/{old}/")
    assert all(re.fullmatch(r"(offsets|commits)/\d+", name) for name in left if name[-1:] not in ("", "/"))
    zombie.wake()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    wait_until(zombie.is_running, zombie.told("the zombie is a client again"), 60)
    assert not zombie.handled(), "losing one's place is no failure"

    other.kill()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted(zombie)
    for client in cluster.clients:
        assert SECRET not in client.log()
        assert KEY not in client.log()
