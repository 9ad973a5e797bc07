"""Files of checkpoints in an object store, by the protocol of S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import KEY, SECRET, S3Server

pytestmark = pytest.mark.cluster


@pytest.fixture
def store() -> Iterator[S3Server]:
    """An empty bucket."""
    server = S3Server()
    yield server
    server.close()


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
    assert "of 4 that tried at once, 4 were told that they had" in told["careless"][1]
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
