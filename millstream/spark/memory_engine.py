"""A pipeline over memory instead of Kafka: the same compiled plan, fed by hand, for TopologyTestDriver.

Each call of `process` hands records to the task, and returns what it has written of them.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millstream.dsl.timestamps import Extractor
from millstream.errors import PipelineException, StreamsException, TopologyException
from millstream.kernel.constants import ANSWER_FAIL
from millstream.model import KafkaRecord
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.serde import Serde
from millstream.spark.compile.flow import HEADERS, HEADERS_TYPE, OFFSET, PARTITION, TIMESTAMP, TOPIC
from millstream.spark.compile.frame_columns import StaticFrame, UserWriter, dataframe_of, refuse_doubles
from millstream.spark.compile.record_handlers import FAIL, RecordHandlers
from millstream.spark.compile.source import in_range
from millstream.spark.compile.spark_query import compile_query
from millstream.spark.compile.task_compiler import CompileContext, CompiledTask, compile_task
from millstream.spark.jvm.executors import slots_of
from millstream.spark.jvm.java_names import java_class
from millstream.spark.jvm.session import SharedSession
from millstream.spark.run.dropped import DropWatch
from millstream.spark.run.failures import Report, first_line, report_of, report_of_java, translate, unreadable
from millstream.spark.run.task_run import (
    TaskRun,
    TaskSettings,
    next_report,
    reports_in,
    task_rows,
    task_writer,
)
from millstream.spark.worker.handler_calls import Asking, HandlerError, Question
from millstream.topology.nodes import FrameTable, Repartition, Source, TableSource
from millstream.topology.pipeline import Pipeline

__all__ = ["MemoryEngine", "MemoryPipeline", "MemoryQuery"]

Input = Source | TableSource | Repartition
_RECORD = (
    "k string, v string, t string, p int, o bigint, s bigint, h array<struct<key: string, value: string>>"
)

_SETTINGS: Mapping[str, str] = {
    # Tiny batches: the cost is in starting tasks and compiling code, not in running it. Without Java's second
    # compiler a test run takes a good third less CPU, if it is this code that starts Java.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.pollingDelay": "1ms",
}


class MemoryEngine:
    """A session for pipelines over memory. The first one starts Spark, which stays until the process ends."""

    def __init__(self, spark: SparkSession | None = None, settings: Mapping[str, str] | None = None) -> None:
        # A driver is used for a second and closed; Spark takes five to start. So it is never stopped.
        self._session = SharedSession({**_SETTINGS, **(settings or {})}, "millstream-test", spark)
        self.repartition_serdes: dict[Repartition, tuple[Serde, Serde]] = {}
        self.written_serdes: dict[str, tuple[Serde, Serde]] = {}
        self._frames: dict[str, StaticFrame] = {}
        self._tasks = 0

    def _need_slots(self, number: int) -> None:
        """Each task takes one until its driver is closed.

        Raises:
            StreamsException: Spark has too few: what waits for one would wait for ever.
        """
        slots = slots_of(self.spark, threading.Event())
        if number > slots:
            raise StreamsException(
                f"this driver needs {number} slots of Spark at once, and there are {slots}; create the "
                f"session with master('local[{number}]') or more"
            )

    @property
    def spark(self) -> SparkSession:
        """The session that all pipelines of this engine run in."""
        return self._session.spark

    def frame(self, table: FrameTable) -> StaticFrame:
        """The DataFrame of a table."""
        if table.name not in self._frames:
            self._frames[table.name] = StaticFrame.of(table, self.spark)
        return self._frames[table.name]

    def rows(self, table: FrameTable) -> dict[bytes, bytes]:
        """The rows of a table's DataFrame as they are now, in bytes.

        Raises:
            StreamsException: it cannot be read, or a key has several rows.
        """
        self._need_slots(self._tasks + 1)
        try:
            rows = self.frame(table).rows(self.spark).collect()
        except (PySparkException, Py4JError) as error:
            said = first_line((report_of_java(error) or Report.of_text(str(error))).text)
            raise StreamsException(
                f"table '{table.name}': its DataFrame could not be read; the table is unchanged: {said}"
            ) from error
        found = [(bytes(row[0]), bytes(row[1])) for row in rows]
        seen = Counter(key for key, _ in found)
        refuse_doubles(table, sum(count > 1 for count in seen.values()))
        return dict(found)

    def dataframe(self, topic: str, records: Sequence[KafkaRecord]) -> DataFrame:
        """A static DataFrame of these records of a topic that a pipeline writes.

        Raises:
            TopologyException: none writes it.
        """
        if topic not in self.written_serdes:
            written = ", ".join(f"'{name}'" for name in sorted(self.written_serdes)) or "none"
            raise TopologyException(f"the program does not write the topic '{topic}'; it writes {written}")
        rows = [
            (
                None if each.key is None else bytearray(each.key),
                None if each.value is None else bytearray(each.value),
                each.topic,
                0,
                number,
                each.timestamp,
                [(key, None if value is None else bytearray(value)) for key, value in each.headers],
            )
            for number, each in enumerate(records)
        ]
        names = f"key binary, value binary, {TOPIC} string, {PARTITION} int, {OFFSET} bigint, time bigint"
        made = self.spark.createDataFrame(rows, f"{names}, {HEADERS} {HEADERS_TYPE.simpleString()}")
        records_of = made.withColumn(TIMESTAMP, F.timestamp_millis("time"))
        return dataframe_of(records_of, *self.written_serdes[topic])

    def pipeline(
        self,
        pipeline: Pipeline,
        *,
        application_id: str,
        partitions: Mapping[str, int],
        default_key_serde: Serde | None,
        default_value_serde: Serde | None,
        checkpoint: str,
        handlers: RecordHandlers = FAIL,
        cached: bool = True,
        timestamp_extractor: Extractor | None = None,
        registry: RegistrySettings | None = None,
    ) -> MemoryPipeline | MemoryQuery:
        """Compile a pipeline and start its query.

        Raises:
            TopologyException: a function is wrong, or a serde does not fit.
        """
        context = CompileContext(
            application_id,
            partitions,
            default_key_serde,
            default_value_serde,
            handlers,
            self.repartition_serdes,
            cached,
            timestamp_extractor=timestamp_extractor,
            config=handlers.configs,
            is_timed=True,
            registry=registry,
            frame=self.frame,
            written_serdes=self.written_serdes,
        )
        if pipeline.spark_sink is not None:
            stream = _MemoryStream(self.spark)
            writer = compile_query(pipeline, context, lambda topic: stream.records())
            return MemoryQuery(pipeline, stream, writer, checkpoint)
        self._tasks += 1
        self._need_slots(self._tasks)
        name = f"memory-{uuid.uuid4().hex}"
        task = compile_task(pipeline, context, partial(task_rows, self.spark, name))
        return MemoryPipeline(pipeline, self.spark, task, checkpoint, name, handlers, application_id)


class MemoryPipeline:
    """A task over memory."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        task: CompiledTask,
        checkpoint: str,
        name: str,
        handlers: RecordHandlers,
        application_id: str,
    ) -> None:
        self.pipeline = pipeline
        self.store_serdes = task.store_serdes
        self.drops = DropWatch(
            pipeline.name, handlers.max_ratio, handlers.dead_letter_topic, own=handlers.own
        )
        self.goes_by_clock = task.processes
        self._in_batches = task.in_batches
        self._asking = task.asking
        self._task: Any = java_class(spark._jvm, "io.millstream.kernel.task.MemoryTask")
        settings = TaskSettings(True, 0, 0, "")
        stores = [replace(store, in_memory=True) for store in task.stores]
        self._run = TaskRun(
            spark, name, application_id, pipeline, settings, stores, {}, task.times, task.fillings, (0,)
        )
        self._query = task_writer(task.rows, checkpoint, in_batches=task.in_batches).start()

    def process(self, records: Mapping[Input, list[KafkaRecord]], now_ms: int = 0) -> list[KafkaRecord]:
        """Have the task process these records; returns what it has written, in order.

        The offset of a returned record is -1.

        Args:
            now_ms: the time of day, for processors.

        Raises:
            StreamsException: the query failed; the exception that a client's thread would see.
        """
        lines = "\n".join(_encoded(record) for batch in records.values() for record in batch)
        number = next_report(self.drops.seen)
        told = self._task.process(self._run.name, lines, now_ms, self._in_batches, 60_000, number)
        if told is None:
            topics = tuple({record.topic for batch in records.values() for record in batch})
            try:
                self._query.awaitTermination(10)
                raise TimeoutError("the query neither answers nor ends")
            except Exception as error:
                report = report_of(self._query, error)
                raise translate(self.pipeline.name, topics, error, report=report)  # noqa: B904 - it has its cause
        report, *rows = map(json.loads, told.split("\n"))
        too_many = self.drops.look(reports_in(report, dict))
        if too_many is not None:
            raise too_many
        return _all_answered(self.pipeline.name, rows, self._asking)

    def close(self) -> None:
        self._run.end(10)
        self._query.stop()
        self._run.forget()


class MemoryQuery:
    """The query of a `to_spark()` over memory; each call of `process` is one micro-batch."""

    goes_by_clock = False

    def __init__(
        self, pipeline: Pipeline, stream: _MemoryStream, writer: UserWriter, checkpoint: str
    ) -> None:
        self.pipeline = pipeline
        self.store_serdes: Mapping[str, tuple[Serde, Serde]] = {}
        self.drops = DropWatch(pipeline.name)
        self._stream = stream
        try:
            self._query = writer.start(checkpoint, f"millstream_{uuid.uuid4().hex}")
        except PySparkException as error:
            raise translate(pipeline.name, (), error)  # noqa: B904 - it has its cause

    def process(self, records: Mapping[Input, list[KafkaRecord]], now_ms: int = 0) -> list[KafkaRecord]:
        """Have the query read these records; it writes none to Kafka.

        Raises:
            StreamsException: the query failed; the exception that a client's thread would see.
        """
        self._stream.add(record for batch in records.values() for record in batch)
        try:
            self._query.processAllAvailable()
        except Exception as error:
            topics = tuple({record.topic for batch in records.values() for record in batch})
            report = report_of(self._query, error)
            raise translate(self.pipeline.name, topics, error, report=report)  # noqa: B904 - it has its cause
        return []

    def close(self) -> None:
        self._query.stop()


class _MemoryStream:
    """Spark's MemoryStream, with one string per record, because a string reaches the JVM unchanged."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.spark = spark
        text = java_class(jvm, "org.apache.spark.sql.Encoders").STRING()
        companion = java_class(jvm, "org.apache.spark.sql.execution.streaming.runtime.MemoryStream$")
        self._stream = getattr(companion, "MODULE$").apply(text, spark._jsparkSession)

    def records(self) -> DataFrame:
        """What was added: `key`, `value` binary, and the columns of flow.CONTEXT."""
        record = F.col("r")
        headers = F.transform(
            record["h"], lambda h: F.struct(h["key"].alias("key"), F.unhex(h["value"]).alias("value"))
        )
        rows = DataFrame(self._stream.toDF(), self.spark).select(F.from_json("value", _RECORD).alias("r"))
        return rows.select(
            F.unhex(record["k"]).alias("key"),
            F.unhex(record["v"]).alias("value"),
            record["t"].alias(TOPIC),
            record["p"].alias(PARTITION),
            record["o"].alias(OFFSET),
            in_range(record["s"]).alias(TIMESTAMP),
            headers.cast(HEADERS_TYPE).alias(HEADERS),
        )

    def add(self, records: Iterable[KafkaRecord]) -> None:
        lines = "\n".join(_encoded(record) for record in records)
        if lines:
            text = java_class(self._jvm, "java.io.StringReader")(lines)
            rows = java_class(self._jvm, "org.apache.commons.io.IOUtils").readLines(text)
            self._stream.addData(java_class(self._jvm, "org.apache.spark.api.python.PythonUtils").toSeq(rows))


def _all_answered(pipeline: str, rows: Iterable[dict[str, Any]], asking: Asking | None) -> list[KafkaRecord]:
    """The records to write for these rows: the records themselves, and handlers' answers to questions.

    Raises:
        PipelineException: a handler says 'fail', or has failed.
    """
    return [record for row in rows for record in _answered(pipeline, row, asking)]


def _answered(pipeline: str, row: dict[str, Any], asking: Asking | None) -> list[KafkaRecord]:
    if asking is None or "asked" not in row.get("l", ()):
        return [_decoded(row)]
    try:
        (answer,) = asking.answers([_question(row)])
    except HandlerError as error:
        raise _failed(pipeline, str(error)) from error.__cause__
    if answer.result == ANSWER_FAIL:
        raise _failed(pipeline, str(answer.said)) from unreadable(str(answer.said))
    return [
        KafkaRecord(
            letter.topic,
            -1 if letter.partition is None else letter.partition,
            -1,
            letter.key,
            letter.value,
            row["s"] if letter.timestamp is None else letter.timestamp,
            letter.headers,
        )
        for letter in answer.letters
    ]


def _failed(pipeline: str, said: str) -> PipelineException:
    return PipelineException(f"pipeline {pipeline}: its query failed: {said}", pipeline=pipeline)


def _question(row: dict[str, Any]) -> Question:
    asked = row["l"]
    return Question(
        place=asked["asked"],
        node=asked["place"],
        exception=asked["exception"],
        message=asked["message"],
        topic=asked.get("topic"),
        raw_key=_bytes(asked.get("key")),
        raw_value=_bytes(asked.get("value")),
        partition=asked.get("partition", -1),
        offset=asked.get("offset", -1),
        timestamp=row["s"],
        to=row.get("t"),
        key=_bytes(asked.get("failed_key")),
        value=_bytes(asked.get("failed_value")),
        partition_to=row.get("p", -1),
        headers=_headers(row),
    )


def _decoded(row: dict[str, Any]) -> KafkaRecord:
    key, value = _bytes(row.get("k")), _bytes(row.get("v"))
    return KafkaRecord(row["t"], row.get("p", -1), -1, key, value, row["s"], _headers(row))


def _headers(row: dict[str, Any]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], _bytes(header.get("value"))) for header in row.get("h", ()))


def _bytes(digits: str | None) -> bytes | None:
    return None if digits is None else bytes.fromhex(digits)


def _encoded(record: KafkaRecord) -> str:
    return json.dumps(
        {
            "k": None if record.key is None else record.key.hex(),
            "v": None if record.value is None else record.value.hex(),
            "t": record.topic,
            "p": record.partition,
            "o": record.offset,
            "s": record.timestamp,
            "h": [{"key": k, "value": None if v is None else v.hex()} for k, v in record.headers] or None,
        }
    )
