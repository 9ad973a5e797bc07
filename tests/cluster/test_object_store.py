"""Clients whose checkpoints are in an object store, by the protocol of S3."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_world import Cluster
from s3_server import KEY, SECRET, TESTED, S3Server
from stopping import Running
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.ports import FENCE

pytestmark = pytest.mark.cluster

WORDS = [f"w{number % 5}" for number in range(10)]


@pytest.fixture
def store() -> Iterator[S3Server]:
    """An empty bucket."""
    server = S3Server(another=TESTED)
    yield server
    server.close()


def objects(store: S3Server, below: str) -> set[str]:
    """The names of all objects."""
    listed = store.request("GET", f"/{store.bucket}?list-type=2&prefix={below}").decode()
    return {name.removeprefix(below) for name in re.findall(r"<Key>([^<]*)</Key>", listed)}


def fences(store: S3Server, below: str) -> set[str]:
    """The paths of the objects that are fences."""
    paths = [f"/{store.bucket}/{below}{name}" for name in objects(store, below)]
    return {path for path in paths if store.request("GET", path) == FENCE}


@pytest.mark.timeout(240)
def test_a_checkpoint_in_an_object_store_changes_hands_and_nothing_is_counted_twice(
    cluster: Cluster, store: S3Server
) -> None:
    """One client's Python stands still while its Spark goes on: the other takes over, and the first meets the
    fence. Then kill -9 of the other, and the first has the checkpoint again.
    """
    config = {**store.config, "checkpoint.location": f"s3a://{store.bucket}/cp", "keep.spark.warm": True}
    spec = {"source": cluster.topic("in", 2)}
    for name in ("a", "b"):
        named = {**config, "spark.hadoop.fs.s3a.user.agent.prefix": f"client-{name}"}
        cluster.start(name, named, fresh=True, **spec)
    cluster.wait_until_running()
    zombie = cluster.owner()
    other = next(client for client in cluster.clients if client is not zombie)
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    root = f"cp/{cluster.application_id}/"
    old = max((name.split("/")[0] for name in objects(store, root) if "/offsets/" in name), key=_number)

    zombie.freeze(jvm=False)
    frozen_at = time.time()
    cluster.produce(spec["source"], WORDS)
    other.reached("RUNNING", after=other.reached("REBALANCING", after=frozen_at), timeout_s=90)
    fenced = fences(store, f"{root}{old}/")
    assert any("/offsets/" in path for path in fenced)
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted(other, timeout_s=100)

    def met() -> bool:
        return any(
            agent.startswith(f"client-{zombie.name}") and path in fenced and status != "404"
            for agent, _, path, status in store.requests
        )

    wait_until(met, "the zombie's query meets the fence")
    written = [each for each in store.requests if each[1] == "PUT" and each[2] in fenced and each[3] == "200"]
    assert len(written) == len(fenced), "each fence is written once, and nothing in its place"
    zombie.wake()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted()
    wait_until(zombie.is_running, zombie.told("the zombie is a client again"), 60)
    assert not zombie.handled(), "losing one's place is no failure"
    left = objects(store, f"{root}{old}/")
    assert all(re.fullmatch(r"(offsets|commits)/\d+", name) for name in left if name[-1:] not in ("", "/"))

    other.kill()
    cluster.produce(spec["source"], WORDS)
    cluster.wait_until_counted(zombie, timeout_s=100)
    for client in cluster.clients:
        assert SECRET not in client.log()
        assert KEY not in client.log()


@pytest.mark.timeout(240)
def test_exactly_once_in_an_object_store_whoever_is_cut_off(
    kafka: EmbeddedKafka, tmp_path: Path, store: S3Server
) -> None:
    """A client is stopped between its records and their commit: another one finishes its batch, and the
    broker refuses what the first one does next. Then kill -9 of the other in the middle of a batch.
    """
    both = Running(kafka, tmp_path, ("map", "count"))
    try:
        for name in "ab":
            place = f"s3a://{store.bucket}/once"
            both.start(name, **{**store.config, "checkpoint.location": place, "keep.spark.warm": True})
        zombie = both.refused_zombie()
        other = next(client for client in both.cluster.clients if client is not zombie)
        zombie.wake()
        both.write()
        both.settle("all is there once when the zombie has woken up")
        wait_until(zombie.is_running, zombie.told("the zombie is a client again"), 60)
        reached = both.stopped_at("p0-0.flushed")
        both.write()
        wait_until(reached.exists, other.told("a part of a batch is on the broker, and others are done"), 60)
        other.kill_jvm()
        other.kill()
        reached.unlink()
        both.settle("the first one finishes that batch, too")
        assert not any("fenced" in call["text"] for call in zombie.handled()), zombie.handled()
    finally:
        both.cluster.close()


def _number(directory: str) -> int:
    return int(directory.rpartition(".")[2])


def test_objects_are_created_once_and_a_store_that_ignores_conditions_is_refused(
    store: S3Server, tmp_path: Path
) -> None:
    """By Spark's own client of S3, in a process whose JVM had none before."""
    careless = S3Server("careless")
    careless.conditional = False
    settings = {
        **store.config,
        "spark.hadoop.fs.s3a.bucket.careless.endpoint": careless.config["spark.hadoop.fs.s3a.endpoint"],
        "spark.hadoop.fs.s3a.bucket.nowhere.endpoint": "http://127.0.0.1:1",
    }
    places = [f"s3a://{bucket}/cp" for bucket in (store.bucket, "careless", "nowhere")]
    with (tmp_path / "log").open("w+") as log:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("s3_files.py")), json.dumps([settings, *places])],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=log,
            timeout=110,
            check=False,
        )
        log.seek(0)
        said = log.read()
    careless.close()
    assert done.returncode == 0, said
    told = json.loads(done.stdout)
    assert told["without"][0] == "SetupException"
    assert "has no S3A" in told["without"][1]
    assert told["good"][0] == "nothing"
    assert told["careless"][0] == "ConfigException"
    assert "of 4 that tried at once, 4 succeeded" in told["careless"][1]
    assert "ignores conditional writes (If-None-Match)" in told["careless"][1]
    assert told["nowhere"][0] == told["missing"][0] == "StreamsException"
    assert "Connection refused" in told["nowhere"][1]
    assert told["nowhere"][2] < 60
    assert "bucket does not exist" in told["missing"][1]
    assert told["created"] == [True, False, True], "the third has what is there: a request that was repeated"
    assert told["empty"] == [True, False]
    assert told["fenced"] == [True, True]
    assert [each[0] for each in told["writes"]] == ["nothing", "nothing"]
    assert [each[0] for each in told["refused"]] == ["TaskMigratedException"] * 2
    assert told["copied"] == ["0", "1.zip"]
    assert told["content"] == 100_000
    assert told["left"] == [["offsets"], ["1"]]
    assert told["names"] == ["p0.2"]
    assert SECRET not in said + done.stdout.decode()
    assert KEY not in said + done.stdout.decode()


def test_another_server_keeps_nothing_of_the_tests() -> None:
    """The bucket is removed with its objects, whatever they are called; what else is there stays."""
    other = S3Server()
    try:
        passed_on = S3Server(another=other.config["spark.hadoop.fs.s3a.endpoint"])
        for name in ("cp/0", "a%20b%2Bc", "%C3%A9"):
            passed_on.request("PUT", f"/{passed_on.bucket}/{name}")
        buckets = re.compile(r"<Bucket><Name>([^<]*)</Name>")
        assert set(buckets.findall(other.request("GET", "/").decode())) == {other.bucket, passed_on.bucket}
        passed_on.close()
        assert buckets.findall(other.request("GET", "/").decode()) == [other.bucket]
    finally:
        other.close()
