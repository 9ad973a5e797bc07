"""Records that are dropped: by record-level handlers, or because they are late, or lack a time, key or value.

Spark counts them, progress reports contain the counts, and each batch is judged by them.

The plan counts them with `DataFrame.observe` (flow.py), one number for each place that drops records; the
numbers arrive in the progress report of each batch. Tasks count them in their sink, and report them in
the same form (Figures.java). Nothing here sees a record.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql.streaming.query import StreamingQuery

from millstream.errors import PipelineException
from millstream.foreign import ESCAPED
from millstream.model import BatchReport
from millstream.spark.run.ending import wait_for_end
from millstream.spark.run.progress import new_reports, offsets_in, read_report, records_read, sink_metrics

__all__ = [
    "LATE",
    "METRICS",
    "PAST",
    "SKIPPED",
    "UNTIMED",
    "BatchDrops",
    "DropWatch",
    "exceeds",
    "metric",
    "read_drops",
    "wait_and_watch",
]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

METRICS = "millstream.dropped."
"""The prefix of our observed metrics."""

_WINDOW_BATCHES = 20
_LEAST_RECORDS = 100
"""A share needs at least this many records: one bad record of one is not a hundred percent."""
_LOG_SECONDS = 10.0
_PARTITIONS_SHOWN = 10
_LOOK_SECONDS = 0.5
_IN, _LATEST = "in", "latest"
LATE = "late"
"""The kind of records that came too late for a window. No handler is called, and no threshold counts them."""
UNTIMED = "timestamp"
"""The kind of records without a time from the timestamp extractor; otherwise as LATE."""

SKIPPED = "null"
"""The kind of records without a key, or without a value where those are passed over; otherwise as LATE."""

PAST = "past"
"""The kind of changes that are older than a table's row, where they are passed over; otherwise as LATE."""

_NOT_FAILED = (LATE, UNTIMED, SKIPPED, PAST)
_WHY = {
    UNTIMED: "some were dropped for a negative timestamp",
    SKIPPED: "some were dropped for a null key or value",
    PAST: "some were dropped for a later version of their rows",
}


def metric(number: int, kind: str, node: str, *, where: bool = False, latest: bool = False) -> str:
    """The name of one observed number: how many records this node dropped. `where`: of which partitions;
    `latest`: the last one that was late, see `LateRecord`."""
    return f"{number}:{kind}:{node}" + (f":{_IN}" if where else f":{_LATEST}" if latest else "")


class LateRecord(NamedTuple):
    """A record that was too late: at this stream time, for this window, with this timestamp; all in ms."""

    stream_time: int
    start: int
    end: int
    timestamp: int


@dataclass(frozen=True)
class BatchDrops:
    """What one batch dropped.

    Attributes:
        records: how many it read.
        drops: how many were dropped, by kind of handler and node.
        partitions: which source partitions they came from.
        latest: by node, of what was late there the record of the largest stream time.
        examples: sentences about records that Kafka has refused.
    """

    batch_id: int
    records: int
    drops: Mapping[tuple[str, str], int] = field(default_factory=dict)
    partitions: frozenset[str] = frozenset()
    latest: Mapping[str, LateRecord] = field(default_factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def dropped(self) -> int:
        return sum(self.drops.values())

    @property
    def failed(self) -> int:
        """How many of them a handler decided about."""
        return sum(count for (kind, _), count in self.drops.items() if kind not in _NOT_FAILED)


def read_drops(progress: Mapping[str, Any]) -> BatchDrops:
    """The numbers of one progress report."""
    drops: Counter[tuple[str, str]] = Counter()
    partitions: set[str] = set()
    latest: dict[str, LateRecord] = {}
    for name, row in (progress.get("observedMetrics") or {}).items():
        if not name.startswith(METRICS):
            continue
        for label, value in row.items():
            _, kind, node, *rest = label.split(":", 3)
            if rest == [_LATEST]:
                if value:
                    latest[node] = LateRecord(*map(int, value))
            elif rest:
                partitions.update(value or ())
            elif value:
                drops[kind, node] += int(value)
    batch = int(progress.get("batchId", -1))
    refused, examples = _refused(progress)
    drops.update(refused)
    return BatchDrops(batch, _records(progress), drops, frozenset(partitions), latest, examples)


def _refused(progress: Mapping[str, Any]) -> tuple[Mapping[tuple[str, str], int], tuple[str, ...]]:
    """What Kafka refused of a batch, as the kernel's sink reports it (Dropped.java), with sentences about
    it."""
    counts: dict[tuple[str, str], int] = {}
    examples = []
    for name, value in sorted(sink_metrics(progress).items()):
        what, _, place = name.partition(":")
        if what == "dropped":
            topic, _, reason = place.rpartition(":")
            counts["production", f"topic '{topic}' ({reason})"] = int(value)
        elif what == "example":
            examples.append(str(value))
    return counts, tuple(examples)


def _records(progress: Mapping[str, Any]) -> int:
    """Counted by offsets if the source has them: a source read for two outputs reports its rows twice."""
    total = 0
    for source in progress.get("sources") or ():
        start, end = offsets_in(source, "startOffset"), offsets_in(source, "endOffset")
        if not start or not end:
            return int(progress.get("numInputRows") or 0)
        total += sum(records_read(start, end).values())
    return total


def exceeds(batches: Collection[BatchDrops], max_ratio: float) -> bool:
    """Whether a larger share of these batches' records was dropped than may be."""
    records = sum(batch.records for batch in batches)
    dropped = sum(batch.failed for batch in batches)
    # One record that fails in two branches is dropped twice.
    return records >= _LEAST_RECORDS and min(dropped, records) > max_ratio * records


class DropWatch:
    """What one running query has dropped. Used by one thread; any thread may read `total`.

    `report` is called with each of the query's reports, whether or not anything was dropped.
    """

    def __init__(
        self,
        pipeline: str,
        max_ratio: float = 1.0,
        dead_letter_topic: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        own: Collection[str] = (),
        report: Callable[[BatchReport], None] = lambda report: None,
    ) -> None:
        self._report = report
        self.total = 0
        self.by_node: Counter[str] = Counter()
        """The total, by the name of the node that dropped them."""
        self.seen: tuple[int, str] | None = None
        """Batch and time of the last report that was processed."""
        self._pipeline = pipeline
        self._max_ratio = max_ratio
        self._topic = dead_letter_topic
        self._own = sorted(own)
        self._clock = clock
        self._recent: deque[BatchDrops] = deque(maxlen=_WINDOW_BATCHES)
        self._unlogged: list[BatchDrops] = []
        self._logged_at: float | None = None

    def look(self, reports: Iterable[Mapping[str, Any]]) -> PipelineException | None:
        """Process new progress reports, oldest first.

        Returns:
            What the pipeline has to end with if more was dropped than `errors.continue.max.ratio` allows.
        """
        for report in reports:
            batch = read_drops(report)
            self.seen = batch.batch_id, str(report.get("timestamp"))
            self._hand_on(report, batch)
            if not batch.records and not batch.dropped:
                continue
            self._recent.append(batch)
            if batch.dropped:
                self.total += batch.dropped
                for (_, node), count in batch.drops.items():
                    self.by_node[node] += count
                self._unlogged.append(batch)
                if exceeds(self._recent, self._max_ratio):
                    self.flush()
                    return self._too_many()
        if self._logged_at is None or self._clock() - self._logged_at >= _LOG_SECONDS:
            self.flush()
        return None

    def _hand_on(self, report: Mapping[str, Any], batch: BatchDrops) -> None:
        try:
            batch_report = read_report(self._pipeline, report, batch.drops)
            self._report(batch_report)
        except Exception:  # figures are only for display; their failure must not affect the query
            log.warning("pipeline %s: the metrics lack a progress report", self._pipeline, exc_info=True)

    def flush(self) -> None:
        """Log what has not been logged yet."""
        if not self._unlogged:
            return
        records = sum(batch.records for batch in self._unlogged)
        batches = _counted(len(self._unlogged), "batch", "batches")
        dropped, what, where = _summary(self._unlogged)
        for example in dict.fromkeys(each for batch in self._unlogged for each in batch.examples):
            log.warning("pipeline %s: dropped a record: %s", self._pipeline, example)
        if dropped:
            log.warning(
                "pipeline %s: dropped %s in %s of %s (%s), from %s; %s",
                self._pipeline,
                _counted(dropped, "record"),
                batches,
                _counted(records, "record"),
                what,
                where,
                self._see(),
            )
        too_late = _late(self._unlogged)
        if too_late:
            log.warning(
                "pipeline %s: in %s of %s some came too late for their windows: %s",
                self._pipeline,
                batches,
                _counted(records, "record"),
                too_late,
            )
        for kind, why in _WHY.items():
            counts = _counts(self._unlogged, kind)
            if counts:
                log.warning(
                    "pipeline %s: in %s of %s %s: %s",
                    self._pipeline,
                    batches,
                    _counted(records, "record"),
                    why,
                    ", ".join(f"{count} in {node}" for node, count in sorted(counts.items())),
                )
        self._unlogged.clear()
        self._logged_at = self._clock()

    def _too_many(self) -> PipelineException:
        dropped, what, where = _summary(self._recent)
        records = sum(batch.records for batch in self._recent)
        return PipelineException(
            f"pipeline {self._pipeline}: {dropped} of the last {records} records were dropped ({what}), from "
            f"{where}. That is more than errors.continue.max.ratio={self._max_ratio:g} allows, so the "
            f"pipeline ends although its handlers say 'continue'; {self._see()}",
            pipeline=self._pipeline,
            error_class="TOO_MANY_RECORDS_DROPPED",
            batch_id=self._recent[-1].batch_id,
        )

    def _see(self) -> str:
        if self._own:
            return f"the program's own handlers were called for those of {', '.join(self._own)}"
        if self._topic is not None:
            return f"they are in the dead letter queue '{self._topic}'"
        return "with errors.dead.letter.queue.topic.name set they would be in a topic"


def wait_and_watch(
    query: StreamingQuery,
    watch: DropWatch,
    answered: Callable[[], None] = lambda: None,
    reports: Callable[[tuple[int, str] | None], Iterable[Mapping[str, Any]]] | None = None,
) -> PipelineException | None:
    """Wait until a query has ended, and watch what it drops meanwhile; `answered` is called after each answer
    of the JVM.

    Args:
        reports: returns the reports after the one seen; None: Spark's own.

    Returns:
        None, or, when too much was dropped, why it was stopped.

    Raises:
        Exception: what `wait_for_end` raises.
    """
    news = reports or partial(new_reports, query)
    try:
        while not wait_for_end(query, _LOOK_SECONDS):
            answered()
            error = watch.look(news(watch.seen))
            if error is not None:
                query.stop()
                return error
        return None
    finally:
        try:
            watch.look(news(watch.seen))
        except Exception:  # the JVM may be gone, and the last numbers with it
            log.debug("the last numbers of a query", exc_info=True)
        watch.flush()


def _counted(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _summary(batches: Collection[BatchDrops]) -> tuple[int, str, str]:
    """How many records failed, at which handlers and nodes, and where they came from, in words."""
    drops: Counter[tuple[str, str]] = Counter()
    partitions: set[str] = set()
    for batch in batches:
        drops.update({place: count for place, count in batch.drops.items() if place[0] not in _NOT_FAILED})
        partitions |= batch.partitions
    what = ", ".join(f"{kind} in {node}: {count}" for (kind, node), count in sorted(drops.items()))
    shown = sorted(partitions)
    more = f" and {len(shown) - _PARTITIONS_SHOWN} more" if len(shown) > _PARTITIONS_SHOWN else ""
    refused = any(batch.examples for batch in batches)
    nowhere = "what Kafka refused" if refused else "the results of an aggregation"
    where = ", ".join(shown[:_PARTITIONS_SHOWN]) + more if shown else nowhere
    return drops.total(), what, where


def _counts(batches: Iterable[BatchDrops], wanted: str) -> Counter[str]:
    """How many of a kind, by node."""
    counts: Counter[str] = Counter()
    for batch in batches:
        counts.update({node: count for (kind, node), count in batch.drops.items() if kind == wanted})
    return counts


def _late(batches: Collection[BatchDrops]) -> str:
    """How many records were late at which nodes, and the last one of each, in words; empty: none."""
    latest: dict[str, LateRecord] = {}
    for batch in batches:
        latest.update(batch.latest)
    sentences = []
    for node, count in sorted(_counts(batches, LATE).items()):
        text = f"{count} in {node}"
        if node in latest:
            last = latest[node]
            text += (
                f", such as one of {last.timestamp} for the window [{last.start},{last.end}] at stream time "
                f"{last.stream_time}"
            )
        sentences.append(text)
    return "; ".join(sentences)
