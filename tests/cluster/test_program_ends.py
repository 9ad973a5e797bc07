"""Clients whose programs end in the ways that programs end, on a real broker: nobody else notices."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from cluster_world import ClientProcess, Cluster
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.cluster


def _end_by(client: ClientProcess, number: int, *, all_of_them: bool) -> int:
    """Send a signal to a client's process, or to its processes; the exit code. Nothing of it stays behind."""
    family = client.family()
    for each in family if all_of_them else family[:1]:
        with suppress(psutil.NoSuchProcess):  # a worker that had nothing to do ends by itself
            each.send_signal(number)
    code = client.process.wait(60)
    assert not psutil.wait_procs(family[1:], timeout=10)[1], client.end_of_log()
    return code


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, which it has while it waits for its client."""
    (caught,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return bool(int(caught, 16) >> (number - 1) & 1)


def _is_clean(client: ClientProcess) -> bool:
    return not client.handled() and client.states()[-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]


def _others_can_read(state_dir: Path, client: ClientProcess) -> list[str]:
    """What another user of the machine could enter, or read once inside."""
    found = [state_dir, *state_dir.iterdir(), *state_dir.glob("*/tasks")]
    open_to_others = [f"{path} {path.stat().st_mode:o}" for path in found if path.stat().st_mode & 0o007]
    for process in [each for each in client.family() if "java" in each.name()]:
        (umask,) = re.findall(r"Umask:\s*(\d+)", Path(f"/proc/{process.pid}/status").read_text())
        if int(umask, 8) & 0o007 != 0o007:
            open_to_others.append(f"{process.name()} writes with umask {umask}")
    assert len(found) == 3
    return open_to_others


def test_ctrl_c_and_sigterm_are_no_failures(cluster: Cluster) -> None:
    """A program that ends without close(), by Ctrl-C, and one that waits and gets SIGTERM, with all of its
    processes, as systemd does it. The handler, which would shut the application down, is not asked; the other
    client takes over. A forked child ends as it wants to, and Spark goes on. Nothing of this is readable for
    other users of the machine."""
    flag = cluster.directory / "flag"
    flag.touch()
    source = cluster.topic("in", 2)
    spec = {"source": source, "poison": str(flag), "handler": "SHUTDOWN_APPLICATION"}
    first = cluster.start("a", fresh=True, **spec)
    cluster.wait_until_running(first)
    second = cluster.start("b", fresh=True, **spec)
    cluster.wait_until_running()
    cluster.produce(source, ["a", "b", "c"] * 10)
    cluster.wait_until_counted()
    assert _others_can_read(cluster.directory / "a", first) == []
    assert first.ask("fork") == 7, first.end_of_log()
    cluster.produce(source, ["a", "b", "c"])
    cluster.wait_until_counted()
    assert first.pipelines(), "Spark works there"

    assert _end_by(first, signal.SIGINT, all_of_them=False) == -signal.SIGINT, first.end_of_log()
    assert "the client is still open" in first.log()
    assert _is_clean(first), first.end_of_log()
    cluster.produce(source, ["a", "d"])
    cluster.wait_until_counted(second)

    first = cluster.again(first)
    cluster.wait_until_running()
    second.tell("wait")
    wait_until(lambda: _catches(second.process.pid, signal.SIGTERM), "the program waits for its client")
    assert _end_by(second, signal.SIGTERM, all_of_them=True) == 128 + signal.SIGTERM, second.end_of_log()
    assert _is_clean(second), second.end_of_log()
    assert "ERROR" not in second.log()
    cluster.produce(source, ["a", "e"])
    cluster.wait_until_counted(first)
    assert first.is_running()
    assert not first.handled()


FORKS = """
import json, os, sys
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StoreQueryParameters, StreamsBuilder
from millstream import QueryableStoreTypes
config, topic = json.loads(sys.argv[1]), sys.argv[2]
builder = StreamsBuilder()
builder.global_table(topic, Consumed.with_(Serdes.bytes(), Serdes.bytes()), Materialized.as_("table"))

def says(text):
    print(text, flush=True)

def tried(what):
    try:
        return what()
    except Exception as error:
        return type(error).__name__

with KafkaStreams(builder.build(), config) as streams:
    kind = QueryableStoreTypes.key_value_store()
    store = streams.store(StoreQueryParameters.from_name_and_type("table", kind))
    says(streams.query_server_url)
    child = os.fork()
    if not child:
        other = KafkaStreams(builder.build(), {**config, "application.id": config["application.id"] + "-2"})
        says([tried(lambda: store.get(b"k")), tried(lambda: streams.state), tried(other.start)])
        sys.exit(7)  # every destructor and hook runs that a child has
    says(f"child {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}")
    if not os.fork():
        sys.stdin.read()  # it stays, whatever becomes of its parent
        sys.exit()
    says(f"parent {store.get(b'k')} {streams.state}")
    streams.wait()
"""


class Forking:
    """A program with a global table in RocksDB and a query server, that forks."""

    def __init__(self, config: dict[str, object], topic: str, log: Path) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", FORKS, json.dumps(config), topic],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def lines(self, count: int) -> list[str]:
        assert self.process.stdout is not None
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def end(self) -> None:
        """Its child, too, which reads the same pipe."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


def test_a_forked_child_has_nothing_of_its_parents(
    kafka: EmbeddedKafka, cluster: Cluster, tmp_path: Path
) -> None:
    """With RocksDB and Kafka's clients, whose destructors a child cannot run: it ends with its own exit code,
    cannot use the client nor start one, and the parent goes on. A child that outlives a killed parent has
    neither the query server's port nor the state directory's lock: the program can be started again."""
    topic = cluster.topic("users", 1)
    cluster.produce(topic, ["v"], key=b"k")
    config: dict[str, object] = {
        "application.id": cluster.application_id,
        "bootstrap.servers": kafka.bootstrap_servers,
        "state.dir": str(tmp_path / "state"),
        "query.server.enabled": True,
        "query.server.listen": f"127.0.0.1:{_free_port()}",
    }
    first = Forking(config, topic, tmp_path / "first.log")
    second = None
    try:
        url, tried, child, parent = first.lines(4)
        log = (tmp_path / "first.log").read_text()
        assert child == "child 7", log
        assert tried == str(["IllegalStateException"] * 3)
        assert parent == "parent b'v' RUNNING"
        first.process.kill()
        first.process.wait(10)
        wait_until(lambda: _is_refused(url), "the child has closed its copy of the port")
        second = Forking(config, topic, tmp_path / "second.log")
        assert second.lines(4)[2:] == [child, parent], (tmp_path / "second.log").read_text()
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(30) == 128 + signal.SIGTERM
    finally:
        first.end()
        if second is not None:
            second.end()


def _is_refused(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port)) != 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
