"""What a program of another user of this machine gets from Spark in local mode, if it knows the ports."""

from __future__ import annotations

from typing import Any

import pytest
from java_programs import KernelJava
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_obeys_no_program_that_does_not_know_its_secret(
    spark: SparkSession, kernel_java: KernelJava
) -> None:
    """Not to stop, nor to hand out the blocks of a job; the secret is in the memory of Spark's process alone.
    Who knows it is answered, so it is for the secret that the others are not."""
    context: Any = spark.sparkContext
    port = int(context.getConf().get("spark.driver.port"))
    blocks = int(context._jsc.sc().getExecutorMemoryStatus().keys().head().rpartition(":")[2])
    hadoop = context._jvm.org.apache.hadoop
    kept = hadoop.security.UserGroupInformation.getCurrentUser().getCredentials()
    secret = bytes(kept.getSecretKey(hadoop.io.Text("sparkCookie"))).decode()
    sent: Any = context.broadcast(b"of the program")
    block = f"broadcast_{sent._jbroadcast.id()}_piece0"

    def asked(*requests: str) -> list[str]:
        told = kernel_java("io.millstream.kernel.StrangerMain", "\n".join(requests), timeout=120)
        return [" ".join(line.split()[:2]) for line in told.splitlines()]

    assert asked(f"ask {port} -", f"{block} {blocks} -", f"ask {port} {secret}") == [
        "ask refused",
        f"{block} refused",
        "ask answered",
    ]
    # Only now, because it would stop the Spark that all tests share.
    assert asked(f"stop {port} -") == ["stop refused"]
    assert spark.range(10).count() == 10
    settings = context.getConf().getAll()
    assert dict(settings)["spark.authenticate"] == "true"
    assert secret not in str(settings)
