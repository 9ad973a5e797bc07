"""A pipeline's streaming query: started, watched by a thread that waits for its end, and stopped."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from millstream.errors import PipelineException
from millstream.foreign import ESCAPED
from millstream.model import OpeningTasks, PipelineMetadata, TopicPartition
from millstream.ports import PipelineEnd
from millstream.spark.jvm.session import how_jvm_ended
from millstream.spark.run.dropped import DropWatch, wait_and_watch
from millstream.spark.run.ending import of_ended_jvm, raise_failure
from millstream.spark.run.failures import is_jvm_lost, report_of, translate
from millstream.spark.run.progress import positions
from millstream.spark.run.task_run import TaskProgress, TaskRun

__all__ = ["QueryPipeline"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_READER_SECONDS = 0.5
_STOP_SECONDS = 5.0
"""How long stopping waits for the query to end; it takes 10 to 30 ms."""
_SETTLE_SECONDS = 10.0
"""How long stopping waits for tasks to commit, after which nothing is repeated."""
_RATE_SECONDS = 1.0


class QueryPipeline:
    """A running query. Its end, wanted or not, is reported once, on the thread that waits for it."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        query: StreamingQuery,
        on_end: Callable[[PipelineEnd], None],
        drops: DropWatch,
        lost_executors: Callable[[], tuple[str, ...]] = tuple,
        run: TaskRun | None = None,
        make_room: Callable[[int], None] = lambda tasks: None,
    ) -> None:
        self._name = name
        self._topics = topics
        self._query = query
        self._on_end = on_end
        self._drops = drops
        self._lost_executors = lost_executors
        self._stopping = False
        self._run = run
        self._make_room = make_room
        self._stop_seconds = _STOP_SECONDS + (0.0 if run is None else _SETTLE_SECONDS)
        self._finishing = threading.Lock()
        self._answered_at = time.monotonic()
        self._gateway = SparkContext._gateway
        self._first: int | None = None
        self._counted = time.monotonic(), 0
        """When records were counted last, and how many there were."""
        self._last = PipelineMetadata(name, True)
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait, name=f"pipeline-{name}-waiter", daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        error: BaseException | None = None
        try:
            reports = None if self._run is None else self._run.reports
            error = wait_and_watch(self._query, self._drops, self._note_answer, reports)
            if error is None:
                raise_failure(self._query)
        except Exception as raised:
            # Whatever ended the query is translated and passed to the thread that owns it.
            error = None if self._stopping else self._translated(of_ended_jvm(raised))
        else:
            if error is None and not self._stopping:
                error = self._translated(RuntimeError("the query was stopped from outside"))
        self._finish(error)

    def _note_answer(self) -> None:
        self._answered_at = time.monotonic()

    @property
    def silent_s(self) -> float:
        """How long Spark has not answered this pipeline, which asks twice a second; 0.0 once it has ended."""
        return 0.0 if self._ended.is_set() else time.monotonic() - self._answered_at

    def give_up(self, reason: str) -> None:
        """Count as failed, because Spark does not answer; what it may answer later is ignored."""
        self._finish(self._translated(Py4JNetworkError("no answer"), how=reason))

    def _translated(self, raised: BaseException, how: str | None = None) -> BaseException:
        try:
            report = report_of(self._query, raised)
            if is_jvm_lost(raised):
                report = replace(report, jvm=how_jvm_ended(self._gateway) if how is None else how)
            elif self._run is not None:
                start, end = self._run.unfinished()
                report = replace(report, start=start, end=end)
            return translate(self._name, self._topics, raised, report=report)
        except Exception as error:  # our own mistake must not hide that the query has ended
            log.exception("pipeline %s: its failure could not be translated", self._name)
            failed = PipelineException(
                f"pipeline {self._name}: its query failed with {type(raised).__name__}, which Millstream "
                f"could not translate ({error!r}); please report it",
                pipeline=self._name,
            )
            failed.__cause__ = raised
            return failed

    def _finish(self, error: BaseException | None) -> None:
        with self._finishing:
            if self._ended.is_set():
                return
            self._ended.set()
        self._on_end(PipelineEnd(self._name, error))

    def stop(self) -> None:
        """Stop the query, in bounded time even if the JVM is gone or does not answer.

        In that case the query counts as ended: on_end is called, and what the JVM reports later is ignored.
        """
        self._stopping = True
        if self._ended.is_set():
            return
        deadline = time.monotonic() + self._stop_seconds
        # On a thread of its own: a call into a hanging JVM does not return.
        threading.Thread(target=self._ask_to_stop, name=f"pipeline-{self._name}-stop", daemon=True).start()
        if not self._ended.wait(max(0.0, deadline - time.monotonic())):
            log.warning(
                "pipeline %s: Spark has not stopped its query in %g s; continuing without it",
                self._name,
                self._stop_seconds,
            )
            self._finish(None)

    def _ask_to_stop(self) -> None:
        try:
            if self._run is not None and not self._run.end(_SETTLE_SECONDS):
                log.info("pipeline %s: what is not committed will be repeated", self._name)
            self._query.stop()
        except Exception:  # the JVM may be gone already, and the query with it
            log.debug("pipeline %s: stop", self._name, exc_info=True)

    def assign(self, partitions: Collection[int]) -> bool:
        if self._run is None or self._ended.is_set():
            return True
        self._make_room(len(partitions))
        run, answers = self._run, queue.SimpleQueue[bool]()

        def ask() -> None:
            try:
                answers.put(run.assign(partitions, _SETTLE_SECONDS))
            except Exception:  # the JVM may be gone
                log.debug("pipeline %s: partitions", self._name, exc_info=True)
                answers.put(False)

        # On a thread of its own: a call into a hanging JVM does not return.
        threading.Thread(target=ask, name=f"pipeline-{self._name}-assign", daemon=True).start()
        try:
            done = answers.get(timeout=self._stop_seconds)
        except queue.Empty:
            done = False
        return done or self._ended.is_set()  # its failure is on its way to the thread that owns it

    def wait_until_ready(self, timeout_s: float) -> None:
        """Wait until it could run partitions at once, or has ended: first Spark plans its batch."""
        deadline = time.monotonic() + timeout_s
        while self._run is not None and not self._ended.is_set() and time.monotonic() < deadline:
            if self._run.wait_for_reader(_READER_SECONDS):
                return

    def finish(self) -> None:
        """Have its tasks commit; a batch of `to_spark()` ends soon anyway."""
        try:
            if self._run is not None and not self._ended.is_set():
                self._run.turn()
        except Exception:  # the JVM may be gone
            log.debug("pipeline %s: a commit", self._name, exc_info=True)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    def metadata(self) -> PipelineMetadata:
        if not self._ended.is_set():
            try:
                # The raw JSON: PySpark's own parsing of it has raised KeyError in a query's first moments.
                progress = self._query._jsq.lastProgress()
                if progress is not None:
                    self._last = self._parsed(_json(progress))
                if self._run is not None:
                    self._last = _with_read(self._last, self._run.progress())
                    # A batch may last an hour, and reports nothing until its end.
                    lost = self._lost_executors()
                    rate = self._rate(time.monotonic(), self._last.records)
                    self._last = replace(
                        self._last, records_per_second=rate, dropped=self._dropped, lost_executors=lost
                    )
            except Exception:
                log.debug("pipeline %s: progress", self._name, exc_info=True)
        elif self._last.running:
            self._last = replace(
                self._last,
                running=False,
                opening=None,
                records_per_second=0.0,
                batch_ms=0,
                dropped=self._dropped,
            )
        return self._last

    def _parsed(self, progress: dict[str, Any]) -> PipelineMetadata:
        position: dict[TopicPartition, int] = {}
        latest: dict[TopicPartition, int] = {}
        for source in progress.get("sources", ()):
            position |= {
                TopicPartition(*at): offset
                for at, offset in positions(_text(source.get("endOffset"))).items()
            }
            latest |= {
                TopicPartition(*at): offset
                for at, offset in positions(_text(source.get("latestOffset"))).items()
            }
        total = sum(position.values())
        rows = int(progress.get("numInputRows") or 0)
        if self._first is None:
            self._first = total - rows
        return PipelineMetadata(
            name=self._name,
            running=True,
            records=max(0, total - self._first),
            records_per_second=float(progress.get("processedRowsPerSecond") or 0.0),
            batch_id=int(progress.get("batchId", -1)),
            batch_ms=int(progress.get("batchDuration") or 0),
            position=position,
            lag={at: max(0, offset - position.get(at, 0)) for at, offset in latest.items()} or None,
            dropped=self._dropped,
            lost_executors=self._lost_executors(),
        )

    def _rate(self, now: float, records: int) -> float:
        """How many records a second its tasks have read lately."""
        since, before = self._counted
        if now - since < _RATE_SECONDS:
            return self._last.records_per_second
        self._counted = now, records
        return max(0, records - before) / (now - since)

    @property
    def _dropped(self) -> int:
        return self._drops.total


def _with_read(reported: PipelineMetadata, made: TaskProgress) -> PipelineMetadata:
    """With what its tasks have read and committed; Spark reports nothing before its batch has ended."""
    finished = dict(made.committed)
    position = {at: max(offset, finished.get(at, 0)) for at, offset in {**finished, **made.read}.items()}
    lag = {at: max(0, end - position.get(at, 0)) for at, end in made.ends.items()} if made.ends else None
    records = max(reported.records, made.records)
    opening = OpeningTasks(made.opening, made.left) if made.opening else None
    return replace(reported, position=position, finished=finished, records=records, lag=lag, opening=opening)


def _json(progress: Any) -> dict[str, Any]:
    import json

    parsed: dict[str, Any] = json.loads(progress.json())
    return parsed


def _text(offset: Any) -> str | None:
    """An offset in a progress report: JSON text, or the parsed object."""
    import json

    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)
