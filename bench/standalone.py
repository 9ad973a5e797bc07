"""A standalone cluster of Spark: a master and workers on the loopback, each a process."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from bench.words import wait_for
from millstream.java import find_java
from millstream.supervised import SupervisedProcess

__all__ = ["standalone"]

_PATIENCE_S = 60.0
_LOOPBACK = "127.0.0.1"
_REFLECTION = ("java.lang", "java.net", "java.nio", "java.util", "sun.nio.ch", "sun.security.action")


@contextmanager
def standalone(directory: Path, workers: int) -> Iterator[tuple[Mapping[str, str], list[int]]]:
    """A cluster whose workers have a core each; it ends with this process.

    Yields:
        the settings that bring a client's Spark to it, and the ids of the processes, the master's first

    Raises:
        TimeoutError: it did not start in time.
        RuntimeError: one of its processes has ended.
    """
    directory.mkdir(parents=True)
    log = directory / "log"
    home, java = Path(pyspark.__file__).parent, find_java()
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        port = free.getsockname()[1]
    address = f"spark://{_LOOPBACK}:{port}"
    environment = {
        **os.environ,
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": _LOOPBACK,
        "SPARK_SCALA_VERSION": next((home / "jars").glob("spark-core_*.jar")).name[11:].split("-")[0],
    }
    opens = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _REFLECTION]
    run = [str(java.java), "-Xmx512m", *opens, "-cp", f"{home / 'jars'}/*"]
    bound = ["--host", _LOOPBACK, "--webui-port", "0"]
    commands = [[*run, "org.apache.spark.deploy.master.Master", *bound, "--port", str(port)]]
    for number in range(workers):
        work = directory / f"worker-{number}"
        work.mkdir()
        worker = [*run, "org.apache.spark.deploy.worker.Worker", *bound, "--cores", "1", "--memory", "2g"]
        commands.append([*worker, "--work-dir", str(work), address])
    daemons: list[SupervisedProcess] = []
    try:
        for number, command in enumerate(commands):
            daemons.append(SupervisedProcess(command, log_file=log, environment=environment))
            said = "Successfully registered with master" if number else "I have been elected leader"
            _wait_for_line(log, said, max(1, number), daemons)
        settings = {
            "spark.master": address,
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.executor.memory": "1g",
        }
        yield settings, [daemon.pid for daemon in daemons]
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
