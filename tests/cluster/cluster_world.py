"""What tests of several client processes share: start them, ask them, stop, freeze and kill them."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]
from pool import Pool, start_process
from spark_start import WITHOUT_CODE, java_options
from waiting import wait_until

from millstream.broker import EmbeddedKafka

SESSION_MS = 2500
"""How soon the group misses a client that is gone. Busy machines need some of it as a reserve."""

ON_SPARK = pytest.mark.parametrize("engine", ["spark"])
WITHOUT_SPARK = pytest.mark.parametrize("engine", ["counting"])
"""For tests of groups, threads, stores and servers: what they claim holds whatever runs the pipelines."""

_numbers = itertools.count(1)


DOCUMENTED = {
    "StreamsRebalancingException",
    "StateStoreMigratedException",
    "StateStoreNotAvailableException",
}
"""What a read may meet while clients come and go."""


def is_alive(process: psutil.Process) -> bool:
    """Whether it still does something: one that nobody has asked how it ended does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def read_committed(servers: str, topic: str, timeout_s: float = 30.0) -> tuple[list[Message], int]:
    """What a reader of committed records finds in a topic, each partition's in the order of offsets; and how
    many offsets there are behind it, of transactions that are still open.

    The end of a partition is an offset and no number of records: the end of a transaction has one as well.
    """
    options = {
        "bootstrap.servers": servers,
        "group.id": "none",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
    }
    consumer = Consumer({**options, "isolation.level": "read_committed"})
    anything = Consumer({**options, "isolation.level": "read_uncommitted"})
    try:
        left = set(consumer.list_topics(topic, timeout=timeout_s).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        found: list[Message] = []
        behind = 0
        deadline = time.monotonic() + timeout_s
        while left:
            assert time.monotonic() < deadline, f"{topic}: not at the end of {left}"
            for message in consumer.consume(1000, 0.05):
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    found.append(message)
                    continue
                assert error.code() == KafkaError._PARTITION_EOF, error
                at = TopicPartition(topic, partition)
                behind += anything.get_watermark_offsets(at, timeout=timeout_s)[1] - offset
                left.discard(partition)
        return found, behind
    finally:
        consumer.close()
        anything.close()


class Asked(Exception):
    """What a client's answer was an exception; `kind` is its class."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class ClientProcess:
    """One client in a process that runs app.py: one of its own, or one of a pool."""

    def __init__(self, name: str, spec: Mapping[str, Any], log: Path, pool: Pool | None = None) -> None:
        self.name = name
        self.spec = spec
        self._engine = spec.get("engine", "spark")
        self.log_file = log
        self.started_at = time.time()
        self._arrived = threading.Condition()
        self._events: list[dict[str, Any]] = []
        self._answers: list[dict[str, Any]] = []
        self._answered = 0
        self._asking = threading.Lock()
        self.pool = pool
        self._free = threading.Event()
        self._reusable = pool is not None
        with log.open("ab") as output:
            if pool is None:
                self.process = start_process(output, json.dumps(spec))
            else:
                self.process = pool.take(self._engine, output)
                assert self.process.stdin is not None
                self.process.stdin.write(json.dumps({**spec, "log": str(log)}) + "\n")
                self.process.stdin.flush()
        threading.Thread(target=self._read, name=f"{name}-reader", daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                said = json.loads(line)
            except ValueError as error:
                raise AssertionError(f"{self.name} printed what is no answer: {line!r}") from error
            if said.get("event") == "free":
                self._free.set()
                return  # what it says from now on is another client's
            with self._arrived:
                (self._events if "event" in said else self._answers).append(said)
                self._arrived.notify_all()

    # --- asking ------------------------------------------------------------------------------------------

    def ask(self, *question: Any, timeout_s: float = 60.0) -> Any:
        """The answer to a question of app.py.

        Raises:
            Asked: the client raised.
        """
        with self._asking:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            self._answered += 1
            with self._arrived:
                arrived = self._arrived.wait_for(lambda: len(self._answers) >= self._answered, timeout_s)
            assert arrived, f"{self.name} did not answer {question}; {self.end_of_log()}"
            found = self._answers[self._answered - 1]
        if "raised" in found:
            raise Asked(found["raised"], found["text"])
        return found["answer"]

    def tell(self, *question: Any) -> None:
        """Ask, and leave the answer for what it is: the client may be frozen by the time it would come."""
        with self._asking:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(question) + "\n")
            self.process.stdin.flush()
            self._answered += 1

    def counts(self) -> dict[str, int]:
        """What the client's part of the store has; nothing while it cannot be asked."""
        try:
            return dict(self.ask("counts"))
        except Asked:
            return {}

    def pipelines(self) -> list[str]:
        """The pipelines that run on it."""
        return [name for thread in self.ask("threads") for name in thread["running"]]

    def tasks(self, kind: str = "tasks") -> list[str]:
        """Its active tasks, or its `standbys`."""
        return sorted(task for thread in self.ask("threads") for task in thread[kind])

    def threads(self) -> list[str]:
        return [thread["name"] for thread in self.ask("threads")]

    # --- what it told ------------------------------------------------------------------------------------

    def events(self, kind: str) -> list[dict[str, Any]]:
        with self._arrived:
            return [event for event in self._events if event["event"] == kind]

    def states(self) -> list[str]:
        return [event["new"] for event in self.events("state")]

    def handled(self) -> list[dict[str, Any]]:
        """The handler's calls."""
        return self.events("handler")

    def reached(self, state: str, timeout_s: float = 60.0, after: float = 0.0) -> float:
        """Wait until it has changed to `state`, after a time of day; when that was."""

        def when() -> float:
            assert self.process.poll() is None, f"{self.name} has ended; {self.end_of_log()}"
            return next((e["at"] for e in self.events("state") if e["new"] == state and e["at"] > after), 0.0)

        return wait_until(when, self.told(f"{self.name} reaches {state}"), timeout_s)

    def is_running(self) -> bool:
        assert self.process.poll() is None, f"{self.name} has ended; {self.end_of_log()}"
        return bool(self.states()) and self.states()[-1] == "RUNNING"

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def end_of_log(self, lines: int = 40) -> str:
        return f"the end of {self.name}'s log:\n" + "\n".join(self.log().splitlines()[-lines:])

    def stacks(self) -> str:
        """Where each of its Python threads is. For a report about a client that does not go on."""
        before = len(self.log())
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGUSR1)
        found: list[str] = []

        def there() -> bool:
            found[:] = [line for line in self.log()[before:].splitlines() if line.startswith("@ ")]
            return any(line.startswith("@ MainThread") for line in found)

        with suppress(AssertionError):
            wait_until(there, f"{self.name} says where its threads are", 5.0)
        if not found:  # its main thread runs no Python
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGUSR2)
            with suppress(AssertionError):
                wait_until(lambda: "most recent call" in self.log()[before:], "the threads are told", 5.0)
            found = [self.log()[before:]]
        return f"{self.name}'s threads:\n" + "\n".join(found)

    def told(self, what: str) -> str:
        return _Lazy(lambda: f"{what}; its states: {self.states()}; {self.end_of_log()}")

    # --- its processes -----------------------------------------------------------------------------------

    def family(self) -> list[psutil.Process]:
        """It and what it has started, itself first."""
        with suppress(psutil.NoSuchProcess):
            own = psutil.Process(self.process.pid)
            return [own, *own.children(recursive=True)]
        return []

    def has_jvm(self) -> bool:
        return any("java" in each.name() for each in self.family())

    def workers(self) -> list[psutil.Process]:
        """Spark's Python workers, and what they are forked from."""
        found: list[psutil.Process] = []
        for each in self.family()[1:]:
            with suppress(psutil.NoSuchProcess):
                if "java" in each.name():
                    found += [child for child in each.children(recursive=True) if "python" in child.name()]
        return found

    def kill_jvm(self) -> None:
        """SIGKILL to Spark's Java process alone."""
        self._reusable = False
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                if "java" in each.name():
                    each.kill()

    def freeze(self, *, jvm: bool) -> None:
        """SIGSTOP to the Python process, or to all of its processes."""
        self._reusable = False
        for each in self.family() if jvm else self.family()[:1]:
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGSTOP)

    @contextmanager
    def unaware(self) -> Iterator[None]:
        """Stop its Python for a moment, so that it does not see what happens halfway. It goes on as one that
        was busy, so another client may run in its process afterwards.
        """
        python = psutil.Process(self.process.pid)
        python.suspend()
        try:
            yield
        finally:
            python.resume()

    def wake_jvm(self) -> None:
        """SIGCONT to Spark's Java process alone."""
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                if "java" in each.name():
                    each.send_signal(signal.SIGCONT)

    def wake(self) -> None:
        for each in self.family():
            with suppress(psutil.NoSuchProcess):
                each.send_signal(signal.SIGCONT)

    def kill(self) -> list[psutil.Process]:
        """SIGKILL to the Python process; what it had started."""
        children = self.family()[1:]
        self.process.kill()
        self.process.wait(10)
        return children

    def terminate(self) -> float:
        """SIGTERM, as a supervisor sends it; how long it took to close, in seconds.

        Raises:
            AssertionError: it did not close by itself.
        """
        self.wake()
        began = time.monotonic()
        self.process.terminate()
        try:
            self.process.wait(45)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.name} did not end at SIGTERM; {self.end_of_log()}; {self.stacks()}"
            ) from None
        assert self.states()[-1:] == ["NOT_RUNNING"], f"{self.name}: {self.states()}; {self.end_of_log()}"
        return time.monotonic() - began

    def end(self) -> None:
        """Close it as a program does that comes to its end; its process may run another client then."""
        if self._free.is_set() or self.process.poll() is not None:
            return
        self.wake()
        if self._reusable and self.pool is not None:
            self.tell("end")
            if not self._free.wait(45):
                self.kill()
                raise AssertionError(f"{self.name} did not end; {self.end_of_log()}")
            self.pool.give(self._engine, self.process)
            return
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(45)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not end; {self.end_of_log()}") from None

    def dismiss(self) -> None:
        """After the test: give the process back if that can be, and else end it."""
        try:
            if self._reusable:
                self.end()
        except (AssertionError, OSError):
            pass  # after a test that failed it may be in any state
        self.destroy()

    def destroy(self) -> None:
        """Whatever it takes."""
        if self._free.is_set():
            return  # it is the pool's
        family = self.family()
        for each in family:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        psutil.wait_procs(family, timeout=10)
        if self.process.poll() is None:
            self.process.wait(10)


class _Lazy(str):
    """A text that is made when it is shown: the log of a client when a wait was in vain."""

    def __new__(cls, make: Callable[[], str]) -> _Lazy:
        made = super().__new__(cls, "")
        made._make = make  # type: ignore[attr-defined]
        return made

    def __str__(self) -> str:
        return str(self._make())  # type: ignore[attr-defined]

    def __format__(self, spec: str) -> str:
        return str(self)


class Cluster:
    """A broker, and client processes of one test; names made with `name()` are this test's own.

    Args:
        engine: what the clients run their programs with: "spark", or "counting" (counting_engine.py).
    """

    def __init__(
        self,
        kafka: EmbeddedKafka,
        directory: Path,
        servers: str | None = None,
        pool: Pool | None = None,
        engine: str = "spark",
    ) -> None:
        self.kafka = kafka
        self.engine = engine
        self._pool = pool
        self.directory = directory
        self.servers = servers or kafka.bootstrap_servers
        self._number = next(_numbers)
        self.application_id = self.name("app")
        self.clients: list[ClientProcess] = []
        self.expected: Counter[str] = Counter()
        self._producer = self._new_producer()

    # --- topics and records ------------------------------------------------------------------------------

    def name(self, base: str) -> str:
        return f"{base}-c{self._number}"

    def topic(self, base: str, partitions: int = 2) -> str:
        name = self.name(base)
        self.kafka.create_topic(name, partitions)
        return name

    def delete_topic(self, name: str) -> int:
        """Delete a topic; how many partitions it had."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        partitions = len(admin.list_topics(name, timeout=10).topics[name].partitions)
        admin.delete_topics([name])[name].result(30)
        return partitions

    def committed(self, topic: str) -> int:
        """How many records of a topic the group has committed, as Kafka's tools see it."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.application_id)])
        found = asked[self.application_id].result(30).topic_partitions
        return sum(max(0, each.offset) for each in found if each.topic == topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        admin = AdminClient({"bootstrap.servers": self.servers})
        for future in admin.create_partitions([NewPartitions(topic, partitions)]).values():
            future.result(30)
        self._producer = self._new_producer()  # the old one believes for minutes that there are fewer

        def known() -> bool:
            return len(self._producer.list_topics(topic, timeout=10).topics[topic].partitions) == partitions

        wait_until(known, f"{topic} has {partitions} partitions")

    def _new_producer(self) -> Any:
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 1, "log_level": 2})

    def restarted(self, kafka: EmbeddedKafka) -> None:
        """The broker was restarted: a producer of librdkafka may not find it again (kafka/patience.py)."""
        self.kafka = kafka
        self._producer = self._new_producer()

    def lost_coordinator(self) -> str:
        """What the broker says if it serves no group until it is started again: its fault, nobody else's."""
        lines = self.kafka.log_file.read_text(errors="replace").splitlines()
        failed = [line for line in lines if "[GroupCoordinator" in line and "Failed to load metadata" in line]
        return f"the broker serves no group: {failed[-1]}\n" if failed else ""

    def produce(self, topic: str, values: Iterable[str], **more: Any) -> float:
        """Write values, which are then expected in the counts; the time of day when the broker had them."""
        for value in values:
            self._producer.produce(topic, value=value.encode(), **more)
            self._producer.poll(0)
            self.expected[value] += 1
        assert self._producer.flush(60) == 0
        return time.time()

    def last_values(self, topic: str) -> dict[str, int]:
        """The last value of each key of an output topic of counts, by offset."""
        last: dict[str, int] = {}
        for message in self._messages(topic):
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            last[key.decode()] = int.from_bytes(value, "big", signed=True)
        return last

    def values(self, topic: str) -> Counter[str]:
        """How often each value is in a topic."""
        return Counter((message.value() or b"").decode() for message in self._messages(topic))

    def _messages(self, topic: str) -> list[Message]:
        """All there are, each partition's in their order; once no transaction is open in the topic."""

        def closed() -> list[list[Message]]:
            messages, behind = read_committed(self.servers, topic)
            return [] if behind else [messages]

        return wait_until(closed, f"every transaction in {topic} has come to its end", 30)[0]

    # --- clients -----------------------------------------------------------------------------------------

    def config(self, name: str, more: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "application.id": self.application_id,
            "bootstrap.servers": self.servers,
            "client.id": name,
            "state.dir": str(self.directory / name),
            "consumer.session.timeout.ms": SESSION_MS,
            "consumer.heartbeat.interval.ms": SESSION_MS // 5,
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": java_options(),
            **WITHOUT_CODE,
            **more,
        }

    def start(
        self, name: str, config: Mapping[str, Any] | None = None, *, fresh: bool = False, **spec: Any
    ) -> ClientProcess:
        """A client process with its own state directory.

        Args:
            fresh: Not in a process that has run another client, and has a JVM already.
        """
        client = ClientProcess(
            name,
            {"engine": self.engine, **spec, "config": self.config(name, config or {})},
            self.directory / f"{name}.log",
            None if fresh or spec.get("wait") else self._pool,
        )
        self.clients.append(client)
        return client

    def again(self, client: ClientProcess) -> ClientProcess:
        """The same program started once more."""
        fresh = ClientProcess(client.name, client.spec, client.log_file, client.pool)
        self.clients[self.clients.index(client)] = fresh
        return fresh

    def wait_until_running(self, *clients: ClientProcess, timeout_s: float = 90.0) -> None:
        for client in clients or self.clients:
            wait_until(client.is_running, client.told(f"{client.name} is RUNNING"), timeout_s)

    def wait_until_counted(self, *clients: ClientProcess, timeout_s: float = 60.0) -> dict[str, int]:
        """Wait until the clients' stores together have what was written, and exactly that.

        More than that would never become right again, so it ends the waiting.
        """
        asked: Sequence[ClientProcess] = clients or self.clients
        last: dict[str, int] = {}

        def counted() -> bool:
            last.clear()
            for client in asked:
                for word, count in client.counts().items():
                    if word in last:
                        return False  # a task is just changing hands
                    last[word] = count
            too_many = {word: n for word, n in last.items() if n > self.expected[word]}
            assert not too_many, f"counted twice: {too_many} of {dict(self.expected)}"
            return last == self.expected

        wait_until(
            counted,
            _Lazy(
                lambda: (
                    f"counts equal {dict(self.expected)}; they are {last}\n"
                    + "\n".join(client.end_of_log() for client in asked)
                )
            ),
            timeout_s,
        )
        return last

    def windowed_counts(self) -> list[dict[str, int]]:
        """How often each value is in all windows, and in all sessions, of all clients (`windows` in their
        spec); without those that cannot be asked, or have nothing.
        """
        sums: list[dict[str, int]] = []
        for store in ("windows", "sessions"):
            found: dict[str, int] = {}
            for client in self.clients:
                try:
                    found |= client.ask("windowed counts", store)  # a value is in one partition
                except Asked as refused:
                    if refused.kind not in DOCUMENTED:
                        raise
            sums.append(found)
        return sums

    def owner(self, *clients: ClientProcess, timeout_s: float = 60.0) -> ClientProcess:
        """The client that runs the last of the pipelines, which counts."""
        asked = clients or tuple(self.clients)
        found = wait_until(
            lambda: [(max(runs), client) for client in asked if (runs := client.pipelines())],
            _Lazy(lambda: "somebody runs the pipeline\n" + "\n".join(c.end_of_log() for c in asked)),
            timeout_s,
        )
        return max(found, key=lambda each: each[0])[1]

    def reader(self) -> ClientProcess:
        """The client that reads the first partition of the source. It keeps it while it lives."""
        return wait_until(
            lambda: next((client for client in self.clients if "0_0" in client.tasks()), None),
            "somebody reads the source",
        )

    def close(self) -> None:
        """End every process; those of a failed test may be in any state."""
        for client in self.clients:
            client.dismiss()
        del self._producer
