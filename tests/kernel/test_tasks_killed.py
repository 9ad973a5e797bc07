"""A task and more faults, by night: random kills, a broker that restarts or is away, long standstills.

`MILLSTREAM_KILLS=100 .venv/bin/pytest tests/kernel/test_tasks_killed.py -k random` kills as often as it says.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from java_programs import KernelCommand, KernelJava
from task_world import TaskProcess, TaskWorld, World, kill_at_random
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.kafka

KILLS = int(os.environ.get("MILLSTREAM_KILLS", "20"))


@pytest.fixture
def world(kafka: EmbeddedKafka, kernel_command: KernelCommand, tmp_path: Path) -> World:
    def make(broker: EmbeddedKafka = kafka, **more: object) -> TaskWorld:
        return TaskWorld(broker, kernel_command, tmp_path, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[[], EmbeddedKafka]]:
    """Starts brokers of one cluster, one after the other, on one port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    brokers = []

    def start() -> EmbeddedKafka:
        settings = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"}
        brokers.append(EmbeddedKafka(tmp_path / "kafka", port=port, settings=settings))
        return brokers[-1].start()

    yield start
    for broker in brokers:
        broker.close()


@pytest.mark.timeout(120 + 12 * KILLS)
@pytest.mark.parametrize("stores", [("counts",), ("memory-counts", "other")], ids=["disk", "memory"])
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_random_kills(world: World, exactly_once: bool, stores: tuple[str, ...]) -> None:
    """The directory is kept, lost, or an older copy of it comes back."""
    counting = world(exactly_once=exactly_once, stores=stores)
    for seed in range(0, KILLS, 10):
        kill_at_random(counting, 10, seed=100 + seed)
        if exactly_once:
            counting.assert_exact()
        else:
            counting.assert_stores_exact()


def test_a_map_is_exact_when_its_process_is_killed(world: World) -> None:
    """A task without any state has only its offsets."""
    mapping = world(what="map", stores=())
    kill_at_random(mapping, 10, seed=7)
    mapping.assert_exact()


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def commits(process: TaskProcess) -> int:
    return len(process.lines("committed"))


def test_a_task_outlives_its_broker(world: World, start_broker: Callable[[], EmbeddedKafka]) -> None:
    """The broker restarts while the task runs, and stands still for longer than a call of a client waits."""
    broker = start_broker()
    patience = {"max.block.ms": "500", "request.timeout.ms": "400", "delivery.timeout.ms": "60000"}
    counting = world(broker, producer={**patience, "transaction.timeout.ms": "60000"})
    counting.send(3000)
    with counting.process(pause_us=1000) as process:
        process.wait_for("committed", 5)
        with standing_still(broker.pid):
            wait_until(
                lambda: "cannot commit yet" in process.text() or "cannot add" in process.text(), "a retry"
            )
        before = commits(process)
        process.wait_for("committed", before + 5)
        broker.close()
        broker = start_broker()
        before = commits(process)
        process.wait_for("committed", before + 5)
        counting.kafka = broker
        wait_until(lambda: int(process.lines("committed")[-1]) == 3000, "all records")
    counting.assert_exact()


def test_a_task_that_stood_still_for_longer_than_its_transaction_may_last_has_moved(
    world: World, start_broker: Callable[[], EmbeddedKafka]
) -> None:
    """The broker aborts the transaction; nobody else has taken the task over, and nothing is changed."""
    counting = world(start_broker(), producer={"transaction.timeout.ms": "1000"})
    counting.send(300)
    for point in ("logged", "offsets"):
        counting.arm(point)
        with counting.process() as zombie:
            counting.stopped_at(point, zombie)
            with standing_still(zombie.pid):
                wait_until(
                    lambda: counting.transaction() == "CompleteAbort", "the broker aborts it", every_s=0.5
                )
                counting.disarm()
            assert zombie.failure().startswith("TaskMovedException")
    counting.assert_exact()


def test_nothing_is_left_open(world: World, kernel_java: KernelJava) -> None:
    """200 times: closed after a commit, in a transaction, interrupted in a poll and while it opens."""
    counting = world()
    with counting.process("drain") as process:
        assert process.ended() == 0
    said = kernel_java(
        "io.millstream.kernel.task.LeaksMain",
        "",
        str(counting.folder / "plan-1.json"),
        counting.output,
        "200",
        timeout=timedelta(minutes=5).total_seconds(),
    )
    words = said.split()
    assert int(words[1]) <= 0, said
    assert int(words[3]) <= 0, said
