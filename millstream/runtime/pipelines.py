"""The client's pipelines: one engine for all of them, started by whichever thread needs it first."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from millstream.errors import StreamsException
from millstream.ports import CheckpointClaim, CompiledPipeline, Engine, PipelineEnd, RunningPipeline
from millstream.topology.pipeline import Pipeline, writers_first

__all__ = ["Pipelines"]

log = logging.getLogger(__name__)


class Pipelines:
    """Compiles all pipelines before any starts, so that a mistake in one shows before another has written.

    Starting Spark takes seconds; it happens on the first stream thread that asks, while the others wait.

    Args:
        engine: makes the engine, which starts Spark; it gives up as soon as the event that it gets is set.
        pipelines: all of the client's.
        partitions: the partition count of each internal topic, without the application id.
        on_compiled: called once, before any pipeline starts.
        claim: claims a pipeline's checkpoint for this client, once the engine is there, and has it fit.
    """

    def __init__(
        self,
        engine: Callable[[threading.Event], Engine],
        pipelines: Sequence[Pipeline],
        partitions: Mapping[str, int],
        on_compiled: Callable[[Mapping[str, CompiledPipeline]], None],
        claim: Callable[[CompiledPipeline, Engine], CheckpointClaim],
    ) -> None:
        self._make_engine = engine
        self._pipelines = tuple(pipelines)
        self._partitions = dict(partitions)
        self._on_compiled = on_compiled
        self._claim = claim
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._compiled: Mapping[str, CompiledPipeline] | None = None
        self._closing = threading.Event()
        self._warmed_up = False

    def start(self, name: str, on_end: Callable[[PipelineEnd], None]) -> RunningPipeline:
        """Claim one pipeline's checkpoint and start its query. The first call starts Spark and compiles all.

        Raises:
            TopologyException: a lambda or a serde of any pipeline is wrong.
            TaskMigratedException: the checkpoint belongs to another client by now.
            StreamsException: the pipelines are closed.
        """
        with self._lock:
            compiled = self._ready()
            engine = self._engine
        assert engine is not None
        running = engine.start(compiled[name], self._claim(compiled[name], engine), on_end)
        self._warmed_up = True
        return running

    def warm_up(self, topic: str | None) -> None:
        """Start Spark, compile all and rehearse, so that a pipeline can be taken over quickly.

        A pipeline may start meanwhile. Raises as `start`.
        """
        with self._lock:
            self._ready()
            engine = self._engine
        assert engine is not None
        engine.warm_up(topic)
        self._warmed_up = True

    @property
    def is_warm(self) -> bool:
        """Whether Spark runs, all is compiled, and a query has run."""
        return self._compiled is not None and self._warmed_up

    def close(self, timeout_s: float) -> None:
        """End the engine, and what it still runs. One that is just starting gives up."""
        self._closing.set()
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
        self._raise_if_closed()
        engine = self._engine
        if engine is not None and not engine.is_alive:
            log.warning("Spark's Java process is gone; another one is started")
            self._engine = self._compiled = None
            self._warmed_up = False
            engine.close()
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> Mapping[str, CompiledPipeline]:
        engine = self._engine or self._make_engine(self._closing)
        if self._closing.is_set():
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
        if self._closing.is_set():
            raise StreamsException("the client is closing; its pipelines cannot be started any more")
