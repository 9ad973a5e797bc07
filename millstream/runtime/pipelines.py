"""The client's pipelines: one engine for all of them, started when a thread first needs it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from millstream.errors import StreamsException
from millstream.model import BatchReport, TaskId
from millstream.ports import CompiledPipeline, Engine, PipelineEnd, RunningPipeline
from millstream.runtime.threads.store_thread import Stopped
from millstream.topology.nodes import FrameTable
from millstream.topology.pipeline import Pipeline, writers_first

__all__ = ["Pipelines"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class Pipelines:
    """Compiles all pipelines before any starts, so that a mistake in one shows before another has written.

    Starting Spark takes seconds, so it has a thread of its own, and threads that need Spark wait. When the
    client closes, no one waits any longer and no query starts: the waiting threads get `Stopped`, and
    Spark ends as soon as it can be stopped.

    Args:
        engine: creates the engine, which starts Spark; it gives up as soon as its event is set.
        pipelines: all pipelines of the client.
        partitions: the partition count of each internal topic, without the application id.
        on_compiled: called once, before any pipeline starts.
        name: the name of the thread that starts Spark.
        on_ready: called each time that Spark runs and everything is compiled.
    """

    def __init__(
        self,
        engine: Callable[[threading.Event], Engine],
        pipelines: Sequence[Pipeline],
        partitions: Mapping[str, int],
        on_compiled: Callable[[Mapping[str, CompiledPipeline]], None],
        name: str = "SparkStart",
        *,
        on_ready: Callable[[], object] = lambda: None,
    ) -> None:
        self._make_engine = engine
        self._pipelines = tuple(pipelines)
        self._partitions = dict(partitions)
        self._on_compiled = on_compiled
        self._name = name
        self._on_ready = on_ready
        self._changed = threading.Condition()
        self._starter: threading.Thread | None = None
        self._engine: Engine | None = None
        self._compiled: Mapping[str, CompiledPipeline] | None = None
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._unwanted = threading.Event()  # for the engine that exists or is starting
        self._ahead = False  # started by `begin`, and not needed yet
        self._given_up = False
        self._warmed_up = False

    def begin(self) -> None:
        """Start Spark and compile before anyone needs it, to shorten later waits. Returns at once.

        A failure is raised in the first thread that needs Spark, as if that thread had started it.
        """
        with self._changed:
            is_late = self._given_up or self._closing.is_set()
            if self._starter is None and self._engine is None and not is_late:
                self._ahead = True
                self._begin()

    def give_up(self) -> None:
        """End what `begin` started, if no one has needed it since; `begin` does nothing from now on. Returns
        at once.
        """
        with self._changed:
            self._given_up = True
            if not self._ahead:
                return
            self._ahead = False
            self._unwanted.set()
            self._unwanted = threading.Event()
            if self._starter is None:
                engine, self._engine, self._compiled = self._engine, None, None
                if engine is not None:
                    self._run_on_starter(lambda: self._end(engine))

    def start(
        self,
        name: str,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> RunningPipeline:
        """Start one pipeline's query for these partitions. The first call starts Spark and compiles all.

        Raises:
            TopologyException: a lambda or a serde of any pipeline is wrong.
            Stopped: the client closes.
        """
        engine, compiled = self._ready()
        try:
            running = engine.start(compiled[name], partitions, on_end, on_batch)
        except StreamsException:
            self._raise_if_closing()  # it gave up for that reason, and no handler is to decide about it
            raise
        self._warmed_up = True
        return running

    def refresh(self, table: FrameTable) -> int:
        """As `Engine.refresh`; starts Spark first if necessary. Raises like `start`."""
        return self._asked(lambda engine: engine.refresh(table))

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        """As `Engine.dataframe`; starts Spark and compiles everything first if necessary."""
        return self._asked(lambda engine: engine.dataframe(topic, options))

    def _asked(self, what: Callable[[Engine], T]) -> T:
        engine, _ = self._ready()
        try:
            return what(engine)
        except StreamsException:
            self._raise_if_closing()
            raise

    def warm_up(self, topic: str | None, coming: Collection[TaskId]) -> None:
        """Start Spark, compile everything and rehearse, so that a pipeline can be taken over quickly.

        A pipeline may start meanwhile. Raises like `start`.

        Args:
            coming: the tasks that are to come; if there are none, any may.
        """
        engine, compiled = self._ready()
        engine.warm_up(topic, len(coming))
        pipelines = {task.pipeline for task in coming}
        for name, each in compiled.items():
            self._raise_if_closing()
            if not coming or name in pipelines:
                self._prepare(engine, each)
        self._warmed_up = True

    def _prepare(self, engine: Engine, compiled: CompiledPipeline) -> None:
        try:
            engine.prepare(compiled)
        except StreamsException as error:  # whoever starts it meets the same, and decides about it
            log.info("pipeline %s is not ready for tasks yet: %s", compiled.pipeline.name, error)

    def forget_prepared(self) -> None:
        """The topics are not what they were. Returns soon."""
        with self._changed:
            engine = self._engine
        if engine is not None:
            engine.forget_prepared()

    def follow(self, tasks: Collection[TaskId]) -> frozenset[TaskId] | None:
        """As `Engine.follow`, for these tasks of all pipelines.

        Returns:
            Those that have caught up; None: Spark does not run.
        """
        with self._changed:
            engine, compiled = self._engine, self._compiled
        if engine is None or compiled is None or self._closing.is_set() or not engine.is_alive:
            return None
        found: set[TaskId] = set()
        for name, each in compiled.items():
            own = {task.partition: task for task in tasks if task.pipeline == name}
            found.update(own[at] for at in engine.follow(each, own.keys()) if at in own)
        return frozenset(found)

    @property
    def is_warm(self) -> bool:
        """Whether Spark runs, everything is compiled, and a query has run."""
        engine = self._engine
        return self._compiled is not None and self._warmed_up and engine is not None and engine.is_alive

    def interrupt(self) -> None:
        """The client closes, so no one waits for Spark any longer. Returns at once; thread-safe."""
        self._closing.set()
        with self._changed:
            self._unwanted.set()
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """End the engine and what it still runs. An engine that is just starting ends once it can be stopped.

        Args:
            timeout_s: how long to wait for an engine that is just starting.
        """
        self._closing.set()
        with self._changed:
            self._unwanted.set()
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._starter is None, timeout_s):
                log.info("Spark is still starting; it will stop once it has started")
                return
            engine, self._engine, self._compiled = self._engine, None, None
        if engine is not None:
            engine.close()

    # --- starting Spark ----------------------------------------------------------------------------------

    def _ready(self) -> tuple[Engine, Mapping[str, CompiledPipeline]]:
        """The engine, and all pipelines compiled by it. Waits for both.

        A failure is raised in the thread that had Spark started; other waiting threads try again themselves.
        """
        with self._changed:
            mine, self._ahead = self._ahead, False
            while True:
                self._raise_if_closing()
                if self._starter is None and self._compiled is not None and self._engine is not None:
                    if self._engine.is_alive:
                        return self._engine, self._compiled
                    log.warning("Spark's Java process is gone; starting a new one")
                    self._compiled, self._warmed_up = None, False
                if self._starter is None and not (mine and self._error is not None):
                    mine = True
                    self._begin()
                self._changed.wait_for(self._is_over(self._starter))
                self._raise_if_closing()
                if mine and self._error is not None:
                    raise self._error
                mine = False

    def _begin(self) -> None:
        self._error = None
        engine, unwanted = self._engine, self._unwanted
        self._run_on_starter(lambda: self._start_engine(engine, unwanted))

    def _run_on_starter(self, work: Callable[[], None]) -> None:
        """Runs on the thread that starts Spark: one at a time, which takes the lock before it ends."""
        starter = threading.Thread(target=work, name=self._name, daemon=True)
        starter.start()
        self._starter = starter

    def _is_over(self, starter: threading.Thread | None) -> Callable[[], bool]:
        return lambda: self._closing.is_set() or starter is None or self._starter is not starter

    def _start_engine(self, engine: Engine | None, unwanted: threading.Event) -> None:
        """Runs on the thread that starts Spark."""
        compiled: Mapping[str, CompiledPipeline] | None = None
        error: BaseException | None = None
        try:
            if engine is not None and not engine.is_alive:
                engine.close()
                engine = None
            engine = engine or self._make_engine(unwanted)
            if not unwanted.is_set():
                compiled = {
                    pipeline.name: engine.compile(pipeline, self._partitions)
                    for pipeline in writers_first(self._pipelines)
                }
                self._on_compiled(compiled)
        except BaseException as problem:  # raised on the threads that wait for it
            error = problem
        if unwanted.is_set():
            self._end(engine)
            return
        with self._changed:
            self._engine, self._compiled, self._error = engine, compiled, error
            self._starter = None
            self._changed.notify_all()
        if error is None:
            self._on_ready()

    def _end(self, engine: Engine | None) -> None:
        """Runs on the same thread."""
        try:
            if engine is not None:
                engine.close()
        except Exception:
            log.exception("Spark did not close cleanly; nothing waits for it any longer")
        with self._changed:
            self._engine, self._compiled, self._error = None, None, None
            self._starter = None
            self._changed.notify_all()

    def _raise_if_closing(self) -> None:
        if self._closing.is_set():
            raise Stopped
