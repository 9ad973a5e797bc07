"""The engine port, on Spark: compile pipelines, start their queries, stop them."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from millstream.dsl.timestamps import Extractor
from millstream.errors import StreamsException, TopologyException
from millstream.locations import ClaimKind, kind_of, scheme_of
from millstream.model import BatchReport
from millstream.periodic import PeriodicThread
from millstream.ports import CheckpointClaim, CompiledPipeline, PipelineEnd, RunningPipeline
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.serde import Serde
from millstream.spark.compile.compiler import CompileContext, Compiled, compile_pipeline
from millstream.spark.compile.frame_columns import (
    StaticFrame,
    changes,
    dataframe_of,
    last_rows,
    pause_s,
    refuse_doubles,
)
from millstream.spark.compile.rebuild import rebuild
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers
from millstream.spark.compile.sink import FORMAT, Transactions, refusal_options, sink_options
from millstream.spark.compile.source import kafka_options, read_kafka, read_topic
from millstream.spark.compile.task_compiler import CompiledTask, compile_task
from millstream.spark.jvm.executors import Executors, slots_of
from millstream.spark.jvm.java_names import java_class
from millstream.spark.jvm.session import SharedSession
from millstream.spark.rehearsal import rehearse
from millstream.spark.run.backlog import Backlog
from millstream.spark.run.checkpoint_files import HadoopCheckpointFiles, check_location, checkpoint_files
from millstream.spark.run.damage import find_damage
from millstream.spark.run.dropped import DropWatch
from millstream.spark.run.ending import of_ended_jvm
from millstream.spark.run.failures import (
    Report,
    first_line,
    is_fenced,
    is_jvm_lost,
    may_be_damage,
    translate,
    without_plan,
)
from millstream.spark.run.moved import put_right
from millstream.spark.run.real_time_batches import (
    SQL,
    RealTimeRun,
    has_clock,
    has_python,
    is_of_micro_batches,
    launch_defaults,
    tasks_behind_shuffles,
)
from millstream.spark.run.streaming_query import IdlePipeline, QueryPipeline
from millstream.spark.run.task_run import TaskRun, TaskSettings, is_up_to_date, task_rows, task_writer
from millstream.spark.run.transactions import (
    check_session,
    end_run,
    report_of_java,
    take_over,
    written,
)
from millstream.spark.worker.programs import end_query, python_program
from millstream.topology.names import internal_topic, markers_topic
from millstream.topology.nodes import (
    FrameTable,
    OffsetReset,
    OffsetResetPolicy,
    Repartition,
    Source,
    TableSource,
)
from millstream.topology.pipeline import Pipeline
from millstream.topology.real_time import Mode, Modes, refusal, twice

log = logging.getLogger(__name__)

__all__ = ["SparkEngine", "SparkSettings"]


@dataclass(frozen=True)
class SparkSettings:
    """What the engine needs of a configuration, in plain values.

    Attributes:
        spark: `spark.*` settings.
        consumer, producer: Kafka client options in Kafka's names, security included.
        default_key_serde, default_value_serde: the default serdes, or None.
        cached: only a key's last value of each micro-batch is emitted, unless its store says otherwise.
        offset_reset: where sources start that have no setting of their own.
        max_records_per_batch: bound of a micro-batch, for all sources of a pipeline together; None: the
            default.
        batch_interval: the shortest time from one micro-batch to the next.
        handlers: which failed records are dropped.
        transaction_timeout_ms: write exactly once, in transactions that the broker aborts after this time;
            None: at least once.
        timestamp_extractor: for sources without one of their own; None: Kafka's default.
        registry: the schema registry, or None.
        modes: which pipelines run in Real-Time Mode.
        real_time_batch: how long a batch lasts in Real-Time Mode.
        tasks: run subtopologies as tasks, which commit by themselves; None: in Spark's own batches.
        checkpoints: the configured location of checkpoints; None: on this machine.
    """

    application_id: str
    bootstrap_servers: str
    spark: Mapping[str, str] = field(default_factory=dict)
    consumer: Mapping[str, str] = field(default_factory=dict)
    producer: Mapping[str, str] = field(default_factory=dict)
    default_key_serde: Serde | None = None
    default_value_serde: Serde | None = None
    cached: bool = True
    offset_reset: OffsetResetPolicy = OffsetReset.EARLIEST
    max_records_per_batch: int | None = None
    batch_interval: timedelta = timedelta(0)
    handlers: RecordHandlers = FAIL
    transaction_timeout_ms: int | None = None
    timestamp_extractor: Extractor | None = None
    registry: RegistrySettings | None = None
    modes: Modes = field(default_factory=Modes)
    real_time_batch: timedelta = timedelta(minutes=1)
    tasks: TaskSettings | None = None
    checkpoints: str | None = None


class SparkEngine:
    """Runs pipelines on Spark Structured Streaming, in micro-batches or in Real-Time Mode. Thread-safe."""

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
        self._partitions: Mapping[str, int] = {}
        self._repartition_serdes: dict[Repartition, tuple[Serde, Serde]] = {}
        self._written_serdes: dict[str, tuple[Serde, Serde]] = {}
        self._frames: dict[str, StaticFrame] = {}
        self._in_batches: dict[str, CompiledPipeline] = {}
        self._refreshing = threading.Lock()
        self._slots_taken: dict[str, int] = {}
        self._closing = closing or threading.Event()
        # It says to tasks which run of which pipeline they belong to.
        self._token = uuid.uuid4().hex
        self._session = SharedSession(
            {**(SQL if settings.modes.any or settings.tasks else {}), **settings.spark},
            settings.application_id,
            spark,
            self._closing,
            defaults=launch_defaults() if settings.modes.any or settings.tasks else {},
            object_store=kind_of(settings.checkpoints or "") is ClaimKind.OBJECTS,
        )
        if settings.checkpoints is not None and scheme_of(settings.checkpoints):
            try:
                check_location(self.spark, settings.checkpoints)
            except BaseException:
                self._session.close()
                raise
        if settings.transaction_timeout_ms is not None:
            check_session(self.spark)
        self._executors = Executors(self.spark)
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
        self._partitions = partitions
        with self._lock:
            self._in_batches.pop(pipeline.name, None)
            # The query of to_spark() is Spark's: it has Spark's batches, and a checkpoint.
            if self._settings.tasks is not None and pipeline.spark_sink is None:
                return self._compiled_task(pipeline, partitions)
            return _with_plan(pipeline, self._compiled(pipeline, partitions))

    def _compiled_task(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> CompiledPipeline:
        read = partial(task_rows, self.spark, self._run(pipeline.name))
        plan = compile_task(pipeline, self._context(pipeline, partitions), read)
        return CompiledPipeline(pipeline, plan.store_serdes, plan)

    def fitting(self, compiled: CompiledPipeline, claim: CheckpointClaim) -> CompiledPipeline:
        if isinstance(compiled.plan, CompiledTask):
            return compiled
        if compiled.plan.run is None or not is_of_micro_batches(self.checkpoint_files(claim.path)):
            return compiled
        pipeline = compiled.pipeline
        why = "its checkpoint was written by micro-batches, in a format that Real-Time Mode cannot continue"
        if self._settings.modes.of(pipeline) is Mode.REAL_TIME:
            raise TopologyException(
                f"pipeline {pipeline.name} cannot run in Real-Time Mode: {why}. Give "
                f"processing.mode.{pipeline.name}=micro-batch, or processing.mode=auto, which leaves it in "
                "micro-batches; or process everything again: stop all clients, and reset the application "
                "with `millstream reset`"
            )
        with self._lock:
            if pipeline.name not in self._in_batches:
                log.info("pipeline %s runs in micro-batches: %s", pipeline.name, why)
                plan = compile_pipeline(pipeline, self._context(pipeline, self._partitions))
                self._in_batches[pipeline.name] = _with_plan(pipeline, plan)
            return self._in_batches[pipeline.name]

    def _compiled(self, pipeline: Pipeline, partitions: Mapping[str, int]) -> Compiled:
        modes = self._settings.modes
        if modes.is_real_time(pipeline):
            run = self._run(pipeline.name)
            compiled = compile_pipeline(pipeline, self._context(pipeline, partitions, is_real_time=True))
            why = _seen_now(compiled)
            if not why:
                return replace(compiled, run=None if compiled.rows is None else run)
            if modes.of(pipeline) is Mode.REAL_TIME:
                raise TopologyException(refusal(pipeline.name, why))
            log.info("pipeline %s runs in micro-batches: %s", pipeline.name, " ".join(why))
        elif modes.of(pipeline) is Mode.AUTO and (why := modes.why_not(pipeline)):
            log.info("pipeline %s runs in micro-batches: %s", pipeline.name, " ".join(why))
        return compile_pipeline(pipeline, self._context(pipeline, partitions))

    def _run(self, pipeline: str) -> str:
        """The name of a pipeline's runs, under which the kernel's sources and sink meet."""
        return f"{self._token}-{pipeline}"

    def _context(
        self, pipeline: Pipeline, partitions: Mapping[str, int], *, is_real_time: bool = False
    ) -> CompileContext:
        return CompileContext(
            application_id=self._settings.application_id,
            partitions=partitions,
            read=partial(self._read, run=self._run(pipeline.name), is_real_time=is_real_time),
            real_time=is_real_time,
            default_key_serde=self._settings.default_key_serde,
            default_value_serde=self._settings.default_value_serde,
            handlers=self._settings.handlers,
            repartition_serdes=self._repartition_serdes,
            cached=self._settings.cached,
            # As long as Kafka Streams allows for a record before the member counts as lost.
            patience_ms=self._patience_ms,
            timestamp_extractor=self._settings.timestamp_extractor,
            config=self._settings.handlers.configs,
            clock=self._clock,
            registry=self._settings.registry,
            frame=self._frame,
            written_serdes=self._written_serdes,
        )

    def _clock(self) -> DataFrame:
        """A stream with one row each second."""
        return self.spark.readStream.format("rate").option("rowsPerSecond", "1").load()

    def _frame(self, table: FrameTable) -> StaticFrame:
        """The DataFrame of a table. Pipelines share it."""
        if table.name not in self._frames:
            self._frames[table.name] = StaticFrame.of(table, self.spark)
        return self._frames[table.name]

    @property
    def _patience_ms(self) -> int:
        return int(self._settings.consumer.get("max.poll.interval.ms", 300_000))

    def _read(self, node: Source | TableSource | Repartition, run: str, is_real_time: bool) -> DataFrame:
        settings = self._settings
        return read_kafka(
            self.spark,
            node,
            application_id=settings.application_id,
            options=kafka_options(self._consumer_options),
            default_reset=settings.offset_reset,
            default_extractor=settings.timestamp_extractor,
            run=run,
            is_real_time=is_real_time,
        )

    @property
    def _consumer_options(self) -> dict[str, str]:
        settings = self._settings
        return {
            "isolation.level": "read_committed",
            **settings.consumer,
            "bootstrap.servers": settings.bootstrap_servers,
        }

    def _sink_options(
        self, compiled: CompiledPipeline | None = None, transactions: Transactions | None = None
    ) -> dict[str, str]:
        settings = self._settings
        return sink_options(
            {**settings.producer, "bootstrap.servers": settings.bootstrap_servers},
            {} if compiled is None else compiled.plan.partitions,
            handlers=settings.handlers,
            run=uuid.uuid4().hex,
            transactions=transactions,
            asking=None if compiled is None else self._asking(compiled.plan),
            real_time=None if compiled is None else compiled.plan.run,
        )

    def _asking(self, plan: Compiled | CompiledTask) -> str | None:
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

    def _transactions(self, claim: CheckpointClaim) -> Transactions | None:
        settings = self._settings
        if settings.transaction_timeout_ms is None:
            return None
        return Transactions(
            prefix=f"{settings.application_id}-{claim.pipeline}",
            marker_topic=markers_topic(settings.application_id),
            epoch=claim.epoch,
            timeout_ms=settings.transaction_timeout_ms,
        )

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

    def warm_up(self, topic: str | None) -> None:
        """Run a query without output, so that the first real one is as fast as later ones. Ends early on
        `close`."""
        if not str(self.spark.conf.get("spark.master", "")).startswith("local"):
            return  # executors come and go; there is no point in warming them
        rehearse(
            self.spark, kafka_options(self._consumer_options), self._sink_options(), topic, self._closing
        )

    def start(
        self,
        compiled: CompiledPipeline,
        claim: CheckpointClaim,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None] = lambda report: None,
    ) -> RunningPipeline:
        name = compiled.pipeline.name
        if isinstance(compiled.plan, CompiledTask):
            return self._start_task(compiled.pipeline, compiled.plan, claim, on_end, on_batch)
        compiled = self.fitting(compiled, claim)
        plan: Compiled = compiled.plan
        rows = plan.rows_at(claim.epoch)
        user = plan.user_writer
        if rows is None and user is None:
            return IdlePipeline(name, on_end)
        for table in compiled.pipeline.frame_tables:
            self.refresh(table, start_of=name)
        put_right(self.checkpoint_files(claim.path), claim.path)
        topics = _topics(compiled.pipeline)
        # A user's writer writes nothing to Kafka.
        transactions = self._transactions(claim) if user is None else None
        sink = self._sink_options(compiled, transactions)
        if transactions is not None:
            take_over(self.spark, sink, self.checkpoint_files(claim.path), claim)
        query_name = f"{self._settings.application_id}-{name}"
        run = None
        backlog = None
        try:
            if plan.run is None:
                backlog = Backlog(
                    self.spark,
                    self._run(name),
                    self._settings.max_records_per_batch,
                    self._settings.batch_interval,
                    self.checkpoint_files(claim.path),
                )
            if rows is not None and plan.run is not None:
                slots = slots_of(self.spark, self._closing)
                behind = tasks_behind_shuffles(rows, self.checkpoint_files(claim.path))
                run = RealTimeRun(self.spark, plan.run, name, slots, behind)
            if user is not None:
                query = user.start(claim.path, query_name)
            else:
                assert rows is not None
                query = (
                    rows.writeStream.format(FORMAT)
                    .options(**sink)
                    .option("checkpointLocation", claim.path)
                    .trigger(**self._trigger(plan))
                    .outputMode("update")
                    .queryName(query_name)
                    .start()
                )
        except (PySparkException, Py4JError, OSError) as error:
            _forget(run or backlog)
            said = without_plan(error)
            report = Report.of_text(str(said))
            if may_be_damage(report):
                report = replace(report, damage=find_damage(self.checkpoint_files(claim.path)))
            raise translate(name, topics, said, claim=claim, report=report)  # noqa: B904 - it has a cause
        handlers = self._settings.handlers

        def initial(source: int) -> str:
            content = self.checkpoint_files(claim.path).read(f"sources/{source}/0")
            return (content or b"").decode(errors="replace")

        drops = DropWatch(
            name,
            handlers.max_ratio if user is None or plan.drops else 1.0,
            handlers.dead_letter_topic,
            own=handlers.own,
            report=on_batch,
            initial=initial,
            real_time_ms=None if plan.run is None else self._real_time_ms,
        )

        def ended(end: PipelineEnd) -> None:
            _forget(run or backlog)
            self._tidied(end, tidy)
            on_end(end)

        def tidy() -> None:
            if transactions is not None:
                end_run(self.spark, sink)
            end_query(self.spark, query.id)

        running = QueryPipeline(
            name,
            topics,
            query,
            ended,
            claim,
            lambda: self.checkpoint_files(claim.path),
            drops,
            self._executors.recent,
            run,
            backlog,
        )
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
        claim: CheckpointClaim,
        on_end: Callable[[PipelineEnd], None],
        on_batch: Callable[[BatchReport], None],
    ) -> RunningPipeline:
        settings = self._settings
        assert settings.tasks is not None
        name, topics = pipeline.name, _topics(pipeline)
        for table in pipeline.frame_tables:
            self.refresh(table, start_of=name)
        scratch = tempfile.mkdtemp(prefix="millstream-query-")
        run = None
        try:
            run = TaskRun(
                self.spark,
                self._run(name),
                settings.application_id,
                pipeline,
                settings.tasks,
                plan.stores,
                refusal_options(settings.handlers, self._asking(plan)),
                plan.times,
                plan.fillings,
            )
            self._take_slots(name, run.tasks)
            writer = task_writer(plan.rows, scratch, in_batches=plan.in_batches)
            query = writer.queryName(f"{settings.application_id}-{name}").start()
        except (PySparkException, Py4JError, OSError) as error:
            _forget(run)
            shutil.rmtree(scratch, ignore_errors=True)
            said = without_plan(error)
            raise translate(name, topics, said, claim=claim, report=Report.of_text(str(said)))  # noqa: B904
        except BaseException:
            _forget(run)
            shutil.rmtree(scratch, ignore_errors=True)
            raise

        def ended(end: PipelineEnd) -> None:
            _forget(run)
            self._slots_taken.pop(name, None)
            shutil.rmtree(scratch, ignore_errors=True)
            self._tidied(end, lambda: end_query(self.spark, query.id))
            on_end(end)

        handlers = settings.handlers
        drops = DropWatch(
            name,
            handlers.max_ratio,
            handlers.dead_letter_topic,
            own=handlers.own,
            report=on_batch,
            initial=lambda source: "",
            real_time_ms=3_600_000,
        )
        running = QueryPipeline(
            name,
            topics,
            query,
            ended,
            claim,
            lambda: self.checkpoint_files(claim.path),
            drops,
            self._executors.recent,
            run,
        )
        self._note_running(running)
        return running

    def _take_slots(self, name: str, tasks: int) -> None:
        """Note that a pipeline's tasks run as long as it does.

        Raises:
            StreamsException: Spark has too few slots: a task without one would wait for ever.
        """
        self._slots_taken[name] = tasks  # before it waits, so that others that start now see it
        others = sum(self._slots_taken.copy().values()) - tasks
        slots = slots_of(self.spark, self._closing, wanted=tasks + others + 1)
        if tasks + others >= slots:
            del self._slots_taken[name]
            missing = tasks + others + 1 - slots
            raise StreamsException(
                f"pipeline {name} has {tasks} tasks, which run as long as it does, the others have {others}, "
                f"and one slot must stay free; there are {slots}. Start Spark with "
                f"spark.master=local[{tasks + others + 1}] or more, where a slot is a thread; or give a "
                f"cluster {missing} more cores"
            )

    @property
    def _real_time_ms(self) -> int:
        return self._settings.real_time_batch // timedelta(milliseconds=1)

    def _trigger(self, plan: Compiled) -> dict[str, Any]:
        if plan.run is not None:
            return {"realTime": f"{self._real_time_ms} milliseconds"}
        interval_ms = self._settings.batch_interval // timedelta(milliseconds=1)
        return {"processingTime": f"{interval_ms} milliseconds"}

    def check_reach(self, root: str) -> None:
        self._executors.check_reach(root, self._closing)

    def rebuild(
        self, compiled: CompiledPipeline, claim: CheckpointClaim, changelogs: Collection[str]
    ) -> None:
        try:
            put_right(self.checkpoint_files(claim.path), claim.path)
            rebuild(
                self.spark,
                compiled,
                self._context(compiled.pipeline, self._partitions),
                claim,
                frozenset(changelogs),
                self._sink_options(compiled),
                self._closing,
            )
        except (PySparkException, Py4JError, OSError) as error:
            raise translate(claim.pipeline, (), error, claim=claim)  # noqa: B904 - translate has set the cause

    def written(self, claim: CheckpointClaim) -> int:
        transactions = self._transactions(claim)
        if transactions is None:
            return 0
        return written(
            self.spark,
            self._sink_options(transactions=transactions),
            self.checkpoint_files(claim.path),
            claim,
        )

    def checkpoint_files(self, root: str) -> HadoopCheckpointFiles:
        """The checkpoints under a directory or URI, with Spark's settings and permissions."""
        return checkpoint_files(self.spark, root)

    def close(self) -> None:
        with self._lock:
            running, self._running = self._running, []
        for pipeline in running:
            pipeline.stop()
        self._watch.stop(0.0)
        self._executors.close()
        self._session.close()


_WATCH_SECONDS = 5.0
_THAW_SECONDS = 5.0
"""How much later than planned the watch may look, on a busy machine."""
_WARN_SECONDS = 15.0
_WRITER = "io.millstream.kernel.sink.TableWriter"
_REFRESH_TRIES = 20
"""How often other clients' refreshes may fence one: normally far more often than there are clients."""
_LONG_MS = "900000"
"""The longest transaction that a broker allows by default: a large table takes time."""


def _with_plan(pipeline: Pipeline, compiled: Compiled) -> CompiledPipeline:
    return CompiledPipeline(pipeline, compiled.store_serdes, compiled, compiled.scans, compiled.layouts)


def _seen_now(compiled: Compiled) -> tuple[str, ...]:
    """The obstacles to Real-Time Mode that show only in the compiled plan."""
    why = [
        f"It reads '{each}' more than once, because not all of its aggregations can be computed from parts."
        for each in twice(compiled.scans)
    ]
    if compiled.rows is not None and has_python(compiled.rows):
        why.append("It has a Python function that Spark calls with batches of records: a UDF, or a serde.")
    if compiled.rows is not None and has_clock(compiled.rows):
        why.append(
            "It uses the current time (current_timestamp(), WallclockTimestampExtractor), which Spark reads "
            "once for each batch; record.timestamp is each record's own."
        )
    return tuple(why)


def _forget(run: RealTimeRun | TaskRun | Backlog | None) -> None:
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
