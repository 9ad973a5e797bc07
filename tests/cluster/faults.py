"""A list of faults, one after the other, over programs with everything in them; each is judged by itself.

    make faults                            # all 300: an hour
    make faults ARGS="once-counts --first 10 --count 5"

A world is one application of one or two clients that runs some of proof.py's programs with one guarantee, on
a broker that it reaches through a proxy. For each fault, records are written, the fault happens while they
are processed, what it broke is started or healed, more records are written, and then
outputs, changelogs and stores have to be what an independent count says. What came of it:

    exact   everything is there, and as often as the guarantee allows
    loud    not everything, but a client ended in ERROR, or its handler is still being called, with a reason
    silent  something is there too often, or wrong
    hung    something is missing, nobody says why, and nothing changes any more

After a fault that was not exact its world is made anew.
"""

from __future__ import annotations

import argparse
import itertools
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from cluster_world import ClientProcess, Cluster
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from proof import JOINS, PROGRAMS, WINDOWS, Proof
from proxy import Proxy
from spark_start import ArchiveMaking, java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.polling import pause

WORDS = [f"w{number}" for number in range(7)]
SETTLE_S = 90.0
"""How long everything may take to be right after a fault; most need a start of Spark."""
AWAY_S = 4.0
"""How long something is frozen or cut off: longer than the group's session."""
ONCE = {"processing.guarantee": "exactly_once_v2"}
_SILENT = ("more than once", "were there before", "of nobody", "counted too often")
"""What proof.py says of results that nobody has to wait for: they will not become right."""


# --- worlds ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What a world runs."""

    programs: tuple[str, ...]
    config: Mapping[str, object]
    clients: int = 1

    @property
    def once(self) -> bool:
        return self.config.get("processing.guarantee") == "exactly_once_v2"


KINDS = {
    "once-counts": Kind((*PROGRAMS, *WINDOWS), ONCE),
    "once-joins": Kind((*JOINS, "processed"), ONCE),
    "once-two": Kind(("map", "count", "chain", "table", "processed"), ONCE, clients=2),
    "least-counts": Kind(("map", "count", "windows", *WINDOWS), {}),
    "least-joins": Kind((*JOINS, "processed"), {}),
}


class World:
    """One application, and what can be done to it."""

    def __init__(self, kind: Kind, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        self.proxy = Proxy(self._port)
        self.broker = self._started_broker()
        self.cluster = Cluster(self.broker, directory, f"127.0.0.1:{self.proxy.port}")
        self.proof = Proof(self.cluster, kind.programs, words=WORDS, once=kind.once)
        self.points = directory / "points"
        self.points.mkdir()

    def begin(self) -> None:
        """Start the clients, and see that they work."""
        for name in ("a", "b")[: self.kind.clients]:
            self._start(name)
        self.cluster.wait_until_running()
        self.proof.write(WORDS)
        self.proof.settle("all is there before the first fault", SETTLE_S)

    def _start(self, name: str) -> ClientProcess:
        config = {
            "keep.spark.warm": name == "b",
            "spark.driver.extraJavaOptions": f"{java_options()} -Dmillstream.kernel.failpoints={self.points}",
            **self.kind.config,
        }
        return self.cluster.start(name, config, wait=True, **self.proof.spec())

    def _started_broker(self) -> EmbeddedKafka:
        advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.proxy.port}"}
        return EmbeddedKafka(self.directory / "kafka", port=self._port, settings=advertised).start()

    def close(self) -> None:
        self.cluster.close()
        self.broker.close()
        self.proxy.close()

    @property
    def working(self) -> ClientProcess:
        """The client that has a Spark; else the first one."""
        return next((each for each in self.cluster.clients if each.has_jvm()), self.cluster.clients[0])

    def again(self, client: ClientProcess) -> None:
        self.cluster.again(client)

    def restart_broker(self) -> None:
        self.broker.close()
        self.broker = self._started_broker()
        self.cluster.restarted(self.broker)
        self.proof.broker_restarted()

    def state_of(self, client: ClientProcess) -> Path:
        return self.directory / client.name

    def settled(self) -> str:
        """Wait until everything is right.

        Raises:
            AssertionError: it was not.
        """
        began = time.monotonic()
        self.proof.settle("everything is there", SETTLE_S)
        self.cluster.wait_until_running(timeout_s=SETTLE_S)
        wait_until(self._stores_right, "the stores are right", SETTLE_S)
        return f"{time.monotonic() - began:.1f} s"

    def _stores_right(self) -> bool:
        """The store that a client is asked for, of all clients together."""
        store = str(self.proof.spec()["store"])
        if store == "places":
            return True  # the output of "processed" shows what is in it
        found: Counter[str] = Counter()
        for client in self.cluster.clients:
            found.update(client.counts())
        return found == self.proof.words


def _stacks_of(process: psutil.Process) -> str:
    """What the threads of a JVM do, if it can be asked."""
    if "java" not in process.name():
        return ""
    asker = Path(process.exe()).with_name("jcmd")
    if not asker.exists():
        return ""
    asked = [str(asker), str(process.pid), "Thread.print"]
    return subprocess.run(asked, capture_output=True, text=True, timeout=30).stdout


def _offsets(cluster: Cluster) -> list[str]:
    """Of each partition: where it ends, where its committed records end, and where the group goes on."""
    admin = AdminClient({"bootstrap.servers": cluster.servers})
    parts = [
        TopicPartition(topic.topic, number)
        for topic in admin.list_topics(timeout=10).topics.values()
        for number in topic.partitions
    ]
    ends: list[dict[tuple[str, int], int]] = []
    for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        asked = admin.list_offsets(dict.fromkeys(parts, OffsetSpec.latest()), isolation_level=level)
        ends.append({(at.topic, at.partition): each.result(10).offset for at, each in asked.items()})
    group = ConsumerGroupTopicPartitions(cluster.application_id)
    [found] = admin.list_consumer_group_offsets([group]).values()
    committed = {(at.topic, at.partition): at.offset for at in found.result(10).topic_partitions or ()}
    return [
        f"{topic}-{number}: {end}, {ends[1][topic, number]}, {committed.get((topic, number))}"
        for (topic, number), end in sorted(ends[0].items())
    ]


# --- faults ------------------------------------------------------------------------------------------------

Fault = Callable[[World, random.Random], None]
"""Breaks something, and heals or starts it again."""


def kill(world: World, _: random.Random) -> None:
    client = world.working
    client.kill()
    world.again(client)


def kill_jvm(world: World, _: random.Random) -> None:
    world.working.kill_jvm()


def kill_workers(world: World, _: random.Random) -> None:
    for worker in world.working.workers():
        with suppress(psutil.NoSuchProcess):
            worker.kill()


def kill_and_lose_state(world: World, _: random.Random) -> None:
    client = world.working
    client.kill()
    shutil.rmtree(world.state_of(client), ignore_errors=True)
    world.again(client)


def kill_and_put_back_older_state(world: World, _: random.Random) -> None:
    """The copy is of a directory in use, so it is not even consistent."""
    client = world.working
    state, copy = world.state_of(client), world.directory / f"{client.name}-older"
    shutil.rmtree(copy, ignore_errors=True)
    with suppress(shutil.Error):  # files that were deleted on the way
        shutil.copytree(state, copy)
    world.proof.write(WORDS, same_round=True)
    pause(1.0)
    client.kill()
    shutil.rmtree(state, ignore_errors=True)
    copy.rename(state)
    world.again(client)


def kill_twice(world: World, chance: random.Random) -> None:
    """Again while it restores, or starts Spark."""
    kill(world, chance)
    pause(chance.uniform(0.5, 4.0))
    kill(world, chance)


def terminate(world: World, _: random.Random) -> None:
    client = world.working
    wait_until(client.states, client.told("it can be closed"), 60)
    client.terminate()
    world.again(client)


def freeze(world: World, _: random.Random) -> None:
    client = world.working
    client.freeze(jvm=False)
    pause(AWAY_S)
    client.wake()


def freeze_all(world: World, _: random.Random) -> None:
    client = world.working
    client.freeze(jvm=True)
    pause(AWAY_S)
    client.wake()


def freeze_jvm(world: World, _: random.Random) -> None:
    client = world.working
    for each in client.family():
        if "java" in each.name():
            each.suspend()
    pause(AWAY_S)
    client.wake_jvm()


def stop_broker(world: World, _: random.Random) -> None:
    world.restart_broker()


def kill_broker(world: World, _: random.Random) -> None:
    psutil.Process(world.broker.pid).kill()
    world.restart_broker()


def freeze_broker(world: World, _: random.Random) -> None:
    broker = psutil.Process(world.broker.pid)
    broker.suspend()
    pause(AWAY_S)
    broker.resume()


def cut_connections(world: World, chance: random.Random) -> None:
    for _ in range(4):
        world.proxy.cut()
        pause(chance.uniform(0.1, 0.6))


def cut_network(world: World, _: random.Random) -> None:
    world.proxy.cut(refuse=True)
    pause(AWAY_S)
    world.proxy.heal()


def hold_network(world: World, _: random.Random) -> None:
    world.proxy.hold()
    pause(AWAY_S)
    world.proxy.heal()


def shift_clock(world: World, chance: random.Random) -> None:
    client = world.working
    client.kill()
    client.spec = {**client.spec, "clock_off_s": chance.choice((3600.0, -3600.0, 0.0))}
    world.again(client)


def _full_disk(process: psutil.Process, limit: int) -> None:
    process.rlimit(psutil.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def fill_disk(world: World, _: random.Random) -> None:
    """No file of the client's may grow for some seconds, nor a new one have any bytes."""
    family = [each for each in world.working.family() if "python" in each.name() or "java" in each.name()]
    for each in family:
        with suppress(psutil.NoSuchProcess):
            _full_disk(each, 0)
    pause(AWAY_S)
    for each in family:
        with suppress(psutil.NoSuchProcess):
            _full_disk(each, resource.RLIM_INFINITY)


def damage_state(world: World, chance: random.Random) -> None:
    """Some of the state directory's files are cut, emptied or overwritten while the client is down."""
    client = world.working
    client.kill()
    files = sorted(each for each in world.state_of(client).rglob("*") if each.is_file())
    for each in chance.sample(files, min(3, len(files))):
        content = each.read_bytes()
        match chance.randrange(3):
            case 0:
                each.write_bytes(b"")
            case 1:
                each.write_bytes(content[: len(content) // 2])
            case _:
                each.write_bytes(bytes(byte ^ 0x5A for byte in content))
    world.again(client)


def hand_over(world: World, _: random.Random) -> None:
    """Another client comes, and the one that works is closed, and started again."""
    client = world.working
    wait_until(client.states, client.told("it can be closed"), 60)
    client.terminate()
    pause(1.0)
    world.again(client)


def stop_at(place: str, *, whole_client: bool) -> Fault:
    """A task stops at a place, and Spark is killed there, or the client with it."""

    def fault(world: World, chance: random.Random) -> None:
        armed = world.points / place
        armed.touch()
        world.proof.write(WORDS * 5, same_round=True)
        with suppress(AssertionError):  # there may be nothing for it
            wait_until(armed.with_name(f"{armed.name}.reached").exists, f"{place} is reached", 10)
        (kill if whole_client else kill_jvm)(world, chance)
        for point in world.points.iterdir():
            point.unlink(missing_ok=True)

    fault.__name__ = f"{'client' if whole_client else 'Spark'} killed at {place}"
    return fault


ANY: tuple[Fault, ...] = (
    kill,
    kill_jvm,
    freeze,
    cut_connections,
    kill_broker,
    terminate,
    damage_state,
    freeze_all,
    kill_and_lose_state,
    hold_network,
    kill_workers,
    freeze_jvm,
    stop_broker,
    fill_disk,
    kill_and_put_back_older_state,
    cut_network,
    kill_twice,
    freeze_broker,
    shift_clock,
)
PLACES = (
    "0_0.sending",
    "0_0.committing",
    "0_1.logged",
    "1_0.logged",
    "1_0.offsets",
    "0_0.committed",
    "1_0.committed",
    "0_0.opening",
)
AT_PLACES = tuple(stop_at(place, whole_client=whole) for whole in (False, True) for place in PLACES)
COUNT = 50
"""Faults of each kind of world: 250 in all."""


def script(name: str) -> list[Fault]:
    """The faults of a world, in order: always the same."""
    kind = KINDS[name]
    faults = [*ANY, *(AT_PLACES if kind.once else ()), *((hand_over,) * 3 if kind.clients > 1 else ())]
    chance = random.Random(name)
    endless = itertools.chain.from_iterable(chance.sample(faults, len(faults)) for _ in itertools.count())
    return list(itertools.islice(endless, COUNT))


@dataclass
class Outcome:
    world: str
    number: int
    fault: str
    verdict: str
    detail: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.world} {self.number:2d} {self.fault}: {self.verdict} ({self.seconds:.1f} s) {self.detail}"
        )


@dataclass
class Campaign:
    """Runs worlds' scripts; what came of each fault."""

    logs: Path
    outcomes: list[Outcome] = field(default_factory=list)

    def run(self, name: str, first: int, count: int) -> None:
        faults = list(enumerate(script(name)))[first : first + count]
        while faults:
            with (
                tempfile.TemporaryDirectory(
                    prefix="millstream-faults-", ignore_cleanup_errors=True
                ) as folder,
                self._world(name, Path(folder)) as world,
            ):
                while faults:
                    number, fault = faults.pop(0)
                    outcome = self._one(name, world, number, fault)
                    self.outcomes.append(outcome)
                    print(outcome, flush=True)
                    if outcome.verdict != "exact":
                        self._keep_logs(world, f"{name}-{number}")
                        break

    @contextmanager
    def _world(self, name: str, directory: Path) -> Iterator[World]:
        world = World(KINDS[name], directory)
        try:
            world.begin()
            yield world
        finally:
            world.close()

    def _one(self, name: str, world: World, number: int, fault: Fault) -> Outcome:
        chance = random.Random(f"{name} {number}")
        began = time.monotonic()
        failed: AssertionError | None = None
        try:
            world.proof.write(WORDS * 10)
            pause(chance.uniform(0.0, 1.0))
            fault(world, chance)
            world.proof.write(WORDS * 3, same_round=True)
            detail = f"settled after {world.settled()}"
        except AssertionError as error:
            failed, detail = error, f"{world.cluster.lost_coordinator()}{error}"
        verdict = "exact" if failed is None else self._verdict(world, detail)
        return Outcome(
            name, number, fault.__name__.replace("_", " "), verdict, detail[:3000], time.monotonic() - began
        )

    def _verdict(self, world: World, detail: str) -> str:
        if any(each in detail for each in _SILENT):
            return "silent"
        loud = [
            each
            for each in world.cluster.clients
            if "ERROR" in each.states() or each.process.poll() is not None
        ]
        recent = [
            call
            for each in world.cluster.clients
            for call in each.handled()
            if call["at"] > time.time() - SETTLE_S / 2
        ]
        return "loud" if loud or recent else "hung"

    def _keep_logs(self, world: World, name: str) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        for client in world.cluster.clients:
            with suppress(AssertionError, OSError, psutil.Error):
                stacks = [client.stacks(), *map(_stacks_of, client.family())]
                (self.logs / f"{name}-{client.name}.log").write_text("\n".join([client.log(), *stacks]))
        (self.logs / f"{name}-offsets.txt").write_text("\n".join(_offsets(world.cluster)))

    def summary(self) -> str:
        counts = Counter(outcome.verdict for outcome in self.outcomes)
        lines = [str(each) for each in self.outcomes if each.verdict != "exact"]
        by_world = Counter((each.world, each.verdict) for each in self.outcomes)
        lines += [f"{world}: {count} {verdict}" for (world, verdict), count in sorted(by_world.items())]
        total = ", ".join(f"{counts[verdict]} {verdict}" for verdict in ("exact", "loud", "silent", "hung"))
        return "\n".join([*lines, f"{len(self.outcomes)} faults: {total}"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="a list of faults, each judged by itself")
    parser.add_argument("worlds", nargs="*", default=list(KINDS), help=f"some of: {', '.join(KINDS)}")
    parser.add_argument("--first", type=int, default=0, help="the number of the first fault of each world")
    parser.add_argument("--count", type=int, default=COUNT, help="how many of each world")
    parser.add_argument(
        "--logs", type=Path, default=Path("build/faults"), help="for logs of faults not exact"
    )
    asked = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with EmbeddedKafka() as kafka:
        ArchiveMaking(lambda: kafka.bootstrap_servers).wait()  # or each start takes twice as long
    campaign = Campaign(asked.logs)
    try:
        for name in asked.worlds:
            campaign.run(name, asked.first, asked.count)
    finally:
        print(campaign.summary(), flush=True)
    return int(any(each.verdict in ("silent", "hung") for each in campaign.outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
