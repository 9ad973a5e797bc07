"""A pipeline's streaming query: started, watched by a thread that waits for its end, and stopped."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from millstream.model import PipelineMetadata, TopicPartition
from millstream.ports import PipelineEnd
from millstream.spark.failures import translate
from millstream.spark.source import positions

__all__ = ["IdlePipeline", "QueryPipeline"]

log = logging.getLogger(__name__)

_STOP_SECONDS = 10.0


class QueryPipeline:
    """A running query. Its end, wanted or not, is reported once, on the thread that waits for it."""

    def __init__(
        self, name: str, topics: tuple[str, ...], query: StreamingQuery, on_end: Callable[[PipelineEnd], None]
    ) -> None:
        self._name = name
        self._topics = topics
        self._query = query
        self._on_end = on_end
        self._stopping = False
        self._first: int | None = None
        self._last = PipelineMetadata(name, True)
        self._ended = threading.Event()
        self._waiter = threading.Thread(target=self._wait, name=f"pipeline-{name}-waiter", daemon=True)
        self._waiter.start()

    def _wait(self) -> None:
        error: BaseException | None = None
        try:
            self._query.awaitTermination()
        except (
            Exception
        ) as raised:  # whatever ended the query is translated, and reaches the thread that owns it
            error = None if self._stopping else translate(self._name, self._topics, raised)
            if error is not None:
                error.__cause__ = raised
        else:
            if not self._stopping:
                error = translate(
                    self._name, self._topics, RuntimeError("the query was stopped from outside")
                )
        self._ended.set()
        self._on_end(PipelineEnd(self._name, error))

    def stop(self) -> None:
        self._stopping = True
        try:
            self._query.stop()
        except Exception:  # the JVM may be gone already; the query then is too
            log.debug("pipeline %s: stop", self._name, exc_info=True)
        self._ended.wait(_STOP_SECONDS)

    def metadata(self) -> PipelineMetadata:
        if not self._ended.is_set():
            try:
                # The raw JSON: PySpark's own parsing of it has raised KeyError on a query's first moments.
                progress = self._query._jsq.lastProgress()
                if progress is not None:
                    self._last = self._parsed(_json(progress))
            except Exception:
                log.debug("pipeline %s: progress", self._name, exc_info=True)
        elif self._last.running:
            self._last = PipelineMetadata(
                self._name,
                False,
                self._last.records,
                0.0,
                self._last.batch_id,
                0,
                self._last.position,
                self._last.lag,
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
        )


class IdlePipeline:
    """A pipeline whose tables are views of their source topics: Spark has nothing to do for it."""

    def __init__(self, name: str, on_end: Callable[[PipelineEnd], None]) -> None:
        self._name = name
        self._on_end = on_end
        self._running = True

    def stop(self) -> None:
        if self._running:
            self._running = False
            self._on_end(PipelineEnd(self._name))

    def metadata(self) -> PipelineMetadata:
        return PipelineMetadata(self._name, self._running, lag={})


def _json(progress: Any) -> dict[str, Any]:
    import json

    parsed: dict[str, Any] = json.loads(progress.json())
    return parsed


def _text(offset: Any) -> str | None:
    """An offset in a progress report: JSON text, or the object that it was parsed to."""
    import json

    return offset if offset is None or isinstance(offset, str) else json.dumps(offset)
