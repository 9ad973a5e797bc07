"""How queries end, provoked on the real engine and a real broker: each as the exception a thread sees."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient
from engine_world import SOON, EngineWorld
from pyspark.cloudpickle import register_pickle_by_value
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from waiting import wait_until

from millstream import (
    Consumed,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    PipelineException,
    PythonWorkerException,
    Serdes,
    SerializationException,
    StreamsBuilder,
)
from millstream.broker import EmbeddedKafka
from millstream.model import TopicPartition
from millstream.ports import CompiledPipeline, PipelineEnd
from millstream.runtime.policies import causes
from millstream.spark.compile.record_handlers import RecordHandlers
from millstream.spark.engine import SparkEngine, SparkSettings
from millstream.spark.jvm.session import is_jvm_ending, meaning_of_exit
from millstream.spark.run.dropped import DropWatch
from millstream.spark.run.failures import is_jvm_lost
from millstream.spark.run.streaming_query import QueryPipeline
from millstream.spark.run.task_run import TaskSettings
from millstream.spark.run.worker_errors import RemoteException

pytestmark = pytest.mark.spark

# Workers do not have this module: what it defines travels with the functions.
register_pickle_by_value(sys.modules[__name__])

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


class Poison(Exception):
    """Known to this process; the worker prints its full name."""


class NeedsMore(Exception):
    """Cannot be made of a message alone."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.args[0]}"


def raise_poison(value: str) -> str:
    if value == "bad":
        raise Poison("poison pill\nof two lines")
    return value


def raise_key_error(value: str) -> str:
    raise KeyError("no such")


def raise_connection_error(value: str) -> str:
    raise ConnectionRefusedError("of a web service")


def raise_needs_more(value: str) -> str:
    raise NeedsMore(7, "seven")


def raise_local(value: str) -> str:
    class LocalError(Exception):
        pass

    raise LocalError("of a function")


def raise_from(value: str) -> str:
    try:
        try:
            os.stat("/nonesuch/file")
        except OSError:
            raise RuntimeError("while that was handled")  # noqa: B904 - this is what is tested
    except RuntimeError as error:
        raise Poison("poison") from error


def killed(value: str) -> str:
    os.kill(os.getpid(), 9)
    return value


def exits(value: str) -> str:
    os._exit(7)


@pytest.fixture
def world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark)
    yield world
    world.close()


def mapping(world: EngineWorld, function: Callable[[Any], Any]) -> tuple[str, str, CompiledPipeline]:
    """Source, sink and the pipeline that maps the values of one to the other."""
    source, out = world.topic("in"), world.topic("out")
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).map_values(function).to(out)
    [compiled] = world.compiled(builder.build())
    return source, out, compiled


def failed(world: EngineWorld) -> PipelineException:
    error = world.wait_for_end()
    assert isinstance(error, PipelineException), repr(error)
    assert error.pipeline == "p0"
    assert "=== Streaming Query ===" not in str(error)
    return error


def test_what_a_python_function_raised_is_there_again_with_its_class_and_traceback(
    world: EngineWorld,
) -> None:
    """`__cause__` is of the user's own class, and the printed traceback has the user's file and line; offsets
    and the micro-batch are those that failed."""
    source, out, compiled = mapping(world, lambda value: F.udf(raise_poison, "string")(value))
    world.start(compiled)
    world.produce(source, "a", "b")
    world.read(out, 2)
    world.wait_until_committed(source, 2)
    world.produce(source, "bad")
    error = failed(world)
    cause = error.__cause__
    assert type(cause) is Poison
    assert cause.args == ("poison pill\nof two lines",)
    printed = "".join(traceback.format_exception(error))
    assert "in raise_poison" in printed
    assert "test_engine_failures.py" in printed
    assert str(error).startswith("pipeline p0: its query failed: a Python function raised ")
    assert "Poison: poison pill" in str(error)
    assert "test_engine_failures.py" in str(error)
    assert error.error_class == "PYTHON_EXCEPTION"
    assert error.offsets == {TopicPartition(source, 0): (2, 3)}
    assert error.batch_id is not None


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (raise_key_error, KeyError, "'no such'"),
        (raise_connection_error, ConnectionRefusedError, "of a web service"),
        (raise_needs_more, RemoteException, "NeedsMore: 7: 7 seven"),
        (raise_local, RemoteException, "LocalError: of a function"),
    ],
)
def test_the_first_micro_batch_fails_too_and_classes_that_are_not_known_have_a_stand_in(
    world: EngineWorld, function: Any, kind: type[BaseException], text: str
) -> None:
    """The offsets then begin where the query did: here at 1, because the record before is deleted."""
    source, _, compiled = mapping(world, lambda value: F.udf(function, "string")(value))
    world.produce(source, "gone", "x")
    admin = AdminClient({"bootstrap.servers": world.kafka.bootstrap_servers})
    for future in admin.delete_records([NativePartition(source, 0, 1)]).values():
        future.result(20)
    world.start(compiled)
    error = failed(world)
    assert type(error.__cause__) is kind
    assert str(error.__cause__).endswith(text)
    assert any(function.__name__ in note for note in error.__cause__.__notes__)
    assert error.offsets == {TopicPartition(source, 0): (1, 2)}
    assert error.batch_id in (0, 1)  # a first one may have ended before the source's end was known
    assert world.engine.is_alive  # whatever a function could not reach, it was not Spark's JVM


def test_a_fold_function_raises_through_our_own_code_and_the_place_named_is_the_users(
    world: EngineWorld,
) -> None:
    """The worker's innermost frame of the user's program, not of the fold that calls it."""
    source = world.topic("in")
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).group_by_key().aggregate(
        lambda: 0,
        lambda key, value, total: total + int(value),
        Materialized.as_("sums").with_value_serde(Serdes.long()),
    )
    [compiled] = world.compiled(builder.build())
    world.start(compiled)
    world.produce(source, "many")
    error = failed(world)
    assert type(error.__cause__) is ValueError
    assert str(error.__cause__) == "invalid literal for int() with base 10: 'many'"
    assert "test_engine_failures.py" in str(error)


@pytest.mark.parametrize(
    ("expression", "value", "error_class"),
    [
        (lambda value: value.cast("int").cast("string"), "abc", "CAST_INVALID_INPUT"),
        (lambda value: (F.lit(1) / F.length(value)).cast("string"), "", "DIVIDE_BY_ZERO"),
        (lambda value: F.raise_error(value).cast("string"), "OutOfMemoryError", "USER_RAISED_EXCEPTION"),
    ],
)
def test_a_column_expression_fails_with_sparks_error_class_and_nothing_is_read_into_a_records_content(
    world: EngineWorld, expression: Any, value: str, error_class: str
) -> None:
    """What a record contains is no sign of a cause."""
    source, _, compiled = mapping(world, expression)
    world.start(compiled)
    world.produce(source, value)
    error = failed(world)
    assert error.error_class == error_class
    # Spark does not say which function an error is of that the program raises.
    node = ": KSTREAM-MAPVALUES-0000000001 (test_engine_failures.py:"
    where = "\n" if error_class == "USER_RAISED_EXCEPTION" else node
    assert str(error).startswith(f"pipeline p0: its query failed{where}")
    assert error.offsets == {TopicPartition(source, 0): (0, 1)}
    printed = "".join(traceback.format_exception(error))
    assert "StreamingQueryException: [" in printed
    assert "Logical Plan" not in printed  # a hundred lines, for each try


def test_a_sink_topic_that_is_missing_is_named(world: EngineWorld) -> None:
    """And is not taken for a missing source topic."""
    source = world.topic("in")
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).to(f"nowhere-{world.number}")
    [compiled] = world.compiled(builder.build())
    world.start(compiled)
    world.produce(source, "a")
    error = world.wait_for_end()
    assert isinstance(error, LostTopicException)
    assert error.topics == (f"nowhere-{world.number}",)


def test_a_record_that_is_too_large_is_said_to_be(world: EngineWorld) -> None:
    """With the size, the limit, and which limit it is."""
    source, _, compiled = mapping(world, lambda value: F.repeat(value, 2_000_000))
    world.start(compiled)
    world.produce(source, "x")
    error = failed(world)
    assert "did not take a record (key: 1 bytes, value: 2000000 bytes" in str(error)
    assert "the topic's max.message.bytes is 1048588; raise the topic's max.message.bytes" in str(error)


@pytest.fixture
def hasty_world(kafka: EmbeddedKafka, tmp_path: Path, spark: SparkSession) -> Iterator[EngineWorld]:
    world = EngineWorld(kafka, tmp_path, spark, consumer=SOON)
    yield world
    world.close()


def test_a_source_topic_that_is_deleted_is_missing(
    hasty_world: EngineWorld,
) -> None:
    """While the query runs."""
    world = hasty_world
    source, out, compiled = mapping(world, lambda value: value)
    world.start(compiled)
    world.produce(source, "a", "b")
    world.read(out, 2)
    world.kafka.delete_topic(source)
    error = world.wait_for_end()
    assert isinstance(error, MissingSourceTopicException)
    assert (error.topics, error.deleted, error.recreated) == ((source,), (source,), ())
    assert f"source topic '{source}' is gone" in str(error)


@pytest.mark.parametrize("die", [killed, exits])
def test_a_python_worker_that_died_is_said_to_have(world: EngineWorld, die: Callable[[str], str]) -> None:
    """What the system does to one that takes too much memory, and what a library may do."""
    source, _, compiled = mapping(world, lambda value: F.udf(die, "string")(value))
    world.start(compiled)
    world.produce(source, "x")
    error = failed(world)
    assert isinstance(error, PythonWorkerException)
    assert "a Python worker was killed or crashed" in str(error)


def folding(
    world: EngineWorld, adder: Callable[[str, str, int], int], topic: str = "folded"
) -> tuple[str, CompiledPipeline]:
    source = world.topic(topic)
    builder = StreamsBuilder()
    builder.stream(source, STRINGS).group_by_key().aggregate(
        lambda: 0, adder, Materialized.as_("sums").with_value_serde(Serdes.long())
    )
    [compiled] = world.compiled(builder.build())
    return source, compiled


def sleep(key: str, value: str, total: int) -> int:
    subprocess.run(["sleep", value], check=True)
    return total + 1


@pytest.mark.parametrize("die", [killed, exits])
def test_a_folds_worker_that_died_is_said_to_have_and_another_goes_on_with_what_was_kept(
    world: EngineWorld, die: Callable[[str], str]
) -> None:
    """The kernel's workers keep nothing: the next one is given what Spark has of the last micro-batch."""

    def add(key: str, value: str, total: int) -> int:
        if not os.path.exists(f"/tmp/{value}"):
            die(value)
        return total + 1

    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="millstream-fold-") as there:
        name = Path(there.name).name
        source, compiled = folding(world, add)
        world.start(compiled)
        world.produce(source, name)
        changelog = f"{world.application_id}-sums-changelog"
        assert world.read(changelog, 1)[0].value() == (1).to_bytes(8, "big")
        world.produce(source, name, f"{name}-later")
        error = failed(world)
        assert isinstance(error, PythonWorkerException)
        assert "a Python worker was killed or crashed" in str(error)
        assert "exit status" in str(error.__cause__)
        with open(f"/tmp/{name}-later", "w"):
            world.start(compiled)
            # Both records are in one micro-batch, or each in one of its own.
            later = world.read(changelog, 2)[-1].value()
            if later == (2).to_bytes(8, "big"):
                later = world.read(changelog, 3)[-1].value()
            assert later == (3).to_bytes(8, "big")
        os.unlink(f"/tmp/{name}-later")


def test_a_fold_that_hangs_is_ended(world: EngineWorld) -> None:
    """After max.poll.interval.ms for one record."""
    world.engine._settings = replace(world.engine._settings, consumer={"max.poll.interval.ms": "5000"})
    source, compiled = folding(world, sleep)
    world.start(compiled)
    world.produce(source, "2", "2", "2")  # longer in all, but each record is in time
    changelog = f"{world.application_id}-sums-changelog"
    world.read(changelog, 1)
    world.produce(source, "1000")
    error = failed(world)
    assert isinstance(error, PythonWorkerException)
    assert "a function did not return within 5000 ms (max.poll.interval.ms)" in str(error)


def test_a_fold_is_ended_when_its_query_is_stopped(world: EngineWorld) -> None:
    """At once."""
    source, compiled = folding(world, sleep)
    running = world.start(compiled)
    world.produce(source, "1000")

    def asleep() -> list[psutil.Process]:
        """Workers may be there from other tests; this one runs the function."""
        found = []
        for each in psutil.Process().children(True):
            with suppress(psutil.Error):  # it has ended
                if "millstream.spark.worker.program_worker" in each.cmdline() and each.children():
                    found.append(each)
        return found

    (worker,) = wait_until(asleep, "a worker that runs the fold")
    running.stop()
    wait_until(lambda: not worker.is_running(), "the end of the worker")


def test_what_an_exception_was_raised_from_is_in_the_chain_and_so_is_what_a_serde_cannot_read(
    world: EngineWorld,
) -> None:
    """So that a policy finds it by its class."""
    source, _, compiled = mapping(world, lambda value: F.udf(raise_from, "string")(value))
    world.start(compiled)
    world.produce(source, "x")
    chain = list(causes(failed(world)))
    assert [type(error) for error in chain] == [PipelineException, Poison, RuntimeError, FileNotFoundError]
    assert "nonesuch" in str(chain[-1])
    numbers = world.topic("numbers")
    builder = StreamsBuilder()
    copies = world.topic("copies")
    builder.stream(numbers, Consumed.with_(Serdes.string(), Serdes.json("n BIGINT"))).to(copies)
    topology = builder.build()
    [compiled] = world.compiled(topology)
    world.produce(numbers, b'{"n":1}', b'{"n":["no number"]}')
    world.start(compiled)
    error = failed(world)
    unfit = error.__cause__
    assert isinstance(unfit, SerializationException)
    assert (unfit.topic, unfit.partition, unfit.offset) == (numbers, 0, 1)
    assert str(unfit).startswith(
        f"{numbers}-0 offset 1 value: serde 'json' cannot read these 19 bytes: "
        "it takes BIGINT in the field 'n'"
    )
    assert "no number" not in str(error)
    head, remedy = str(error).split(f"\n{unfit}; ")
    assert head == f"pipeline p0: its query failed: the record at {numbers}-0 offset 1 cannot be read"
    assert remedy.startswith("to skip such records, set deserialization.exception.handler")
    assert "=== Streaming Query ===" not in "".join(traceback.format_exception(error))
    # The same program goes on behind it when it is told to drop such records.
    handlers = RecordHandlers(deserialization=True)
    world.engine = SparkEngine(replace(world.engine._settings, handlers=handlers), world.engine.spark)
    [compiled] = world.compiled(topology)
    running = world.start(compiled)
    world.produce(numbers, b'{"n":2}')

    def copied() -> set[bytes | None]:
        return {record.value() for record in world.read(copies, world.end_of(copies))}

    wait_until(lambda: copied() == {b'{"n":1}', b'{"n":2}'}, "the record behind it is copied")
    running.stop()


def test_stopping_is_bounded_when_the_jvm_does_not_answer() -> None:
    """The end is reported once, without an error; what the JVM says afterwards is dropped."""

    class Hanging:
        """A query of a JVM that is stopped."""

        def __init__(self) -> None:
            self.answer = threading.Event()

            self._jsq = self

        def streamingQuery(self) -> Any:
            self.answer.wait(30)
            return self

        def queryExecutionThread(self) -> Any:
            return self

        def join(self) -> None:
            raise RuntimeError("the JVM was gone")

        def stop(self) -> None:
            self.answer.wait(30)

    query: Any = Hanging()
    ends: queue.Queue[PipelineEnd] = queue.Queue()
    running = QueryPipeline("p0", (), query, ends.put, DropWatch("p0"))
    running._stop_seconds = 0.1
    begun = time.monotonic()
    running.stop()
    assert time.monotonic() - begun < 5
    assert ends.get(timeout=5) == PipelineEnd("p0", None)
    query.answer.set()
    running._waiter.join(5)
    assert ends.empty()


def test_a_jvm_that_does_not_answer_is_ended_and_its_pipelines_fail(spark: SparkSession) -> None:
    """After max.poll.interval.ms, as a thread of Kafka Streams counts as lost that does not poll so long: a
    call that waits for an answer would wait for ever, and the client be RUNNING."""

    class Silent:
        """A query of a JVM that hangs."""

        def __init__(self) -> None:
            self.answer = threading.Event()
            self._jsq = self

        def streamingQuery(self) -> Any:
            self.answer.wait(30)
            raise RuntimeError("the JVM was gone")

    tasks = TaskSettings(exactly_once=True, commit_ms=100, idle_ms=0, directory="")
    settings = SparkSettings("silent", "localhost:1", tasks, "", consumer={"max.poll.interval.ms": "200"})
    engine = SparkEngine(settings, spark)
    java = subprocess.Popen(["sleep", "100"])
    gateway: Any = SimpleNamespace(proc=java)
    engine._session._owned, engine._session._gateway = True, gateway
    query: Any = Silent()
    ends: queue.Queue[PipelineEnd] = queue.Queue()
    running = QueryPipeline("p0", (), query, ends.put, DropWatch("p0"))
    engine._running.append(running)
    error = ends.get(timeout=10).error
    assert isinstance(error, PipelineException)
    assert re.search(
        r"Java process is gone: it has not answered for \d+ s \(max.poll.interval.ms\)", str(error)
    )
    assert is_jvm_lost(error.__cause__)
    assert java.wait(10) == -signal.SIGKILL
    query.answer.set()
    running._waiter.join(5)
    assert ends.empty()
    engine._session._owned = False
    engine.close()


def test_a_thread_of_spark_that_lacks_memory_ends_the_jvm(spark: SparkSession) -> None:
    """By Spark's own handler, which has the exit code that is told as a lack of memory. What Spark catches
    itself, because it can spill, ends nothing."""
    java: Any = spark._jvm
    handler = java.java.lang.Thread.getDefaultUncaughtExceptionHandler()
    assert handler.getClass().getName() == "org.apache.spark.util.SparkUncaughtExceptionHandler"
    assert "ran out of memory" in meaning_of_exit(java.org.apache.spark.util.SparkExitCode.OOM())
    assert not is_jvm_ending()
