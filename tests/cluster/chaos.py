"""A soak: random faults, for minutes, over a running count of known input; at the end every count is exact.

    make chaos ARGS="--seed 7 --minutes 10 --faults 20"
    make chaos ARGS="--seed 7 --minutes 3 --faults 8 --finally changelog"

Three client processes of one application count what a producer writes all the time, through a Python UDF.
Faults come at random moments: a record that fails once to three times, kill -9 of a client or of its Spark
alone, SIGTERM, SIGSTOP and SIGCONT (of its Python alone, or with its Spark), a restart of the broker (asked,
or killed), and a client that is started again with a clock that is an hour off. A client that is gone is
started again. When the time is over and all is quiet, the stores of all clients together, and the last
values of the output topic, have to equal what was written; and no client may have ended in ERROR.

`--exactly-once` runs four programs instead, with processing.guarantee=exactly_once_v2: a map, a count, a
windowed count, and a chain of two pipelines (proof.py). Then readers of committed records have to find each
record once and no update twice, and outputs, changelogs and stores have to equal an independent count. Three
more faults come: kill -9 of Python workers, the pipelines' owner is closed, so that others take over, and the
network is cut off, or holds everything up, for a while.

`--finally` then does what no client can make good by itself: it deletes the source, the changelog or the
output (with `--again`, and creates it anew). The handler of every client that needs it must hear its name.

Once a minute it prints what each client uses.

The same seed gives the same faults at the same moments, as far as moments can be the same.
"""

from __future__ import annotations

import argparse
import logging
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from cluster_world import Asked, ClientProcess, Cluster
from kafka import KafkaProducer
from proof import Proof
from proxy import Proxy
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.polling import looks, pause

POISON = "poison"
WORDS = [f"w{number}" for number in range(60)]
FAULTS = ("poison", "kill", "freeze", "broker", "jvm", "term", "clock")
MORE_FAULTS = ("worker", "handover", "network")
"""Further ones, for exactly once."""
LAST = ("source", "changelog", "output")
"""The topics that `--finally` takes away."""
NAMES = ("a", "b", "c")
SETTLE_S = 120.0
"""How long all of it may take to be as it has to be, after the last fault."""
SPARK_S = 20.0
"""How long a fault that is about Spark waits until there is one."""
USAGE_S = 60.0
"""How often a run says what each client uses."""
LOUD_S = 30.0
"""How long the clients have to fail after a topic is gone. It takes them milliseconds; machines are busy."""
CLOCK_OFF_S = 3600.0


@dataclass(frozen=True)
class Fault:
    """What happens, how many seconds after the start. `value` from 0 to 1 chooses what is left open."""

    at_s: float
    kind: str
    value: float

    def __str__(self) -> str:
        return f"{self.kind} at {self.at_s:.1f} s"


def plan(seed: int, seconds: float, count: int, faults: Sequence[str] = FAULTS) -> list[Fault]:
    """The faults of a run: each kind as often as the others, in random order, and at random moments."""
    chance = random.Random(seed)
    kinds = [faults[number % len(faults)] for number in range(count)]
    chance.shuffle(kinds)
    moments = sorted(chance.uniform(0.0, seconds) for _ in kinds)
    return [Fault(at, kind, chance.random()) for at, kind in zip(moments, kinds, strict=True)]


@dataclass
class Report:
    """What a run has found."""

    seed: int
    done: list[str] = field(default_factory=list)
    records: int = 0
    failures: int = 0
    settled_s: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {len(self.done)} faults, {self.records} records, {self.failures} calls of "
            f"handlers; settled {self.settled_s:.1f} s after the end",
            *(f"  {each}" for each in self.done),
            *(f"  WRONG: {each}" for each in self.wrong),
        ]
        return "\n".join(lines)


class Feed:
    """Writes random words until it is stopped, also while the broker is away.

    With kafka-python: a producer of librdkafka may not find an only broker again (kafka/patience.py).
    """

    def __init__(
        self,
        servers: str,
        topic: str,
        seed: int,
        per_second: int,
        key_of: Callable[[str], str] | None = None,
    ) -> None:
        self.confirmed: Counter[str] = Counter()
        self.refused: list[str] = []
        self._topic = topic
        self._chance = random.Random(seed)
        self._pause_s = 1.0 / per_second
        self._stop = threading.Event()
        self._key_of = key_of
        self._producer = KafkaProducer(
            bootstrap_servers=servers,
            linger_ms=5,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=round(SETTLE_S * 1000),
            reconnect_backoff_max_ms=500,
            allow_auto_create_topics=False,
        )
        self._thread = threading.Thread(target=self._run, name="chaos-feed", daemon=True)
        self._thread.start()

    def write(self, word: str) -> None:
        key = None if self._key_of is None else self._key_of(word).encode()
        sent = self._producer.send(self._topic, word.encode(), key)
        sent.add_callback(lambda _: self.confirmed.update([word]))
        sent.add_errback(lambda error: self.refused.append(repr(error)))

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s):
            self.write(self._chance.choice(WORDS))

    def stop(self) -> None:
        """Stop; all that was written is confirmed then."""
        self._stop.set()
        self._thread.join(10)
        try:
            self._producer.flush(90)
        finally:
            self._producer.close(5)
        assert not self.refused, f"{len(self.refused)} records were refused: {self.refused[0]}"


class Chaos:
    """One run."""

    def __init__(
        self,
        seed: int,
        directory: Path,
        clients: int = 3,
        per_second: int = 100,
        *,
        standbys: int = 0,
        windows: bool = False,
        last: str | None = None,
        again: bool = False,
        exactly_once: bool = False,
    ) -> None:
        self._report = Report(seed)
        self._last = last
        self._again = again
        self._exactly_once = exactly_once
        self._standbys = standbys
        self._windows = windows
        self._directory = directory
        self._names = NAMES[:clients]
        self._per_second = per_second
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self._proxy = Proxy(self._port)
        self._heal_at: float | None = None
        self._broker = self._started_broker()
        self._cluster = Cluster(self._broker, directory, f"127.0.0.1:{self._proxy.port}")
        self._flag = directory / "poison"
        self._flag.write_text("")
        self._later: list[tuple[float, ClientProcess, str]] = []
        self._down: set[str] = set()

    def run(self, seconds: float, faults: int, kinds: Sequence[str] | None = None) -> Report:
        """So many faults, of some kinds or of all, in so many seconds.

        Raises:
            AssertionError: the clients never got to RUNNING, or a record could not be written.
        """
        kinds = kinds or ((*FAULTS, *MORE_FAULTS) if self._exactly_once else FAULTS)
        logger = logging.getLogger("kafka")
        level = logger.level
        logger.setLevel(logging.CRITICAL)  # the feed's producer says each time that the broker is away
        try:
            self._run(seconds, plan(self._report.seed, seconds, faults, kinds))
        finally:
            self._cluster.close()
            self._broker.close()
            self._proxy.close()
            logger.setLevel(level)
        return self._report

    def _run(self, seconds: float, faults: Sequence[Fault]) -> None:
        cluster = self._cluster
        proof = Proof(cluster, partitions=4) if self._exactly_once else None
        spec: dict[str, object]
        if proof is not None:
            source, output = proof.source, proof.outputs["count"]
            spec = proof.spec()
        else:
            source, output = cluster.topic("in", 4), cluster.topic("out", 4)
            spec = {"source": source, "output": output, "handler": "patient", "windows": self._windows}
        sure = {"processing.guarantee": "exactly_once_v2"}
        for name in self._names:
            cluster.start(
                name,
                {
                    "keep.spark.warm": name == "b",
                    "consumer.session.timeout.ms": 3000,
                    "num.standby.replicas": self._standbys,
                    **({} if proof is None else sure),
                },
                wait=True,
                poison=str(self._flag),
                **spec,
            )
        cluster.wait_until_running()
        key_of = None if proof is None else proof.id_of
        feed = Feed(cluster.servers, source, self._report.seed, self._per_second, key_of)
        try:
            wait_until(lambda: any(c.counts() for c in cluster.clients), "records are counted", SETTLE_S)
            began = time.monotonic()
            left = list(faults)
            look_at = USAGE_S
            while left or time.monotonic() - began < seconds:
                now = time.monotonic() - began
                self._do_what_is_due(began)
                if now >= look_at:
                    look_at += USAGE_S
                    print(
                        *(f"{now:6.1f} s  {self._usage(each)}" for each in self._up()), sep="\n", flush=True
                    )
                if left and left[0].at_s <= now:
                    fault = left.pop(0)
                    done = self._do(fault, feed, began)
                    self._report.done.append(f"{fault}: {done}")
                    print(f"{now:6.1f} s  {fault.kind}: {done}", flush=True)
                pause(0.05)
        finally:
            for client in cluster.clients:
                client.wake()
        self._do_what_is_due(began, all_of_it=True)
        feed.stop()
        # What the topic has, and not what was confirmed: the clients are tested here, and not the producer.
        cluster.expected = cluster.values(source)
        self._report.records = cluster.expected.total()
        missing = feed.confirmed - cluster.expected
        assert not missing, f"the broker confirmed records that it does not have: {missing}"
        if proof is not None:
            proof.expect_what_is_there()
        self._settle(output, proof)
        if self._last is not None and not self._report.wrong:
            changelog = f"{cluster.application_id}-counts-changelog"
            gone = {"source": source, "output": output, "changelog": changelog}[self._last]
            self._take_away(gone)
        self._end()

    # --- faults ------------------------------------------------------------------------------------------

    def _do(self, fault: Fault, feed: Feed, began: float) -> str:
        match fault.kind:
            case "poison":
                times = 1 + int(fault.value * 3)
                self._flag.write_text("." * times)
                feed.write(POISON)
                return f"a record that fails {times} times"
            case "kill":
                client = self._one(fault)
                client.kill()
                wait_s = fault.value * 5
                self._later.append((time.monotonic() + wait_s, client, "start"))
                self._down.add(client.name)
                return f"kill -9 of {client.name}, started again {wait_s:.1f} s later"
            case "freeze":
                client, jvm, wait_s = self._one(fault), fault.value > 0.5, 1 + fault.value * 9
                client.freeze(jvm=jvm)
                self._later.append((time.monotonic() + wait_s, client, "wake"))
                self._down.add(client.name)
                return f"SIGSTOP of {client.name}{' and its Spark' if jvm else ''} for {wait_s:.1f} s"
            case "jvm":
                working: list[ClientProcess] = []
                for _ in looks(SPARK_S, every_s=0.05):  # after other faults Spark may only be about to start
                    self._do_what_is_due(began)
                    working = [client for client in self._up() if client.has_jvm()]
                    if working:
                        break
                for client in working:
                    client.kill_jvm()
                return f"kill -9 of the Spark of {', '.join(each.name for each in working) or 'nobody'}"
            case "term":
                client, wait_s = self._one(fault), fault.value * 5
                wait_until(client.states, client.told("it is there to be closed"), 60.0)
                took_s = client.terminate()
                self._later.append((time.monotonic() + wait_s, client, "start"))
                self._down.add(client.name)
                return (
                    f"SIGTERM of {client.name}, closed in {took_s:.1f} s, started again {wait_s:.1f} s later"
                )
            case "worker":
                workers = [worker for client in self._up() for worker in client.workers()]
                for worker in workers:
                    with suppress(psutil.NoSuchProcess):
                        worker.kill()
                return f"kill -9 of {len(workers)} Python workers"
            case "network":
                cut, wait_s = fault.value > 0.5, 0.5 + fault.value * 6
                if cut:
                    self._proxy.cut(refuse=True)
                else:
                    self._proxy.hold()
                self._heal_at = time.monotonic() + wait_s
                return f"the network {'is cut off' if cut else 'holds everything up'} for {wait_s:.1f} s"
            case "handover":
                working = [each for each in self._up() if each.has_jvm() and self._runs_pipelines(each)]
                client, wait_s = working[0] if working else self._one(fault), fault.value * 5
                wait_until(client.states, client.told("it is there to be closed"), 60.0)
                took_s = client.terminate()
                self._later.append((time.monotonic() + wait_s, client, "start"))
                self._down.add(client.name)
                return f"{client.name}, which ran the pipelines, was closed in {took_s:.1f} s"
            case "clock":
                client, off_s = self._one(fault), CLOCK_OFF_S if fault.value > 0.5 else -CLOCK_OFF_S
                client.kill()
                client.spec = {**client.spec, "clock_off_s": off_s}
                self._later.append((time.monotonic(), client, "start"))
                self._down.add(client.name)
                return f"kill -9 of {client.name}, started again with its clock {off_s:+.0f} s off"
            case _:
                killed = fault.value > 0.5
                if killed:
                    psutil.Process(self._broker.pid).kill()
                self._broker.close()
                self._broker = self._cluster.kafka = self._started_broker()
                return f"the broker was {'killed' if killed else 'stopped'} and started again"

    def _usage(self, client: ClientProcess) -> str:
        """Memory, descriptors, threads and disk: in a long run, a process's should stay what they are."""
        parts = [f"{client.name} for {time.time() - client.started_at:.0f} s"]
        for each in client.family():
            with suppress(psutil.NoSuchProcess):
                own = "client" if each.pid == client.process.pid else each.name()
                megabytes = each.memory_info().rss >> 20
                parts.append(f"{own}: {megabytes} MB, {each.num_fds()} files, {each.num_threads()} threads")
        with suppress(FileNotFoundError):  # files and directories of a store that is being closed or wiped
            files = [each for each in (self._directory / client.name).rglob("*") if each.is_file()]
            parts.append(
                f"state: {sum(each.stat().st_size for each in files) >> 10} kB in {len(files)} files"
            )
        return "; ".join(parts)

    def _runs_pipelines(self, client: ClientProcess) -> bool:
        try:
            return bool(client.pipelines())
        except (Asked, AssertionError):
            return False

    def _one(self, fault: Fault) -> ClientProcess:
        """One that is neither killed nor frozen at the moment; the one with the pipeline half of the time."""
        up = self._up()
        working = [client for client in up if client.has_jvm()]
        if working and fault.value * 7 % 1 < 0.5:
            return working[0]
        return up[int(fault.value * len(up))] if up else self._force_one_up()

    def _up(self) -> list[ClientProcess]:
        return [client for client in self._cluster.clients if client.name not in self._down]

    def _force_one_up(self) -> ClientProcess:
        self._do_what_is_due(0.0, all_of_it=True)
        return self._cluster.clients[0]

    def _do_what_is_due(self, began: float, *, all_of_it: bool = False) -> None:
        now = time.monotonic()
        if self._heal_at is not None and (all_of_it or self._heal_at <= now):
            self._heal_at = None
            self._proxy.heal()
        for due in [each for each in self._later if all_of_it or each[0] <= now]:
            self._later.remove(due)
            _, client, what = due
            self._down.discard(client.name)
            if what == "wake":
                client.wake()
            else:
                self._count_failures(client)
                self._cluster.again(client)

    def _started_broker(self) -> EmbeddedKafka:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._proxy.port}"}
        return EmbeddedKafka(self._directory / "kafka", port=self._port, settings=advertised).start()

    # --- the end -----------------------------------------------------------------------------------------

    def _settle(self, output: str, proof: Proof | None) -> None:
        cluster, report = self._cluster, self._report
        began = time.monotonic()

        def left_s() -> float:
            return max(1.0, began + SETTLE_S - time.monotonic())

        try:
            cluster.wait_until_running(timeout_s=left_s())
            counts = cluster.wait_until_counted(timeout_s=left_s())
            if self._windows:
                self._judge_windows(counts, left_s())
            if proof is not None:
                self._prove(proof, left_s)
        except AssertionError as error:
            report.wrong.append(f"{cluster.lost_coordinator()}{error}")
            for client in cluster.clients:
                report.wrong.append(f"{client.name} was {client.states()}; {client.end_of_log()}")
                report.wrong.append(client.stacks())
        report.settled_s = time.monotonic() - began
        if not report.wrong:
            last = cluster.last_values(output)
            differing = {
                word: (last.get(word, 0), count)
                for word, count in cluster.expected.items()
                if last.get(word, 0) != count
            }
            if differing:
                report.wrong.append(f"last values of the output (there, expected): {differing}")
        for client in cluster.clients:
            self._count_failures(client)

    def _prove(self, proof: Proof, left_s: Callable[[], float]) -> None:
        """What is written exactly once may come a little later than the store of the count."""
        proof.settle("everything is there once", left_s())

        def windows() -> dict[str, int]:
            found: dict[str, int] = {}
            for client in self._cluster.clients:
                with suppress(Asked):
                    found |= client.ask("windowed counts", "windows")
            return found

        wait_until(lambda: windows() == self._cluster.expected, "the store of windows is right", left_s())

    def _take_away(self, topic: str) -> None:
        """Delete a topic that the application needs; who needs it has to hear of it, by name."""
        cluster, report = self._cluster, self._report
        partitions = cluster.delete_topic(topic)
        if self._again:
            self._broker.create_topic(topic, partitions)
        what = f"{topic} was deleted{' and created again' if self._again else ''}"
        report.done.append(what)
        for client in cluster.clients:
            try:
                wait_until(
                    lambda client=client: any(topic in call["text"] for call in client.handled()),
                    client.told(f"the handler of {client.name} hears of {topic}"),
                    LOUD_S,
                )
            except AssertionError as error:
                report.wrong.append(str(error))

    def _end(self) -> None:
        cluster, report = self._cluster, self._report
        good = ["NOT_RUNNING"] if self._last is None else ["NOT_RUNNING", "ERROR"]
        for client in cluster.clients:
            if client.process.poll() is None:
                with suppress(AssertionError):
                    client.end()
                if not set(client.states()[-1:]) & set(good):
                    report.wrong.append(f"{client.name} ended so: {client.states()}; {client.end_of_log()}")
            else:
                report.wrong.append(f"{client.name} died by itself; {client.end_of_log()}")

    def _judge_windows(self, counts: dict[str, int], timeout_s: float) -> None:
        found: list[dict[str, int]] = []

        def exact() -> bool:
            found[:] = self._cluster.windowed_counts()
            return found == [counts, counts]

        try:
            wait_until(exact, "windows and sessions have every record once", timeout_s)
        except AssertionError as error:
            for what, there in zip(("windows", "sessions"), found, strict=False):
                wrong = {
                    key: (there.get(key), count) for key, count in counts.items() if there.get(key) != count
                }
                self._report.wrong.append(f"{what} (there, expected): {wrong}")
            raise AssertionError("windows or sessions are not exact") from error

    def _count_failures(self, client: ClientProcess) -> None:
        self._report.failures += len(client.handled())
        if "ERROR" in client.states():
            self._report.wrong.append(f"{client.name} was in ERROR; {client.end_of_log()}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description="random faults over a running count; exact counts at the end"
    )
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="which faults, and when")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--clients", type=int, default=3, choices=(2, 3))
    parser.add_argument("--standbys", type=int, default=0, help="num.standby.replicas")
    parser.add_argument("--finally", dest="last", choices=LAST, help="a topic that is deleted at the end")
    parser.add_argument("--again", action="store_true", help="with --finally: it is created again at once")
    parser.add_argument("--windows", action="store_true", help="count by windows and sessions as well")
    parser.add_argument("--exactly-once", action="store_true", help="four programs, each record once")
    parser.add_argument(
        "--logs", type=Path, help="where all logs go; else they stay in build/chaos if it fails"
    )
    asked = parser.parse_args(arguments)
    print(f"seed {asked.seed}: {asked.faults} faults in {asked.minutes:g} minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="millstream-chaos-", ignore_cleanup_errors=True) as folder:
        report = None
        try:
            chaos = Chaos(
                asked.seed,
                Path(folder),
                asked.clients,
                standbys=asked.standbys,
                windows=asked.windows,
                last=asked.last,
                again=asked.again,
                exactly_once=asked.exactly_once,
            )
            report = chaos.run(asked.minutes * 60, asked.faults)
        finally:
            logs = asked.logs
            if logs is None and (report is None or report.wrong):
                logs = Path("build", "chaos")
            if logs is not None:
                logs.mkdir(parents=True, exist_ok=True)
                for log in (*Path(folder).glob("*.log"), *Path(folder).glob("kafka/*.log*")):
                    (logs / log.name).write_bytes(log.read_bytes())
                print(f"the logs are in {logs}", flush=True)
    print(report)
    print("nothing was lost, nothing was counted twice" if not report.wrong else "FAILED")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
