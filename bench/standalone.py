"""A standalone Spark cluster: a master and workers on the loopback, each a process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from bench.words import wait_for
from millstream.java import find_java
from millstream.supervised import SupervisedProcess

__all__ = ["Standalone", "standalone"]

_PATIENCE_S = 60.0
_LOOPBACK = "127.0.0.1"
_REFLECTION = ("java.lang", "java.net", "java.nio", "java.util", "sun.nio.ch", "sun.security.action")


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running cluster.

    Attributes:
        settings: what connects a client's Spark to it.
        master, workers: the ids of the processes.
        log: the output of all of them.
    """

    settings: Mapping[str, str]
    master: int
    workers: Sequence[int]
    log: Path


@contextmanager
def standalone(
    directory: Path,
    workers: int,
    *,
    cores: int = 1,
    memory_mb: int = 1024,
    java_options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Standalone]:
    """A cluster whose workers have one executor each. It ends with this process.

    Args:
        directory: the cluster's own directory, which is created.
        cores: the cores of each worker, as Spark counts them: how many tasks it runs at once.
        memory_mb: the memory of each executor.
        java_options: options of the master, the workers and the executors.
        environment: the environment of executors and Python functions; by default that of this process.

    Raises:
        TimeoutError: it did not start in time.
        RuntimeError: one of its processes ended.
    """
    directory.mkdir(parents=True)
    log = directory / "log"
    home, java = Path(pyspark.__file__).parent, find_java()
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        port = free.getsockname()[1]
    address = f"spark://{_LOOPBACK}:{port}"
    variables = {
        **(os.environ if environment is None else environment),
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_SCALA_VERSION": next((home / "jars").glob("spark-core_*.jar")).name[11:].split("-")[0],
    }
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _REFLECTION]
    run = [str(java.java), "-Xmx512m", *java_options, *opens, "-cp", f"{home / 'jars'}/*"]
    bound = ["--host", _LOOPBACK, "--webui-port", "0"]
    daemons: list[SupervisedProcess] = []

    def start(name: str, *arguments: str) -> None:
        command = [*run, f"org.apache.spark.deploy.{name}", *bound, *arguments]
        daemons.append(SupervisedProcess(command, log_file=log, environment=variables))

    try:
        start("master.Master", "--port", str(port))
        _wait_for_line(log, "I have been elected leader", 1, daemons)
        for number in range(workers):
            work = directory / f"worker-{number}"
            work.mkdir()
            size = ["--cores", str(cores), "--memory", f"{memory_mb}m"]
            start("worker.Worker", *size, "--work-dir", str(work), address)
        _wait_for_line(log, "Successfully registered with master", workers, daemons)
        settings = {
            "spark.master": address,
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.executor.memory": f"{memory_mb}m",
        }
        if java_options:
            settings["spark.executor.extraJavaOptions"] = " ".join(java_options)
        yield Standalone(settings, daemons[0].pid, [daemon.pid for daemon in daemons[1:]], log)
    finally:
        for daemon in reversed(daemons):
            daemon.end(patience_s=5.0)


def _wait_for_line(log: Path, text: str, times: int, daemons: Sequence[SupervisedProcess]) -> None:
    wait_for(
        lambda: log.read_text(errors="replace").count(text) >= times,
        _PATIENCE_S,
        f"'{text}' in the log of the cluster",
        lambda: all(daemon.exit_code is None for daemon in daemons),
    )
