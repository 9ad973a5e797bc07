"""The client's pipelines: one engine for all of them, started by whichever thread needs it first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from millstream.errors import StreamsException
from millstream.ports import CompiledPipeline, Engine, PipelineEnd, RunningPipeline
from millstream.topology.pipeline import Pipeline, writers_first

__all__ = ["Pipelines"]

log = logging.getLogger(__name__)


class Pipelines:
    """Compiles all pipelines before any starts, so that a mistake in one shows before another has written.

    Starting Spark takes seconds; it happens on the first stream thread that asks, while the others wait.

    Args:
        engine: makes the engine, which starts Spark.
        pipelines: all of the client's.
        partitions: the partition count of each internal topic, without the application id.
        on_compiled: called once, before any pipeline starts.
    """

    def __init__(
        self,
        engine: Callable[[], Engine],
        pipelines: Sequence[Pipeline],
        partitions: Mapping[str, int],
        on_compiled: Callable[[Mapping[str, CompiledPipeline]], None],
    ) -> None:
        self._make_engine = engine
        self._pipelines = tuple(pipelines)
        self._partitions = dict(partitions)
        self._on_compiled = on_compiled
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._compiled: Mapping[str, CompiledPipeline] | None = None
        self._failure: BaseException | None = None
        self._closed = False

    def start(self, name: str, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        """Start one pipeline's query. The first call starts Spark and compiles all.

        Raises:
            TopologyException: a lambda or a serde of any pipeline is wrong.
            StreamsException: the pipelines are closed.
        """
        with self._lock:
            compiled = self._ready()
            engine = self._engine
        assert engine is not None
        return engine.start(compiled[name], on_end)

    def close(self, timeout_s: float) -> None:
        """End the engine, and what it still runs. One that is just starting ends when it has started."""
        self._closed = True
        if not self._lock.acquire(timeout=timeout_s):
            log.warning(
                "Spark is still starting after %.1f s; it is ended as soon as it has started", timeout_s
            )
            return
        try:
            engine, self._engine = self._engine, None
        finally:
            self._lock.release()
        if engine is not None:
            engine.close()

    def _ready(self) -> Mapping[str, CompiledPipeline]:
        if self._failure is not None:
            raise self._failure  # the same one on each thread: whichever reports first reports the cause
        self._raise_if_closed()
        if self._compiled is None:
            try:
                self._compiled = self._compile()
            except BaseException as error:
                self._failure = error
                raise
        return self._compiled

    def _compile(self) -> Mapping[str, CompiledPipeline]:
        engine = self._make_engine()
        if self._closed:
            engine.close()
            self._raise_if_closed()
        self._engine = engine
        compiled = {
            pipeline.name: engine.compile(pipeline, self._partitions)
            for pipeline in writers_first(self._pipelines)
        }
        self._on_compiled(compiled)
        return compiled

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise StreamsException("the client is closing; its pipelines cannot be started any more")
