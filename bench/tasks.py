"""Tasks beside Kafka Streams with the same settings: bulk with each guarantee, and what little traffic costs.

A job's time runs from its first result to its last one, both by the broker's clock; the job is over when the
group has committed all its input. CPU seconds are those of the contestant and all it has started.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.contest import PythonContestant
from bench.figures import Progress, Report, Table, median, ratios
from bench.kafka_streams import JavaStreams
from bench.lab import Lab
from bench.words import PARTITIONS, producer_options
from bench.workloads import WORKLOADS

__all__ = ["measure"]

_BULK: Mapping[str, str] = {
    "topology.optimization": "all",
    "auto.offset.reset": "earliest",
    "consumer.max.poll.records": "10000",
    "producer.batch.size": str(256 * 2**10),
    "producer.linger.ms": "20",
}
_ONCE = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": "100"}
_ALL = {"statestore.cache.max.bytes": "0"}
_SLOTS = {"spark.master": f"local[{PARTITIONS + 1}]"}
_DONE_S = 120.0
_ASKED_S = 0.1


@dataclass(frozen=True, slots=True)
class _Bulk:
    title: str
    job: str
    size: int
    settings: Mapping[str, str]


BULK = (
    _Bulk("count, every update, exactly once", "count", 3_000_000, {**_BULK, **_ONCE, **_ALL}),
    _Bulk("count, cached, exactly once", "count", 3_000_000, {**_BULK, **_ONCE}),
    _Bulk("filter and map, at least once", "map", 3_000_000, {**_BULK, "commit.interval.ms": "100"}),
)
_WARM_RUNS = 3
"""After so many, neither contestant gets faster."""
_RATES = (0, 50, 1000)
_SETTLED_S, _SPAN_S = 40.0, 20.0


@dataclass(frozen=True, slots=True)
class _Found:
    rate: float
    cpu_s: float


class _Java:
    def __init__(self, lab: Lab) -> None:
        self._streams = JavaStreams(lab)
        self.used = self._streams.child.used
        self.close = self._streams.close

    def start(self, application: str, job: str, topic: str, output: str, settings: Mapping[str, str]) -> None:
        self._streams.start(application, settings, job, topic, "-", output)

    def stop(self) -> None:
        self._streams.ask("stop")

    def check(self) -> None:
        self._streams.first_record()


class _Tasks:
    def __init__(self, lab: Lab) -> None:
        self._child = PythonContestant(lab, "millstream", _SLOTS)
        self.used = self._child.used
        self.close = self._child.close
        self.stop = self._child.stop
        self.check = self._child.check

    def start(self, application: str, job: str, topic: str, output: str, settings: Mapping[str, str]) -> None:
        self._child.wait_until_ready()
        self._child.start(job, topic, "", output, {**settings, "application.id": application})


_CONTESTANTS: Mapping[str, Callable[[Lab], _Java | _Tasks]] = {"Kafka Streams": _Java, "Millstream": _Tasks}


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Bulk in rounds, and then little traffic for each contestant alone."""
    bulk: dict[str, dict[str, list[_Found]]] = {}
    for chosen in BULK:
        topic = _written(lab, chosen.job, chosen.size // (10 if quick else 1))
        found = bulk[chosen.title] = {name: [] for name in _CONTESTANTS}
        for name, make in _CONTESTANTS.items():
            with closing(make(lab)) as contestant:
                for _ in range(0 if quick else _WARM_RUNS):
                    _run(lab, contestant, chosen, topic)
                for number in range(1 if quick else 3):
                    tell(f"{chosen.title}: {name}, run {number + 1}")
                    found[name].append(_run(lab, contestant, chosen, topic))
        lab.kafka.delete_topic(topic)
    little = {} if quick else {name: _little(lab, make, tell) for name, make in _CONTESTANTS.items()}
    return Report("tasks", tuple(_tables(bulk, little)), (), {"little": little})


def _written(lab: Lab, job: str, size: int) -> str:
    return WORKLOADS["windows" if job == "count" else job].write(lab, size).left


def _run(lab: Lab, contestant: _Java | _Tasks, chosen: _Bulk, topic: str) -> _Found:
    output = lab.topic("out", PARTITIONS, {"message.timestamp.type": "LogAppendTime"})
    application = lab.name("tasks")
    size = sum(_ends(lab, topic))
    before = contestant.used()
    contestant.start(application, chosen.job, topic, output, chosen.settings)
    _wait_until_committed(lab, contestant, application, topic, size)
    used = contestant.used().cpu_s - before.cpu_s
    contestant.stop()
    first, last = _times(lab, output)
    return _Found(size / (last - first), used / size * 1e6)


def _little(lab: Lab, make: Callable[[Lab], _Java | _Tasks], tell: Progress) -> dict[int, float]:
    """The number of cores that are busy, by records a second."""
    cores: dict[int, float] = {}
    topic, output = lab.topic("little", PARTITIONS), lab.topic("out", PARTITIONS)
    settings = {**_BULK, **_ONCE, "producer.linger.ms": "0"}
    producer = Producer({**producer_options(lab.bootstrap_servers), "linger.ms": 0})
    with closing(make(lab)) as contestant:
        contestant.start(lab.name("tasks"), "count", topic, output, settings)
        _send(producer, topic, 2, 1.0)  # until it has read something, the contestant is asked for that
        for rate in _RATES:
            tell(f"{rate} records a second")
            _send(producer, topic, rate, _SETTLED_S)
            before, begun = contestant.used(), time.monotonic()
            _send(producer, topic, rate, _SPAN_S)
            cores[rate] = (contestant.used().cpu_s - before.cpu_s) / (time.monotonic() - begun)
        contestant.stop()
    return cores


def _send(producer: Producer, topic: str, rate: int, seconds: float) -> None:
    """So many records a second, evenly."""
    begun, sent = time.monotonic(), 0
    while (now := time.monotonic() - begun) < seconds:
        for number in range(sent, int(now * rate)):
            producer.produce(topic, key=b"key-%04d" % (number % 1000), value=b"x")
        sent = int(now * rate)
        producer.poll(0.02)


def _ends(lab: Lab, topic: str) -> list[int]:
    with closing(_consumer(lab)) as consumer:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in range(PARTITIONS)
        ]


def _wait_until_committed(lab: Lab, contestant: _Java | _Tasks, group: str, topic: str, size: int) -> None:
    deadline = time.monotonic() + _DONE_S * lab.patience
    while (done := lab.committed(group, topic, PARTITIONS)) < size:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{done:,} of {size:,} records are committed after {_DONE_S:g} s")
        contestant.check()
        time.sleep(_ASKED_S)


def _times(lab: Lab, topic: str) -> tuple[float, float]:
    """When the first and the last record was written, in seconds."""
    firsts, lasts = [], []
    with closing(_consumer(lab)) as consumer:
        for number, end in enumerate(_ends(lab, topic)):
            for found, begin in ((firsts, 0), (lasts, max(0, end - 3))):
                consumer.assign([TopicPartition(topic, number, begin)])
                read = consumer.poll(10)
                if read is None or read.error():
                    raise RuntimeError(f"no record of '{topic}' at offset {begin} of partition {number}")
                found.append(read.timestamp()[1] / 1000)
    return min(firsts), max(lasts)


def _consumer(lab: Lab) -> Consumer:
    options = {"bootstrap.servers": lab.bootstrap_servers, "group.id": "bench", "enable.auto.commit": False}
    return Consumer(options)


def _tables(
    bulk: Mapping[str, Mapping[str, list[_Found]]], little: Mapping[str, Mapping[int, float]]
) -> list[Table]:
    rows = []
    for title, found in bulk.items():
        java = [run.rate for run in found["Kafka Streams"]]
        for name, runs in found.items():
            rates = [run.rate for run in runs]
            cpu = median([run.cpu_s for run in runs])
            rows.append((title, name, f"{median(rates):,.0f}", str(ratios(rates, java)), f"{cpu:.1f}"))
    columns = ("job", "", "records/s", "of Kafka Streams'", "CPU s per million")
    tables = [Table("Tasks", columns, tuple(rows))]
    if little:
        cells = tuple((name, *(f"{cores[rate]:.2f}" for rate in _RATES)) for name, cores in little.items())
        tables.append(Table("Cores busy, exactly once", ("", *(f"{rate}/s" for rate in _RATES)), cells))
    return tables
