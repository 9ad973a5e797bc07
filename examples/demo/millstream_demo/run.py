"""The demo at work: a broker, Spark, a client, lines going in and counts coming out. It shows nothing.

Spark and the broker start at the same time, each on a thread; the lines are sent while Spark is still
starting. `view()` tells at any moment what is going on, and never waits. `ended` is set when the counts have
been checked or something has failed.

Positions decide when everything is counted, never the totals that are checked afterwards: when all lines are
sent, the broker is asked for the ends of their topic; the pipeline has to reach these, and then the store has
to reach the end of its changelog.
"""

from __future__ import annotations

import heapq
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Kafkas

from millstream import (
    BrokerException,
    InvalidStateStoreException,
    KafkaStreams,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    StoreQueryParameters,
    StreamsConfig,
    StreamsException,
    ThreadMetadata,
    TimeoutException,
    TopicPartition,
)
from millstream.broker import EmbeddedKafka
from millstream_demo.corpus import Corpus
from millstream_demo.view import Check, Counts, Progress, Step, View
from millstream_demo.word_count import LINES, STORE, WORD_COUNTS, word_count
from millstream_demo.words import count_words

if TYPE_CHECKING:
    from millstream_demo.main import Machine, Spark

State = KafkaStreams.State

__all__ = ["DemoRun"]

PARTITIONS = 4
THREADS = 2
TOP = 100
STALL_S = 180.0
"""The run is given up after this time without any progress."""

_LOG = logging.getLogger(__name__)
"""For librdkafka's messages, which would otherwise garble the screen."""

_LOOK_S = 0.2
_ANSWER_S = 30.0
_SCAN_S = 1.0
_SCAN_SHARE = 10
"""A scan of the store waits this many times as long as the last one took: a tenth of one core at most."""

_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that lives half a minute: half the CPU time of Java's defaults, so a quicker start."""

_REMOVALS = 10
_REMOVAL_PAUSE_S = 0.02
_SPARK_LOG = "MILLSTREAM_SPARK_LOG"


@dataclass
class _Found:
    """What the monitor saw last; replaced as a whole."""

    state: str = State.CREATED.name
    threads: tuple[ThreadMetadata, ...] = ()
    progress: Progress = field(default_factory=Progress)
    counts: Counts = field(default_factory=Counts)


class Lines:
    """Writes lines into their topic."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "linger.ms": 20, "enable.idempotence": True}
        self._producer = Producer(settings, logger=_LOG)
        self._closed = threading.Event()
        self._failure: object = None

    def send(self, line: bytes) -> None:
        """Hand a line over. Waits while too many are on their way.

        Raises:
            StreamsException: an earlier one could not be written.
        """
        while not self._closed.is_set():
            try:
                self._producer.produce(LINES, value=line, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(_LOOK_S)
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until every line is written.

        Raises:
            StreamsException: one could not be written.
        """
        while len(self._producer) and not self._closed.is_set():
            self._producer.flush(_LOOK_S)  # this ends, because a line that is not accepted for minutes fails
        self._check()

    def close(self) -> None:
        """Drop unwritten lines, and end."""
        self._closed.set()
        self._producer.purge()

    def _delivered(self, error: object, message: object) -> None:
        self._failure = self._failure or error

    def _check(self) -> None:
        if self._failure is not None:
            raise StreamsException(f"a line could not be written: {self._failure}")


class Offsets:
    """Asks the broker how many records there are."""

    def __init__(self, servers: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": "millstream-demo-offsets"}
        self._consumer = Consumer(settings, logger=_LOG)

    def ends(self, partitions: Set[TopicPartition]) -> dict[TopicPartition, int]:
        """The end of each partition."""
        return {
            at: self._consumer.get_watermark_offsets(Kafkas(*at), timeout=_ANSWER_S)[1] for at in partitions
        }

    def close(self) -> None:
        self._consumer.close()


class DemoRun:
    """Everything that the demo starts. It is created, started, watched and closed.

    Args:
        corpus: the text.
        work: a directory of its own for everything it writes, which `close()` removes.
        machine: starts Spark ahead of the client.
        began: when the demo began, by `time.monotonic()`; times count from there.
    """

    def __init__(self, corpus: Corpus, work: Path, machine: Machine, *, began: float | None = None) -> None:
        self.corpus = corpus
        self.work = work
        self._machine = machine
        self.began = time.monotonic() if began is None else began
        for name in ("java", "spark", "state"):
            (work / name).mkdir()
        self.spark_log = Path(os.environ.setdefault(_SPARK_LOG, str(work / "spark.log")))
        self.ended = threading.Event()
        self.failure: BaseException | None = None
        self.check: Check | None = None
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._steps: dict[str, Step] = {}
        self._found = _Found()
        self._sent = 0
        self._ends: dict[TopicPartition, int] | None = None
        self._broker: EmbeddedKafka | None = None
        self._lines: Lines | None = None
        self._session: Spark | None = None
        self._streams: KafkaStreams | None = None
        self._spark_ready = threading.Event()

    # --- for the display ---------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything. Returns at once."""
        self._in_thread("demo-spark", self._start_spark)
        self._in_thread("demo-kafka", self._start_kafka)

    def view(self) -> View:
        """What is going on now. It never waits."""
        with self._lock:
            steps, found = tuple(self._steps.values()), self._found
        streams = self._streams
        progress = found.progress
        if self._ends is None:
            progress = replace(progress, lines=self._sent)
        return View(
            seconds=time.monotonic() - self.began,
            steps=steps,
            client=streams.client_id if streams else "",
            state=streams.state.name if streams else "",
            threads=found.threads,
            progress=progress,
            counts=found.counts,
        )

    @property
    def bootstrap_servers(self) -> str:
        assert self._broker is not None
        return self._broker.bootstrap_servers

    def store(self) -> ReadOnlyKeyValueStore[str, int]:
        """The store of counts, for queries.

        Raises:
            InvalidStateStoreException: it cannot be read now.
        """
        return self._client().store(
            StoreQueryParameters.from_name_and_type(STORE, QueryableStoreTypes.key_value_store())
        )

    def send(self, line: str) -> None:
        """Send one more line.

        Raises:
            StreamsException: it could not be written.
        """
        assert self._lines is not None
        self._lines.send(line.encode(errors="replace"))
        self._lines.flush()

    # --- the end -----------------------------------------------------------------------------------------

    def close(self, patience_s: float) -> bool:
        """End everything, and remove all files. Returns whether everything ended by itself in time.

        The rest is killed. Then the caller should exit the process at once, because threads that waited for
        something may start it again.
        """
        self._closing.set()
        closer = threading.Thread(target=self._close_gently, name="demo-close", daemon=True)
        closer.start()
        # A Spark that is still starting cannot be stopped.
        starting = "spark" in self._steps and not self._spark_ready.is_set()
        closer.join(0.2 if starting else patience_s)
        gently = not closer.is_alive() and not starting
        self.kill_children()
        for _ in range(_REMOVALS):
            # A thread that has not ended may be creating a file right now.
            shutil.rmtree(self.work, ignore_errors=True)
            if not self.work.exists():
                break
            time.sleep(_REMOVAL_PAUSE_S)
        return gently

    def kill_children(self) -> None:
        """Kill what this process has started, except a broker in mid-start, which dies with this process.

        Its supervisor then removes its data, which this process could not find.
        """
        children = psutil.Process().children()
        doomed = []
        for child in children:
            try:
                if "millstream-supervisor" not in child.cmdline():
                    doomed += [*child.children(recursive=True), child]
            except psutil.NoSuchProcess:
                continue
        for process in doomed:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(doomed, timeout=0.5)

    def _close_gently(self) -> None:
        if self._lines is not None:
            self._lines.close()
        if self._streams is not None:
            self._streams.close(timedelta(seconds=30))
        if self._session is not None:
            self._session.close()
        if self._broker is not None:
            self._broker.close()

    # --- the parts of the work, each on its thread -------------------------------------------------------

    def _start_spark(self) -> None:
        self._begin("spark", "Spark is starting")
        config = self._config("127.0.0.1:1")
        # The client joins this session, which is created here so that it can start before there is a broker.
        session = self._machine.start_spark(config)
        self._session = session
        self._end("spark", f"Spark {session.spark.version} is up")
        self._spark_ready.set()

    def _start_kafka(self) -> None:
        self._begin("kafka", "Kafka is starting")
        broker = EmbeddedKafka(progress=False).start()
        self._broker = broker
        if self._closing.is_set():
            broker.close()
            return
        broker.create_topic(LINES, PARTITIONS)
        broker.create_topic(WORD_COUNTS, PARTITIONS)
        self._end("kafka", f"Kafka is up at {broker.bootstrap_servers}")
        config = self._config(broker.bootstrap_servers)
        self._in_thread("demo-producer", self._produce)
        # Lines are read from disk and sent while Spark starts; the client waits for Spark in its threads.
        self._begin("client", "the client is starting")
        streams = KafkaStreams(word_count(), config)
        self._streams = streams
        streams.start()
        self._in_thread("demo-monitor", lambda: self._monitor(streams))
        streams.wait_until_running()
        self._end("client", f"the client is {State.RUNNING}")

    def _produce(self) -> None:
        self._begin("lines", "lines are being sent")
        lines = self._lines = Lines(self.bootstrap_servers)
        sent = 0
        for line in self.corpus.lines():
            lines.send(line.encode())
            sent += 1
            self._sent = sent
        lines.flush()
        offsets = Offsets(self.bootstrap_servers)
        try:
            self._ends = offsets.ends({TopicPartition(LINES, number) for number in range(PARTITIONS)})
        finally:
            offsets.close()
        self._end("lines", f"{sent:,} lines are in Kafka")

    def _monitor(self, streams: KafkaStreams) -> None:
        offsets = Offsets(self.bootstrap_servers)
        next_scan = 0.0
        moved_at, moved = time.monotonic(), (-1, -1)
        began: float | None = None
        try:
            while not self._closing.is_set():
                self._raise_if_dead(streams)
                now = time.monotonic()
                threads = streams.metadata_for_local_threads()
                progress = self._progress(threads)
                if began is None and streams.state is State.RUNNING:
                    began = now
                    self._begin("counting", "counting")
                counts = self._found.counts
                if began is not None and progress.counted and now >= next_scan:
                    counts = self._scan(counts)
                    next_scan = time.monotonic() + max(_SCAN_S, _SCAN_SHARE * (time.monotonic() - now))
                with self._lock:
                    self._found = _Found(streams.state.name, threads, progress, counts)
                if began is not None and self._is_complete(threads, offsets):
                    break
                if (progress.counted, progress.store_lag + self._sent) != moved:
                    moved_at, moved = now, (progress.counted, progress.store_lag + self._sent)
                elif now - moved_at > STALL_S:
                    raise TimeoutException(
                        f"nothing has moved for {STALL_S:.0f} s: {progress.counted:,} of "
                        f"{progress.lines:,} lines are counted, the store is {progress.store_lag:,} records "
                        f"behind, client '{streams.client_id}' is {streams.state}; see the logs"
                    )
                self._closing.wait(_LOOK_S)
        finally:
            offsets.close()
        if self._closing.is_set():
            return
        self._end("counting", f"{self._found.progress.counted:,} lines are counted, the store is up to date")
        self._compare()
        self.ended.set()

    def _progress(self, threads: tuple[ThreadMetadata, ...]) -> Progress:
        pipelines = [pipeline for thread in threads for pipeline in thread.pipelines]
        store_lag = sum(
            max(0, task.end_offsets[at] - offset)
            for thread in threads
            for task in thread.active_tasks
            for at, offset in task.committed_offsets.items()
        )
        ends = self._ends
        return Progress(
            counted=sum(
                offset
                for pipeline in pipelines
                for at, offset in pipeline.position.items()
                if at.topic == LINES
            ),
            lines=self._sent if ends is None else sum(ends.values()),
            complete=ends is not None,
            per_second=sum(pipeline.records_per_second for pipeline in pipelines),
            store_lag=store_lag,
        )

    def _is_complete(self, threads: tuple[ThreadMetadata, ...], offsets: Offsets) -> bool:
        """Whether all lines are split, their words counted, and all counts in the store."""
        if self._ends is None:
            return False
        finished = {
            at: offset
            for thread in threads
            for pipeline in thread.pipelines
            for at, offset in (pipeline.finished or {}).items()
        }
        if any(finished.get(at, 0) < end for at, end in self._ends.items()):
            return False
        # By now all words are in the topic between the subtopologies, whose last record is the end of a
        # transaction; and once they are counted, all counts are in the changelog.
        words = {at for at in finished if at.topic != LINES}
        if not words or any(finished[at] < end - 1 for at, end in offsets.ends(words).items()):
            return False
        stored = {
            at: offset
            for thread in threads
            for task in thread.active_tasks
            for at, offset in task.committed_offsets.items()
        }
        changelog = {at for thread in threads for task in thread.active_tasks for at in task.topic_partitions}
        ends = offsets.ends(changelog)
        return bool(changelog) and all(stored.get(at, 0) >= end for at, end in ends.items())

    def _scan(self, before: Counts) -> Counts:
        """The top words, by interactive query; the previous result if the store cannot be read right now."""
        words = distinct = 0

        def entries() -> Iterator[tuple[str, int]]:
            nonlocal words, distinct
            with self.store().all() as found:
                for word, count in found:
                    words += count
                    distinct += 1
                    yield word, count

        try:
            top = heapq.nlargest(TOP, entries(), key=itemgetter(1))
        except InvalidStateStoreException as error:
            if not error.retriable:
                raise
            return before
        return Counts(tuple(top), words, distinct)

    def _compare(self) -> None:
        """Compare every single count with that of plain Python, which reads the files themselves."""
        self._begin("check", "counting once more, in plain Python")
        with self.store().all() as entries:
            stored: dict[str, int] = dict(entries)
        expected = count_words(self.corpus.blocks())
        differing = [
            (word, stored.get(word, 0), expected.get(word, 0))
            for word in stored.keys() | expected.keys()
            if stored.get(word, 0) != expected.get(word, 0)
        ]
        differing.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
        top = heapq.nsmallest(TOP, stored.items(), key=lambda item: (-item[1], item[0]))
        counts = Counts(tuple(top), sum(stored.values()), len(stored))
        changed = tuple(self.corpus.changed()) if differing else ()
        self.check = Check(counts, tuple(differing), changed)
        with self._lock:
            self._found.counts = counts
        text = "differ from" if differing else "equal"
        self._end("check", f"all {len(stored):,} counts {text} those of plain Python")

    # --- small things ------------------------------------------------------------------------------------

    def _config(self, servers: str) -> StreamsConfig:
        return StreamsConfig(
            {
                "application.id": "millstream-demo",
                "client.id": "demo",
                "bootstrap.servers": servers,
                "state.dir": self.work / "state",
                "num.stream.threads": THREADS,
                # So that everything that Spark and Java write is removed with the rest.
                "spark.local.dir": str(self.work / "spark"),
                "spark.driver.extraJavaOptions": f'{_JAVA_OPTIONS} -Djava.io.tmpdir="{self.work / "java"}"',
            }
        )

    def _client(self) -> KafkaStreams:
        assert self._streams is not None
        return self._streams

    def _raise_if_dead(self, streams: KafkaStreams) -> None:
        if streams.state in (State.PENDING_ERROR, State.ERROR):
            streams.wait(timedelta(seconds=10))
        if self._broker is not None and not self._broker.is_running and not self._closing.is_set():
            raise BrokerException(self._broker.how_it_ended())

    def _begin(self, name: str, text: str) -> None:
        with self._lock:
            self._steps[name] = Step(name, text, time.monotonic())

    def _end(self, name: str, text: str) -> None:
        with self._lock:
            self._steps[name] = replace(self._steps[name], text=text, ended=time.monotonic())

    def _in_thread(self, name: str, work: Callable[[], None]) -> None:
        threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True).start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            # The boundary of a thread: `failure` keeps the first one. Errors caused by closing are not
            # failures.
            if not self._closing.is_set():
                with self._lock:
                    self.failure = self.failure or error
                self.ended.set()
