"""A pipeline's streaming query: started, watched by a thread that waits for its end, and stopped."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql.streaming.query import StreamingQuery

from millstream.errors import PipelineException
from millstream.foreign import ESCAPED
from millstream.model import FirstBatch, PipelineMetadata, TopicPartition
from millstream.ports import CheckpointClaim, CheckpointFiles, PipelineEnd
from millstream.spark.jvm.session import how_jvm_ended
from millstream.spark.run.backlog import Backlog
from millstream.spark.run.damage import find_damage
from millstream.spark.run.dropped import DropWatch, wait_and_watch
from millstream.spark.run.ending import of_ended_jvm, raise_failure
from millstream.spark.run.failures import Report, is_jvm_lost, report_of, translate
from millstream.spark.run.progress import positions
from millstream.spark.run.real_time_batches import RealTimeRun
from millstream.spark.run.task_run import TaskRun
from millstream.spark.run.unfinished import unfinished

__all__ = ["IdlePipeline", "QueryPipeline"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_STOP_SECONDS = 5.0
"""How long stopping waits for the query to end; it takes 10 to 30 ms."""
_SETTLE_SECONDS = 10.0
"""How long stopping waits for a batch in Real-Time Mode to be committed, after which nothing is repeated."""


class QueryPipeline:
    """A running query. Its end, wanted or not, is reported once, on the thread that waits for it."""

    def __init__(
        self,
        name: str,
        topics: tuple[str, ...],
        query: StreamingQuery,
        on_end: Callable[[PipelineEnd], None],
        claim: CheckpointClaim,
        files: Callable[[], CheckpointFiles],
        drops: DropWatch,
        lost_executors: Callable[[], tuple[str, ...]] = tuple,
        run: RealTimeRun | TaskRun | None = None,
        backlog: Backlog | None = None,
    ) -> None:
        self._name = name
        self._claim = claim
        self._files = files
        self._topics = topics
        self._query = query
        self._on_end = on_end
        self._drops = drops
        self._lost_executors = lost_executors
        self._stopping = False
        self._run = run
        self._backlog = backlog
        self._began = time.monotonic()
        self._stop_seconds = _STOP_SECONDS + (0.0 if run is None else _SETTLE_SECONDS)
        self._finishing = threading.Lock()
        self._answered_at = time.monotonic()
        self._gateway = SparkContext._gateway
        self._first: int | None = None
        self._last = PipelineMetadata(name, True, first_batch=FirstBatch(0.0))
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait, name=f"pipeline-{name}-waiter", daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        error: BaseException | None = None
        try:
            reports = self._run.reports if isinstance(self._run, TaskRun) else None
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
            report = report_of(self._query, raised, self._initial, lambda: find_damage(self._files()))
            if isinstance(self._run, TaskRun) and not is_jvm_lost(raised):
                start, end = self._run.unfinished()
                report = replace(report, start=start, end=end)
            if is_jvm_lost(raised):
                report = self._of_lost_jvm(report, how_jvm_ended(self._gateway) if how is None else how)
            return translate(self._name, self._topics, raised, claim=self._claim, report=report)
        except Exception as error:  # our own mistake must not hide that the query has ended
            log.exception("pipeline %s: its failure could not be translated", self._name)
            failed = PipelineException(
                f"pipeline {self._name}: its query failed with {type(raised).__name__}, which Millstream "
                f"could not translate ({error!r}); please report it",
                pipeline=self._name,
            )
            failed.__cause__ = raised
            return failed

    def _of_lost_jvm(self, report: Report, how: str) -> Report:
        report = replace(report, jvm=how)
        left = unfinished(self._claim.path)
        if left is None:
            return report
        return replace(report, start=left.start, end=left.end, batch_id=left.batch)

    def _initial(self) -> str:
        """The offsets that the query started from when its checkpoint was new, as stored by Spark."""
        files = self._files()
        content = [
            (files.read(f"sources/{source}/0") or b"").decode(errors="replace")
            for source in files.list("sources")
        ]
        return "\n".join(content)

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
                "pipeline %s: Spark has not stopped its query in %g s; continuing without it. If it still "
                "runs, the next claim of its checkpoint ends it",
                self._name,
                self._stop_seconds,
            )
            self._finish(None)

    def _ask_to_stop(self) -> None:
        try:
            if self._run is not None and not self._run.end(_SETTLE_SECONDS):
                log.info("pipeline %s: its batch is not committed and will be repeated", self._name)
            self._query.stop()
        except Exception:  # the JVM may be gone already, and the query with it
            log.debug("pipeline %s: stop", self._name, exc_info=True)

    def finish(self) -> None:
        """End the batch in Real-Time Mode; a micro-batch ends soon anyway."""
        try:
            if self._run is not None and not self._ended.is_set():
                self._run.turn()
        except Exception:  # the JVM may be gone
            log.debug("pipeline %s: the end of a batch", self._name, exc_info=True)

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
                elif self._last.first_batch is not None:
                    self._last = replace(self._last, first_batch=self._first_batch())
                if self._run is not None:
                    ends = self._run.ends() if isinstance(self._run, TaskRun) else None
                    self._last = _with_read(self._last, self._run.read(), self._run.records(), ends)
                    # A batch may last an hour, and reports nothing until its end.
                    lost = self._lost_executors()
                    self._last = replace(self._last, dropped=self._dropped, lost_executors=lost)
            except Exception:
                log.debug("pipeline %s: progress", self._name, exc_info=True)
        elif self._last.running:
            self._last = replace(
                self._last,
                running=False,
                records_per_second=0.0,
                batch_ms=0,
                dropped=self._dropped,
                first_batch=None,
            )
        return self._last

    def _first_batch(self) -> FirstBatch | None:
        """What the query has not ended yet, as long as it has not reported anything."""
        if self._run is not None and self._run.read():
            return None  # in Real-Time Mode records are processed within a batch
        unread = -1 if self._backlog is None else self._backlog.unfinished()
        if unread is None:
            return None
        return FirstBatch(time.monotonic() - self._began, unread if unread >= 0 else None)

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

    @property
    def _dropped(self) -> int:
        return self._drops.total


def _with_read(
    reported: PipelineMetadata,
    read: Mapping[TopicPartition, int],
    records: int,
    ends: Mapping[TopicPartition, int] | None,
) -> PipelineMetadata:
    """The facts of a progress report, sent at the end of a batch; includes what was read since then."""
    finished = reported.position if reported.finished is None else reported.finished
    position = {at: max(offset, finished.get(at, 0)) for at, offset in {**finished, **read}.items()}
    records = max(reported.records, records)
    lag = None
    if ends:
        lag = {at: max(0, end - position.get(at, 0)) for at, end in ends.items()}
    return replace(reported, position=position, finished=finished, records=records, lag=lag)


class IdlePipeline:
    """A pipeline whose tables are views of their source topics, so Spark has nothing to do."""

    def __init__(self, name: str, on_end: Callable[[PipelineEnd], None]) -> None:
        self._name = name
        self._on_end = on_end
        self._running = True

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._on_end(PipelineEnd(self._name))

    def finish(self) -> None:
        """Does nothing: there is nothing to finish."""

    def metadata(self) -> PipelineMetadata:
        return PipelineMetadata(self._name, self._running, lag={})


def _json(progress: Any) -> dict[str, Any]:
    import json

    parsed: dict[str, Any] = json.loads(progress.json())
    return parsed


def _text(offset: Any) -> str | None:
    """An offset in a progress report: JSON text, or the parsed object."""
    import json

    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)
