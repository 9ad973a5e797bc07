"""What a program of another user of this machine gets from Spark in local mode, if it knows the ports."""

from __future__ import annotations

import pytest
from java_programs import KernelJava
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_spark_obeys_no_program_that_does_not_know_its_secret(
    spark: SparkSession, kernel_java: KernelJava
) -> None:
    """Not to stop, nor to hand out the blocks of a job; the secret is in the memory of Spark's process alone.
    Who knows it is answered, so it is for the secret that the others are not."""
    java = spark.sparkContext._jvm.org.apache.spark.SparkEnv.get()  # type: ignore[union-attr]
    port = int(spark.conf.get("spark.driver.port"))
    blocks = java.blockManager().blockManagerId().port()
    secret = java.securityManager().getSecretKey()
    sent = spark.sparkContext.broadcast(b"of the program")
    block = f"broadcast_{sent._jbroadcast.id()}_piece0"  # type: ignore[attr-defined]

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
    settings = spark.sparkContext.getConf().getAll()
    assert dict(settings)["spark.authenticate"] == "true"
    assert secret not in str(settings)
