"""How long it takes to rebuild a store from its changelog, compared with only reading that changelog; and how
much memory a long restore takes."""

from __future__ import annotations

import time

import psutil

from bench.figures import Goal, Progress, Report, Table, ratios, rounds, spread
from bench.kafka_streams import JavaReads
from bench.lab import Lab, NotMeasured
from bench.stores import entries
from bench.words import PARTITIONS, produce
from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.model import TaskId, TopicPartition
from millstream.ports import KeyValueBytesStore
from millstream.query.metadata import default_partition
from millstream.stores.memory_store import MemoryStore
from millstream.stores.rocksdb_store import RocksDBStore
from millstream.stores.updater import StateRestoreListener, StoreUpdater

__all__ = ["measure"]

_PATIENCE_S = 600.0


def measure(lab: Lab, *, quick: bool, tell: Progress) -> Report:
    """Restore into RocksDB, into memory, and into nothing, in turns."""
    records, repetitions = (200_000, 3) if quick else (1_000_000, 5)
    changelog = lab.topic("changelog", PARTITIONS, {"cleanup.policy": "compact"})
    tell(f"writing {records:,} changelog records")
    _produce(lab.bootstrap_servers, changelog, records)
    ways = {
        "to RocksDB": lambda: _restore(lab, changelog, "rocksdb"),
        "to memory": lambda: _restore(lab, changelog, "memory"),
        "only read": lambda: _only_read(lab, changelog, records),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for number, order in enumerate(rounds(list(ways), repetitions + 1)):
        for name in order:
            tell(f"round {number} of {repetitions}: {name}" if number else f"warming up: {name}")
            used = time.process_time()
            taken = ways[name]()
            used = time.process_time() - used
            if number:
                seconds[name].append(taken)
                cpu[name].append(used)
    rows = []
    for name, of in seconds.items():
        taken_s, used_s = spread(of), spread(cpu[name])
        against = ratios(of, seconds["only read"])
        rows.append(
            (
                name,
                str(taken_s),
                f"{records / taken_s.median:,.0f}",
                f"{used_s.median:.2f}",
                str(against),
            )
        )
    notes = ["'only read': the same consumer, records decoded and dropped"]
    tell("Kafka Streams: a table of the same size")
    try:
        with JavaReads(lab, entries(records), ["key-00000000"], PARTITIONS) as java:
            filled_s = java.filled_s
        per_second = f"{records / filled_s:,.0f}"
        rows.append(("Kafka Streams, a table of a topic", f"{filled_s:.2f}", per_second, "", ""))
        notes.append(
            "Kafka Streams: one run, from start() in a new JVM until its store is complete and can be read"
        )
    except NotMeasured as error:
        filled_s = 0.0
        notes.append(f"Kafka Streams is not measured: {error}")
    table = Table(
        f"Restore of {records:,} records, {PARTITIONS} partitions, alternating rounds: {repetitions}",
        ("way", "seconds", "records/s", "CPU s", "time / only read"),
        tuple(rows),
        tuple(notes),
    )
    rate = records / spread(cpu["to RocksDB"]).median
    per_core = Goal("changelog to RocksDB, per core", rate, 200_000, "records/s", at_least=True)
    long, memory = _long(lab, 2_000_000 if quick else 10_000_000, tell)
    return Report(
        "restore",
        (table, long),
        (per_core, memory),
        {
            "records": records,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "long": memory.measured,
            "java_filled_s": filled_s,
        },
    )


class _Watch:
    """Listens to a restore: reports its progress, and watches the memory of this process."""

    def __init__(self, records: int, tell: Progress) -> None:
        self._records, self._tell = records, tell
        self._process = psutil.Process()
        self.done = self.batches = 0
        self.before = self.peak = self._mib()

    def _mib(self) -> float:
        return float(self._process.memory_info().rss) / 2**20

    def on_restore_start(self, partition: TopicPartition, store: str, start: int, end: int) -> None:
        """Nothing to report yet."""

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        """Count; now and then look at the memory and report."""
        self.done += count
        self.batches += 1
        if self.batches % 10 == 0:
            self.peak = max(self.peak, self._mib())
        if self.batches % 400 == 0:
            self._tell(f"restored {self.done:,} of {self._records:,} records")

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        """Look at the memory once more."""
        self.peak = max(self.peak, self._mib())


def _long(lab: Lab, records: int, tell: Progress) -> tuple[Table, Goal]:
    """One long restore: how fast it is overall, and how much memory it takes."""
    changelog = lab.topic("long-changelog", PARTITIONS, {"cleanup.policy": "compact"})
    tell(f"writing {records:,} changelog records")
    _produce(lab.bootstrap_servers, changelog, records)
    watch = _Watch(records, tell)
    used = time.process_time()
    seconds = _restore(lab, changelog, "rocksdb", watch)
    used = time.process_time() - used
    grown = watch.peak - watch.before
    table = Table(
        f"A long restore: {records:,} records into RocksDB, {PARTITIONS} partitions",
        ("seconds", "records/s", "CPU s", "MiB before", "MiB at most"),
        (
            (
                f"{seconds:.1f}",
                f"{records / seconds:,.0f}",
                f"{used:.1f}",
                f"{watch.before:,.0f}",
                f"{watch.peak:,.0f}",
            ),
        ),
        (f"progress was reported {watch.batches:,} times; the memory includes RocksDB's caches",),
    )
    return table, Goal("memory that a long restore adds", grown, 600, "MiB")


def _produce(servers: str, topic: str, records: int) -> None:
    keys = (b"key-%08d" % number for number in range(records))
    produce(
        servers,
        topic,
        (
            {
                "value": number.to_bytes(8, "big"),
                "key": key,
                "partition": default_partition(key, PARTITIONS),
                "timestamp": 1_700_000_000_000,
            }
            for number, key in enumerate(keys)
        ),
    )


def _consumer(lab: Lab) -> KafkaChangelogConsumer:
    config = StreamsConfig(
        {
            "application.id": lab.name("restore"),
            "bootstrap.servers": lab.bootstrap_servers,
            "state.dir": str(lab.path("state")),
        }
    )
    return KafkaChangelogConsumer(config)


def _restore(lab: Lab, changelog: str, kind: str, listener: StateRestoreListener | None = None) -> float:
    failures: list[BaseException] = []
    updater = StoreUpdater("bench-updater", _consumer(lab), on_failure=failures.append, listener=listener)
    stores: list[KeyValueBytesStore] = []
    for number in range(PARTITIONS):
        task = TaskId(0, number)
        to_disk = kind == "rocksdb"
        path = lab.path("store")
        store = RocksDBStore("counts", task, path) if to_disk else MemoryStore("counts", task)
        stores.append(store)
        updater.add(store, TopicPartition(changelog, number))
    begun = time.perf_counter()
    updater.start()
    try:
        if not updater.wait_until_restored(_PATIENCE_S):
            raise TimeoutError(f"'{changelog}' was not restored within {_PATIENCE_S:g} s")
        return time.perf_counter() - begun
    finally:
        updater.close()
        for opened in stores:
            opened.close()


def _only_read(lab: Lab, changelog: str, records: int) -> float:
    consumer = _consumer(lab)
    begun = time.perf_counter()
    partitions = [TopicPartition(changelog, number) for number in range(PARTITIONS)]
    consumer.end_offsets(partitions)  # as a restore does first
    consumer.assign(dict.fromkeys(partitions))
    left = records
    while left > 0:
        left -= sum(len(batch.entries) for batch in consumer.poll(1.0))
        if time.perf_counter() - begun > _PATIENCE_S:
            raise TimeoutError(f"{left} of {records} records were not read within {_PATIENCE_S:g} s")
    taken = time.perf_counter() - begun
    consumer.close()
    return taken
