"""The engine port, on Spark: compile pipelines, start their queries, stop them."""

from __future__ import annotations

import itertools
import logging
import random
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.dsl.timestamps import Extractor
from millstream.errors import ConfigException, StreamsException, TopologyException
from millstream.model import BatchReport
from millstream.periodic import PeriodicThread
from millstream.ports import CompiledPipeline, PipelineEnd, RunningPipeline
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.serde import Serde
from millstream.spark.compile.frame_columns import (
    StaticFrame,
    UserWriter,
    changes,
    dataframe_of,
    last_rows,
    pause_s,
    refuse_doubles,
)
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers
from millstream.spark.compile.sink import refusal_options
from millstream.spark.compile.source import kafka_options, read_topic
from millstream.spark.compile.spark_query import compile_query, topic_of
from millstream.spark.compile.task_compiler import CompileContext, CompiledTask, compile_task
from millstream.spark.jvm.executors import Executors, is_cluster, slots_of
from millstream.spark.jvm.java_names import java_class
from millstream.spark.jvm.session import SharedSession, scratch_path
from millstream.spark.rehearsal import rehearse, visit_executors
from millstream.spark.run.dropped import DropWatch
from millstream.spark.run.ending import of_ended_jvm
from millstream.spark.run.failures import (
    Report,
    first_line,
    is_fenced,
    is_jvm_lost,
    report_of_java,
    translate,
    without_plan,
)
from millstream.spark.run.streaming_query import QueryPipeline
from millstream.spark.run.task_run import (
    FollowedTasks,
    TaskRun,
    TaskSettings,
    is_up_to_date,
    task_rows,
    task_writer,
)
from millstream.spark.worker.programs import python_program
from millstream.topology.names import internal_topic
from millstream.topology.nodes import (
    FrameTable,
    OffsetReset,
    OffsetResetPolicy,
    Repartition,
    Source,
    SparkTopic,
)
from millstream.topology.pipeline import Pipeline

log = logging.getLogger(__name__)

__all__ = ["SparkEngine", "SparkSettings"]


@dataclass(frozen=True)
class SparkSettings:
    """What the engine needs of a configuration, in plain values.

    Attributes:
        spark: `spark.*` settings.
        consumer, producer: Kafka client options in Kafka's names, security included.
        default_key_serde, default_value_serde: the default serdes, or None.
        cached: only a key's last value up to a commit is emitted, unless its store says otherwise.
        offset_reset: where sources start that have no setting of their own.
        handlers: which failed records are dropped.
        timestamp_extractor: for sources without one of their own; None: Kafka's default.
        registry: the schema registry, or None.
        tasks: how tasks commit.
        checkpoints: the application's directory or URI for the checkpoints of `to_spark()`; each query has
            its own in it, named after its topic.
    """

    application_id: str
    bootstrap_servers: str
    tasks: TaskSettings
    checkpoints: str
    spark: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    default_key_serde: Serde | None = None
    default_value_serde: Serde | None = None
    cached: bool = True
    offset_reset: OffsetResetPolicy = OffsetReset.EARLIEST
    handlers: RecordHandlers = FAIL
    timestamp_extractor: Extractor | None = None
    registry: RegistrySettings | None = None


class SparkEngine:
    """Runs pipelines as tasks of Spark, and the queries of `to_spark()`. Thread-safe."""

    def __init__(
        self,
        settings: SparkSettings,
        spark: SparkSession | None = None,
        closing: threading.Event | None = None,
    ) -> None:
        """Start Spark, join a running one, or use the given session.

        Args:
            closing: set, from any thread, when the engine is no longer wanted; starting then ends soon.

        Raises:
            SetupException: no Java, a missing jar, or a session without Spark's Kafka connector.
            StreamsException: `closing` was set before Spark had started.
        """
        self._settings = settings
        self._lock = threading.Lock()
        self._running: list[QueryPipeline] = []
        self._repartition_serdes: dict[Repartition, tuple[Serde, Serde]] = {}
        self._written_serdes: dict[str, tuple[Serde, Serde]] = {}
        self._frames: dict[str, StaticFrame] = {}
        self._refreshing = threading.Lock()
        self._in_slots: dict[tuple[str, int], int] = {}
        """How many tasks the queries have that run, by the pipeline and a number."""
        self._contexts: dict[str, CompileContext] = {}
        self._again: dict[str, CompiledTask] = {}
        """For pipelines that run several times at once, the further plans, by the names of their runs."""
        self._prepared: dict[str, _Prepared] = {}
        self._standbys: dict[str, FollowedTasks] = {}
        self._closing = closing or threading.Event()
        # It says to tasks which run of which pipeline they belong to.
        self._token = uuid.uuid4().hex
        self._session = SharedSession(settings.spark, settings.application_id, spark, self._closing)
        try:
            _check_session(self.spark)
        except BaseException:
            self._session.close()
            raise
        self._executors = Executors(self.spark)
        self._in_executors = is_cluster(str(self.spark.sparkContext.master))
        self._silence_s = self._patience_ms / 1000
        self._watch_s = min(_WATCH_SECONDS, self._silence_s / 4)
        self._watched_at = time.monotonic()
        self._watch = PeriodicThread(
            "spark-watch",
            self._watch_s,
            self._end_silent,
            log=log,
            failure="the watch of Spark's Java process",
        )
        self._watch.start()

    def _end_silent(self) -> None:
        """End a JVM that has not answered for as long as Kafka Streams allows a thread not to poll: a frozen
        one, or one that does nothing but collect garbage. Who waits for its answers would wait for ever."""
        before, self._watched_at = self._watched_at, time.monotonic()
        if self._watched_at - before > self._watch_s + _THAW_SECONDS:
            return  # this process was frozen, too: the answers may only have to be taken
        with self._lock:
            running = [pipeline for pipeline in self._running if not pipeline.ended]
        silent_s = max((pipeline.silent_s for pipeline in running), default=0.0)
        if silent_s < min(_WARN_SECONDS, self._silence_s):
            return
        said = f"it has not answered for {silent_s:.0f} s"
        if silent_s < self._silence_s:
            log.warning("Spark's Java process: %s; after %g s it is ended", said, self._silence_s)
            return
        reason = (
            f"{said} (max.poll.interval.ms) and was ended: it was frozen, or did nothing but collect "
            "garbage; if so, give it more memory (spark.driver.memory)"
        )
        self._session.end_silent(reason)
        for pipeline in running:
            if pipeline.silent_s >= self._silence_s:
                pipeline.give_up(reason)

    @property
    def spark(self) -> SparkSession:
        """The client's session."""
        return self._session.spark

    @property
    def is_alive(self) -> bool:
        """Whether Spark's JVM is running. If not, everything compiled is lost too, and a new engine is
        needed."""
        return self._session.is_alive

    def compile(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        context = self._context(partitions)
        with self._lock:
            if pipeline.spark_sink is not None:
                return CompiledPipeline(pipeline, {}, compile_query(pipeline, context, self._read))
            return self._compiled_task(pipeline, context)

    def _compiled_task(self, pipeline: Pipeline, context: CompileContext) -> CompiledPipeline:
        plan = self._plan(pipeline, context, self._run(pipeline.name, 0))
        self._contexts[pipeline.name] = context
        return CompiledPipeline(pipeline, plan.store_serdes, plan, plan.closed)

    def _plan(self, pipeline: Pipeline, context: CompileContext, run: str) -> CompiledTask:
        return compile_task(pipeline, context, partial(task_rows, self.spark, run))

    def _run(self, pipeline: str, number: int) -> str:
        """The name of a run of a pipeline, under which the kernel's sources and sink meet."""
        return f"{self._token}-{pipeline}" + (f"-{number}" if number else "")

    def _read(self, topic: SparkTopic) -> DataFrame:
        """The records of the topic of a `to_spark()`."""
        options = {**kafka_options(self._consumer_options), "startingOffsets": "earliest"}
        return read_topic(self.spark, internal_topic(self._settings.application_id, topic.topic), options)

    def _context(self, partitions: Mapping[str, int]) -> CompileContext:
        return CompileContext(
            application_id=self._settings.application_id,
            partitions=partitions,
            default_key_serde=self._settings.default_key_serde,
            default_value_serde=self._settings.default_value_serde,
            handlers=self._settings.handlers,
            repartition_serdes=self._repartition_serdes,
            cached=self._settings.cached,
            # As long as Kafka Streams allows for a record before the member counts as lost.
            patience_ms=self._patience_ms,
            timestamp_extractor=self._settings.timestamp_extractor,
            config=self._settings.handlers.configs,
            registry=self._settings.registry,
            frame=self._frame,
            written_serdes=self._written_serdes,
        )

    def _frame(self, table: FrameTable) -> StaticFrame:
        """The DataFrame of a table. Pipelines share it."""
        if table.name not in self._frames:
            self._frames[table.name] = StaticFrame.of(table, self.spark)
        return self._frames[table.name]

    @property
    def _patience_ms(self) -> int:
        return int(self._settings.consumer.get("max.poll.interval.ms", 300_000))

    @property
    def _consumer_options(self) -> dict[str, str]:
        settings = self._settings
        return {
            "isolation.level": "read_committed",
            **settings.consumer,
            "bootstrap.servers": settings.bootstrap_servers,
        }

    def _asking(self, plan: CompiledTask) -> str | None:
        """What calls the user's own handlers, for the kernel."""
        if plan.asking is None:
            return None
        try:
            program = python_program(self.spark, plan.asking, self._patience_ms)
        except Exception as error:  # pickling runs code of the pickled classes
            names = ", ".join(sorted(f"{kind}.exception.handler" for kind in self._settings.handlers.own))
            raise StreamsException(
                f"{names}: a handler cannot be pickled for Spark's workers: {error}. Give the class instead "
                "of an instance, and create what cannot be pickled in its configure()"
            ) from error
        return str(program.text())

    def refresh(self, table: FrameTable, start_of: str | None = None) -> int:
        topic = internal_topic(self._settings.application_id, table.topic)
        only_if_empty = start_of is not None and not table.reads_at_start
        for fenced in range(1, _REFRESH_TRIES + 1):
            try:
                with self._refreshing:
                    began = time.monotonic()
                    return self._refresh(table, topic, only_if_empty=only_if_empty)
            except (PySparkException, Py4JError, OSError) as error:
                if is_jvm_lost(error) or is_jvm_lost(error.__cause__):
                    self._session.note_lost()
                report = report_of_java(error) or Report.of_text(str(error))
                if fenced < _REFRESH_TRIES and is_fenced(report):  # another client does the same
                    took_s = time.monotonic() - began
                    log.info("table %s: another client is refreshing it, too; this one waits", table.name)
                    if not self._closing.wait(pause_s(took_s, fenced, random.random())):  # noqa: S311
                        continue
                raise StreamsException(
                    f"table '{table.name}': its DataFrame could not be read, or its changes could not be "
                    f"written to '{topic}'; the table is unchanged: {first_line(report.text)}"
                ) from error
        raise AssertionError("unreachable")

    def _refresh(self, table: FrameTable, topic: str, *, only_if_empty: bool) -> int:
        settings = self._settings
        with self._lock:
            frame = self._frame(table)
        reading = {**settings.consumer, "bootstrap.servers": settings.bootstrap_servers}
        options = kafka_options({**reading, "isolation.level": "read_committed"})
        writing = {
            "transaction.timeout.ms": _LONG_MS,
            **settings.producer,
            "bootstrap.servers": settings.bootstrap_servers,
        }
        # 1. From here on no one else writes to the topic, and it has no open transaction.
        writer: Any = java_class(self.spark._jvm, _WRITER)(writing, topic, f"{topic}-refresh")
        try:
            # 2. The contents of the topic and of the DataFrame, each read once.
            kept = last_rows(read_topic(self.spark, topic, options, streaming=False))
            if only_if_empty and not kept.isEmpty():
                return 0
            changed = changes(frame, self.spark, kept).persist()
            try:
                refuse_doubles(table, changed.where("rows > 1").count())
                count = changed.count()
                # 3. The whole difference is written, or none of it.
                if count:
                    writer.write(changed.select("key", "value")._jdf)
            finally:
                changed.unpersist()
        finally:
            writer.close()
        log.info("table %s: %d rows changed in its DataFrame and are now in '%s'", table.name, count, topic)
        if not is_up_to_date(self.spark, topic, self._patience_ms):
            log.warning("table %s: the tasks of this client have not read all of its changes yet", table.name)
        return count

    def dataframe(self, topic: str, options: Mapping[str, str]) -> Any:
        if topic not in self._written_serdes:
            written = ", ".join(f"'{name}'" for name in sorted(self._written_serdes)) or "none"
            raise TopologyException(
                f"the program does not write the topic '{topic}'; it writes {written}. "
                "name one of them in stream.to_dataframe('topic')"
            )
        records = read_topic(
            self.spark,
            topic,
            {**kafka_options(self._consumer_options), "startingOffsets": "earliest", **options},
        )
        return dataframe_of(records, *self._written_serdes[topic])

    def warm_up(self, topic: str | None, tasks: int = 0) -> None:
        """Run a query without output, so that the first real one is as fast as later ones. Ends early on
        `close`."""
        if self._in_executors:
            slots = slots_of(self.spark, self._closing, wanted=tasks + 1)
            if tasks >= slots:
                who = f"{tasks} tasks are to come here, which hold one each,"
                raise _too_few_slots(who, tasks + 1, slots)
            visit_executors(self.spark, slots)
            return
        rehearse(self.spark, kafka_options(self._consumer_options), topic, self._closing)

    def prepare(self, compiled: CompiledPipeline) -> None:
        pipeline, plan = compiled.pipeline, compiled.plan
        if not isinstance(plan, CompiledTask) or pipeline.frame_tables:
            return  # a DataFrame is read again when its pipeline gets tasks
        prepared = _Prepared()
        prepared.running = self._start_task(pipeline, plan, (), prepared.ended, prepared.reported)
        with self._lock:
            before = self._prepared.pop(pipeline.name, None)
            self._prepared[pipeline.name] = prepared
        if before is not None:
            before.running.stop()
        if not plan.in_batches and self._spares():
            prepared.running.wait_until_ready(_READY_S)

    def forget_prepared(self) -> None:
        with self._lock:
            prepared, self._prepared = tuple(self._prepared.values()), {}
        for each in prepared:
            each.running.stop()

    def follow(self, compiled: CompiledPipeline, partitions: Collection[int]) -> frozenset[int]:
        pipeline, plan = compiled.pipeline, compiled.plan
        if not isinstance(plan, CompiledTask) or self._in_executors:
            return frozenset(partitions)
        try:
            with self._lock:
                standbys = self._standbys.get(pipeline.name)
                if standbys is None:
                    if not partitions:
                        return frozenset()
                    standbys = self._standbys[pipeline.name] = FollowedTasks(
                        self.spark,
                        self._run(pipeline.name, 0),
                        self._settings.application_id,
                        pipeline,
                        self._settings.tasks,
                        plan.stores,
                    )
            return standbys.follow(partitions)
        except (Py4JError, OSError) as error:
            raise StreamsException(
                f"pipeline {pipeline.name}: its standbys cannot be kept up to date in Spark's process: "
                f"{first_line(str(error))}"
            ) from error

    def start(
        self,
        compiled: CompiledPipeline,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> RunningPipeline:
        with self._lock:
            prepared = self._prepared.pop(compiled.pipeline.name, None)
        if prepared is not None and prepared.taken(partitions, on_end, on_batch):
            return prepared.running
        if isinstance(compiled.plan, CompiledTask):
            return self._start_task(compiled.pipeline, compiled.plan, partitions, on_end, on_batch)
        return self._start_query(compiled.pipeline, compiled.plan, on_end, on_batch)

    def _start_query(
        self,
        pipeline: Pipeline,
        writer: UserWriter,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> RunningPipeline:
        name, topics = pipeline.name, _topics(pipeline)
        location = f"{self._settings.checkpoints.rstrip('/')}/{topic_of(pipeline).topic}"
        try:
            query = writer.start(location, f"{self._settings.application_id}-{name}")
        except (PySparkException, Py4JError, OSError) as error:
            raise _not_started(name, topics, error)  # noqa: B904 - it has a cause

        def ended(end: PipelineEnd) -> None:
            self._tidied(end, lambda: None)
            on_end(end)

        drops = DropWatch(name, report=on_batch)
        running = QueryPipeline(name, topics, query, ended, drops, self._executors.recent)
        self._note_running(running)
        return running

    def _note_running(self, running: QueryPipeline) -> None:
        with self._lock:
            self._running = [pipeline for pipeline in self._running if not pipeline.ended]
            self._running.append(running)

    def _tidied(self, end: PipelineEnd, tidy: Callable[[], None]) -> None:
        """Release what a query that has ended leaves in Spark, or note that Spark's process is lost."""
        # With an error class it is Spark's own report, such as of a user's function that reached no server.
        has_class = getattr(end.error, "error_class", None) is not None
        is_lost = end.error is not None and not has_class and is_jvm_lost(end.error.__cause__)
        if is_lost or not _answers(tidy):
            self._session.note_lost()

    def _start_task(
        self,
        pipeline: Pipeline,
        plan: CompiledTask,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> QueryPipeline:
        settings = self._settings
        name, topics = pipeline.name, _topics(pipeline)
        for table in pipeline.frame_tables:
            self.refresh(table, start_of=name)
        scratch = tempfile.mkdtemp(prefix="query-", dir=scratch_path(self.spark))
        run, number = None, self._number(name)
        try:
            plan = self._plan_of(pipeline, plan, number)
            run = TaskRun(
                self.spark,
                self._run(name, number),
                settings.application_id,
                pipeline,
                settings.tasks,
                plan.stores,
                refusal_options(settings.handlers, self._asking(plan)),
                plan.times,
                plan.fillings,
                partitions,
                0 if plan.in_batches else self._spares(),
            )
            self._take_slots(name, number, run.tasks)
            writer = task_writer(plan.rows, scratch, in_batches=plan.in_batches)
            called = f"{settings.application_id}-{name}" + (f"-{number}" if number else "")
            query = writer.queryName(called).start()
        except (PySparkException, Py4JError, OSError) as error:
            self._free(name, number)
            _forget(run)
            shutil.rmtree(scratch, ignore_errors=True)
            raise _not_started(name, topics, error)  # noqa: B904 - it has a cause
        except BaseException:
            self._free(name, number)
            _forget(run)
            shutil.rmtree(scratch, ignore_errors=True)
            raise

        def ended(end: PipelineEnd) -> None:
            self._free(name, number)
            shutil.rmtree(scratch, ignore_errors=True)
            self._tidied(end, run.forget)
            on_end(end)

        handlers = settings.handlers
        drops = DropWatch(
            name,
            handlers.max_ratio,
            handlers.dead_letter_topic,
            own=handlers.own,
            report=on_batch,
        )
        running = QueryPipeline(
            name,
            topics,
            query,
            ended,
            drops,
            self._executors.recent,
            run,
            partial(self._take_slots, name, number),
        )
        self._note_running(running)
        return running

    def _number(self, name: str) -> int:
        """Take the lowest number that no running query of a pipeline has."""
        with self._lock:
            number = next(each for each in itertools.count() if (name, each) not in self._in_slots)
            self._in_slots[name, number] = 0
        return number

    def _free(self, name: str, number: int) -> None:
        with self._lock:
            self._in_slots.pop((name, number), None)

    def _plan_of(self, pipeline: Pipeline, first: CompiledTask, number: int) -> CompiledTask:
        """The plan for a query of a pipeline: the source knows by its name what it reads."""
        if not number:
            return first
        run = self._run(pipeline.name, number)
        with self._lock:
            if run not in self._again:
                self._again[run] = self._plan(pipeline, self._contexts[pipeline.name], run)
            return self._again[run]

    def _spares(self) -> int:
        """How many tasks of a query may wait for partitions: none where a slot is a core."""
        if self._in_executors:
            return 0
        with self._lock:
            taken = sum(self._in_slots.values()) + _SPARES * len(self._in_slots)
        return _SPARES if 2 * taken < slots_of(self.spark, self._closing) else 0

    def _take_slots(self, name: str, number: int, tasks: int) -> None:
        """Note how many tasks of a query run as long as it does.

        Raises:
            StreamsException: Spark has too few slots: a task without one would wait for ever.
        """
        with self._lock:  # before it waits, so that others that start now see it
            before = self._in_slots[name, number]
            self._in_slots[name, number] = tasks
            others = sum(self._in_slots.values()) - tasks
        slots = slots_of(self.spark, self._closing, wanted=tasks + others + 1)
        if tasks + others >= slots:
            with self._lock:
                self._in_slots[name, number] = before
            raise _too_few_slots(
                f"pipeline {name} has {tasks} tasks, which run as long as it does, the others have {others},",
                tasks + others + 1,
                slots,
            )

    def close(self) -> None:
        with self._lock:
            running, self._running = self._running, []
            standbys, self._standbys = tuple(self._standbys.values()), {}
            self._prepared.clear()
        for pipeline in running:
            pipeline.stop()
        for each in standbys:
            _answers(each.close)
        self._watch.stop(0.0)
        self._executors.close()
        self._session.close()


class _Prepared:
    """A query that has started before it has tasks: whoever takes it hears of its end and its reports."""

    running: QueryPipeline

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_ended = False
        self._on_end: Callable[[PipelineEnd], None] | None = None
        self._on_batch: Callable[[BatchReport], None] = lambda report: None

    def ended(self, end: PipelineEnd) -> None:
        with self._lock:
            self._has_ended = True
            on_end = self._on_end
        if on_end is not None:
            on_end(end)
        elif end.error is not None:
            log.info("pipeline %s, which was to be ready for tasks, has ended: %s", end.pipeline, end.error)

    def reported(self, report: BatchReport) -> None:
        self._on_batch(report)

    def taken(
        self,
        partitions: Collection[int],
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> bool:
        """Give it these partitions, and have its taker told from now on; False: it has ended, or is stopped
        because it could not take them."""
        taken = False
        try:
            if self.running.assign(partitions):
                with self._lock:
                    self._on_end, self._on_batch = on_end, on_batch
                    taken = not self._has_ended
        finally:
            if not taken:
                self.running.stop()
        return taken


_SPARES = 16
_READY_S = 60.0
_WATCH_SECONDS = 5.0
_THAW_SECONDS = 5.0
"""How much later than planned the watch may look, on a busy machine."""
_WARN_SECONDS = 15.0
_WRITER = "io.millstream.kernel.sink.TableWriter"
_REFRESH_TRIES = 20
"""How often other clients' refreshes may fence one: normally far more often than there are clients."""
_LONG_MS = "900000"
"""The longest transaction that a broker allows by default: a large table takes time."""


def _check_session(spark: SparkSession) -> None:
    """Raises a ConfigException where the session has a setting that tasks do not go with."""
    if str(spark.sparkContext.getConf().get("spark.speculation")).lower() == "true":
        raise ConfigException(
            "'spark.speculation' is true: two attempts at a task would take its transaction from each other; "
            "leave it out"
        )


def _too_few_slots(who: str, wanted: int, slots: int) -> StreamsException:
    return StreamsException(
        f"{who} and one slot must stay free; there are {slots}. Start Spark with "
        f"spark.master=local[{wanted}] or more, where a slot is a thread; or give a cluster "
        f"{wanted - slots} more cores"
    )


def _not_started(pipeline: str, topics: tuple[str, ...], error: Exception) -> StreamsException:
    said = without_plan(error)
    return translate(pipeline, topics, said, report=Report.of_text(str(said)))


def _forget(run: TaskRun | None) -> None:
    if run is None:
        return
    try:
        run.forget()
    except Exception:  # the JVM may be gone
        log.debug("forgetting a run", exc_info=True)


def _answers(call: Callable[[], None]) -> bool:
    """Call the JVM; returns False if it has ended in the meantime. Raises nothing that it raises."""
    try:
        call()
    except (PySparkException, Py4JError, OSError) as error:
        log.debug("what a query leaves in the JVM", exc_info=True)
        return not is_jvm_lost(of_ended_jvm(error))
    return True


def _topics(pipeline: Pipeline) -> tuple[str, ...]:
    """The topics that a pipeline reads, for errors that Spark reports without a name."""
    topics: list[str] = []
    for node in pipeline.inputs:
        if isinstance(node, Source):
            topics += node.topics or ([f"pattern '{node.pattern.pattern}'"] if node.pattern else [])
        else:
            topics.append(node.topic)
    return tuple(topics)
