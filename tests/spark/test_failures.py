"""From what Spark reports to our exceptions: the table, on texts that Spark wrote."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import StreamingQueryException

from millstream import (
    ExecutorLostException,
    LostTopicException,
    MissingSourceTopicException,
    PipelineException,
    PythonWorkerException,
    SerializationException,
)
from millstream.errors import TaskMigratedException
from millstream.model import TopicPartition
from millstream.runtime.policies import causes
from millstream.runtime.state.failure import in_short
from millstream.spark import engine
from millstream.spark.jvm.session import meaning_of_exit
from millstream.spark.run import ending
from millstream.spark.run.ending import of_ended_jvm
from millstream.spark.run.failures import Report, is_jvm_lost, translate
from millstream.spark.run.worker_errors import RemoteException

UNKNOWN_TOPIC = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
    "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: "
    "This server does not host this topic-partition. SQLSTATE: XXKST"
)


def test_a_source_topic_that_is_gone_is_named() -> None:
    """Spark does not say which one: the exception has those that the pipeline reads."""
    error = translate("p1", ("orders", "customers"), RuntimeError(UNKNOWN_TOPIC))
    assert isinstance(error, MissingSourceTopicException)
    assert error.topics == ("customers", "orders")
    assert str(error) == (
        "pipeline p1: a source topic is gone: one of customers, orders; create it or change the topology, "
        "then start a new client"
    )


KERNEL = "io.millstream.kernel"
OLD, NEW = "Yq5vXz0cTKqJrE6hX8Tx1A", "kM2a9rWbQ1S8mAovQK0g2Q"


@pytest.mark.parametrize(
    ("topic", "said", "kind", "deleted", "recreated"),
    [
        ("in", f"does not exist; its id was {OLD}", MissingSourceTopicException, ("in",), ()),
        ("in", "does not exist", MissingSourceTopicException, (), ()),
        (
            "in",
            f"was deleted and made anew: its id was {OLD} and is {NEW}",
            MissingSourceTopicException,
            (),
            ("in",),
        ),
        ("log-7", f"does not exist; its id was {OLD}", MissingSourceTopicException, ("log-7",), ()),
        (
            "app-n-changelog",
            f"does not exist; its id was {OLD}",
            LostTopicException,
            ("app-n-changelog",),
            (),
        ),
    ],
)
def test_a_task_knows_which_topic_it_has_lost(
    topic: str, said: str, kind: type[Any], deleted: tuple[str, ...], recreated: tuple[str, ...]
) -> None:
    """KIP-662, KIP-516: a topic that is read is a source topic, also one of a pattern; others are written."""
    message = f"topic '{topic}' {said}"
    causes_ = (
        ("org.apache.spark.SparkException", "Job aborted"),
        (f"{KERNEL}.task.TopicLostException", message),
    )
    text = f"[STREAM_FAILED] Lost task 0.0: {KERNEL}.task.TopicLostException: {message}\n\tat x"
    for report in (Report("[STREAM_FAILED] Job aborted", causes_), Report(text)):
        error = translate("p1", ("in", "pattern 'log-[0-9]+'"), RuntimeError("x"), report=report)
        assert type(error) is kind
        assert (error.topics, error.deleted, error.recreated) == ((topic,), deleted, recreated)
        what = "source topic" if kind is MissingSourceTopicException else "topic"
        assert str(error).startswith(f"pipeline p1: {what} '{topic}'")
        assert (OLD in str(error)) == bool(recreated)


def test_a_task_that_has_moved_has_migrated() -> None:
    """As in Kafka Streams: the client drops it, and no handler is called."""
    said = "task 0_1 of 'app' has moved: another process has taken it over, or its transaction has timed out"
    report = Report("[STREAM_FAILED] Job aborted", ((f"{KERNEL}.task.TaskMovedException", said),))
    error = translate("p1", ("in",), RuntimeError("x"), report=report)
    assert isinstance(error, TaskMigratedException)
    assert str(error).startswith(f"pipeline p1: {said}. What this client had not committed does not count")


def test_a_task_that_does_not_know_where_to_read_says_so() -> None:
    """auto.offset.reset=none, or a state without offsets."""
    said = "task 0_1: where to read in-1 is not known: group 'app' has no committed offset of it"
    report = Report("[STREAM_FAILED] Job aborted", ((f"{KERNEL}.task.NoOffsetException", said),))
    error = translate("p1", ("in",), RuntimeError("x"), report=report)
    assert type(error) is PipelineException
    assert str(error) == f"pipeline p1: its query failed: {said}"


def test_a_topic_that_is_written_and_gone_is_named() -> None:
    """It is not taken for a source."""
    error = translate("p1", ("in",), RuntimeError("Job aborted: Topic out not present in metadata."))
    assert isinstance(error, LostTopicException)
    assert error.topics == ("out",)
    assert str(error) == (
        "pipeline p1: topic 'out', which it writes to, does not exist; create it, then start a new client"
    )


@pytest.mark.parametrize(
    ("text", "meaning", "error_class"),
    [
        (
            "Job aborted: TimeoutException: Expiring 1 record(s) for out-x-0:120000 ms has passed",
            "topic 'out-x', which the pipeline writes to, accepted no records within delivery.timeout.ms; "
            "check that it exists with as many partitions as before, and that its brokers work",
            None,
        ),
        (
            "[STREAM_FAILED] failed: [KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] Some data may have been lost",
            "records were deleted from a source topic before they were read",
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        ),
        ("java.io.IOException: No space left on device", "a disk is full", None),
        (
            "java.lang.OutOfMemoryError: Java heap space",
            "Spark ran out of memory; give it more: spark.driver.memory",
            None,
        ),
    ],
)
def test_what_spark_says_is_kept_and_what_it_means_is_said_first(
    text: str, meaning: str, error_class: str | None
) -> None:
    """The first line is ours, with the pipeline; Spark's own text follows."""
    error = translate("p0", ("in",), RuntimeError(text))
    assert isinstance(error, PipelineException)
    assert str(error) == f"pipeline p0: its query failed: {meaning}\n{text}"
    assert (error.pipeline, error.error_class) == ("p0", error_class)


def test_a_plan_and_a_jvm_stack_are_left_out() -> None:
    """What is between Spark's message and the plan is kept, up to forty lines."""
    text = "[CAST_INVALID_INPUT] The value 'x'\nhint\n\tat org.apache.Spark(1)\n=== Streaming Query ===\nplan"
    error = translate("p0", (), RuntimeError(text))
    assert str(error) == "pipeline p0: its query failed\n[CAST_INVALID_INPUT] The value 'x'\nhint"
    many = "\n".join(f"line {number}" for number in range(100))
    assert str(translate("p0", (), RuntimeError(many))).endswith("line 39")


CONTEXT = """[STREAM_FAILED] Query terminated with exception: [{error}] what Spark says. SQLSTATE: 22018
== DataFrame ==
"{what}" was called from
/programs/app.py:41 (KSTREAM-MAPVALUES-0000000001 (app.py:40 totals))
 SQLSTATE: XXKST
=== Streaming Query ===
plan"""


@pytest.mark.parametrize(
    ("error", "what", "said"),
    [
        ("CAST_INVALID_INPUT", "cast", "cast at app.py:41 failed for a record"),
        ("DIVIDE_BY_ZERO", "__truediv__", "/ at app.py:41 failed for a record"),
        ("INVALID_ARRAY_INDEX", "__getitem__", "[...] at app.py:41 failed for a record"),
        (
            "CAST_INVALID_INPUT",
            "__add__",
            "+ at app.py:41 failed for a record; + adds numbers, text is joined with F.concat(...)",
        ),
    ],
)
def test_an_expression_that_fails_is_told_with_its_function_and_line(
    error: str, what: str, said: str
) -> None:
    """As trace.py had Spark know it; what Spark says itself follows."""
    text = CONTEXT.format(error=error, what=what)
    place = "KSTREAM-MAPVALUES-0000000001 (app.py:40 totals)"
    first = text.partition("\n")[0]
    assert str(translate("p0", (), RuntimeError(text))) == (
        f"pipeline p0: its query failed: {place}: {said}\n{first}"
    )
    cause = text.partition("=== Streaming")[0]
    report = Report(first, (("java.lang.ArithmeticException", cause),))
    raised = translate("p0", (), RuntimeError("gone"), report=report)
    assert isinstance(raised, PipelineException)
    assert str(raised) == f"pipeline p0: its query failed: {place}: {said}\n{first}"
    assert raised.error_class == error


def test_a_place_that_is_not_ours_is_not_told() -> None:
    """An expression of the program's own session, or of Java."""
    for place in ("/programs/app.py:41", "java.base/jdk.internal.Native.invoke0(Native Method)"):
        text = f'[CAST_INVALID_INPUT] no\n== DataFrame ==\n"cast" was called from\n{place}\n'
        assert str(translate("p0", (), RuntimeError(text))) == (
            "pipeline p0: its query failed\n[CAST_INVALID_INPUT] no"
        )


def test_a_checkpoint_that_another_client_continues_is_a_migration() -> None:
    """Both wrote the same micro-batch of a `to_spark()`."""
    error = translate("p0", ("in",), RuntimeError("[CONCURRENT_STREAM_LOG_UPDATE] Update to the log."))
    assert isinstance(error, TaskMigratedException)
    assert str(error).startswith("pipeline p0: another client continues from its checkpoint")


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        ('[{"in":{"0":2}}]', '[{"in":{"0":4}}]', {("in", 0): (2, 4)}),
        # A partition with nothing to read counts as well: a budget begins anew where all are past a failure.
        (
            '{Kafka[a]: {"in":{"0":2,"1":5}}}',
            '{Kafka[a]: {"in":{"0":2,"1":7}}}',
            {("in", 0): (2, 2), ("in", 1): (5, 7)},
        ),
        # The same topic in two sources, and a partition that was added.
        (
            '[{"in":{"0":2}} {"in":{"0":1}}]',
            '[{"in":{"0":4,"3":6}} {"in":{"0":9}}]',
            {("in", 0): (1, 9), ("in", 3): (0, 6)},
        ),
        ('[{"in":{"0":2}}]', '[{"in":{"0":2}}]', {}),
        ("[-]", '[{"in":{"0":2}}]', {}),
        ('[{"in":{"0":2}}]', '[{"in":{"0":1}}]', {}),
        ('{"in": 3, "x": {"y": 1, "0": "z"}}', '{{{"', {}),
    ],
)
def test_offsets_are_those_of_the_failing_micro_batch(
    start: str, end: str, offsets: dict[tuple[str, int], tuple[int, int]]
) -> None:
    """As Spark writes them, from and to; where it was to read nothing there is no micro-batch to name."""
    error = translate("p0", (), RuntimeError(), report=Report("x", (), start, end, 8))
    assert isinstance(error, PipelineException)
    assert error.offsets == {TopicPartition(*at): span for at, span in offsets.items()}
    assert error.batch_id == (8 if offsets else None)


def remote(raised: str) -> BaseException:
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
        "Traceback (most recent call last):\n"
        f'  File "app.py", line 3, in f\n    g()\n{raised}\n SQLSTATE: 38000'
    )
    report = Report("", (("PythonException", text),))
    error = translate("p0", (), RuntimeError(), report=report)
    assert isinstance(error, PipelineException)
    assert error.__cause__ is not None
    return error.__cause__


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        ("ValueError: a\nb", ValueError, "a\nb"),
        ("ValueError", ValueError, ""),
        ("KeyError: 'k'", KeyError, "'k'"),
        ("FileNotFoundError: [Errno 2] No such file: 'x'", FileNotFoundError, "[Errno 2] No such file: 'x'"),
        ("millstream.errors.StreamsException: x", RemoteException, "millstream.errors.StreamsException: x"),
        ("json.decoder.JSONDecodeError: no: line 1", ValueError, "no: line 1"),
        # Neither imported, nor looked for outside of what is imported; and nothing that ends a process.
        ("antigravity.FlyingError: x", RemoteException, "antigravity.FlyingError: x"),
        ("os.path.join: x", RemoteException, "os.path.join: x"),
        ("SystemExit: 3", RemoteException, "SystemExit: 3"),
        ("UnicodeDecodeError: 'utf-8' codec", RemoteException, "UnicodeDecodeError: 'utf-8' codec"),
        ("builtins.eval: 1", RemoteException, "builtins.eval: 1"),
    ],
)
def test_a_python_exception_is_rebuilt_from_its_text(
    raised: str, kind: type[BaseException], text: str
) -> None:
    """Of the same class where this process has it; no constructor runs, nothing is imported."""
    cause = remote(raised)
    assert isinstance(cause, kind)
    assert str(cause) == text
    assert 'File "app.py", line 3, in f' in cause.__notes__[0]


def test_what_quotes_a_python_exception_and_adds_to_it_is_not_read_for_it() -> None:
    """As Spark does for an exception in an operator of the kernel's."""
    head = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    own = f'{head}Traceback (most recent call last):\n  File "app.py", line 3, in f\nValueError: wrong'
    causes = (
        ("SparkException", f"[TRANSFORM_WITH_STATE_USER_FUNCTION_ERROR] An error occurred. Reason: {own}\n."),
        ("io.millstream.kernel.python.PythonException", own),
    )
    error = translate("p0", (), RuntimeError(), report=Report("x", causes))
    assert repr(error.__cause__) == "ValueError('wrong')"
    assert error.error_class == "PYTHON_EXCEPTION"  # type: ignore[attr-defined]


DIRECT = "\n\nThe above exception was the direct cause of the following exception:\n\n"
WHILE = "\n\nDuring handling of the above exception, another exception occurred:\n\n"
HEAD = 'Traceback (most recent call last):\n  File "app.py", line 9, in h\n'


@pytest.mark.parametrize("between", [DIRECT, WHILE])
def test_of_chained_exceptions_each_is_rebuilt_and_is_the_cause_of_the_next(between: str) -> None:
    """What was being handled, too: a policy looks for a class among the causes. One without a place in the
    program was never raised."""
    cause = remote(
        f"ValueError: first{between}{HEAD}KeyError: 'second'{DIRECT}OSError: never raised{DIRECT}"
        f"{HEAD}TypeError: last"
    )
    chain = [(type(error), str(error)) for error in causes(cause)]
    assert chain == [
        (TypeError, "last"),
        (OSError, "never raised"),
        (KeyError, "'second'"),
        (ValueError, "first"),
    ]
    assert "ValueError: first" in cause.__notes__[0]


def test_a_cause_that_was_never_raised_stands_first_in_the_text() -> None:
    """Python prints it without a traceback."""
    text = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: OSError: a"
        f"{DIRECT}{HEAD}ValueError: b\n SQLSTATE: 38000"
    )
    error = translate("p0", (), RuntimeError(text))
    assert [type(each) for each in causes(error)] == [PipelineException, ValueError, OSError]


def test_frames_of_sparks_worker_are_left_out_of_the_note() -> None:
    """Every traceback begins with them, and they say nothing."""
    spark = '  File "/x/pyspark.zip/pyspark/worker.py", line 1, in main\n    process()\n    ^^^^^^^\n'
    own = '  File "app.py", line 3, in f\n    g()\n'
    text = (
        f"[PYTHON_EXCEPTION] An exception was thrown from the Python worker: {HEAD}{spark}{own}ValueError: x"
    )
    error = translate("p0", (), RuntimeError(text))
    assert error.__cause__ is not None
    assert error.__cause__.__notes__ == [f"In the Python worker:\n{HEAD}{own}ValueError: x"]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("record", ["a", "a-", "a-1 offset 1 ", '{"a":', "[A", "Partition a-"])
@pytest.mark.parametrize("named", ["[USER_RAISED_EXCEPTION]", "[PYTHON_EXCEPTION]", "[STREAM_FAILED]", ""])
def test_a_message_that_quotes_a_large_record_is_read_at_once(named: str, record: str) -> None:
    """Nobody hears of a failure before its text has been read."""
    spark = RuntimeError(f"{named} bad: {record * (1_000_000 // len(record))}")
    assert str(translate("p0", ("in",), spark)).startswith("pipeline p0: its query failed")


@pytest.mark.parametrize(
    ("text", "said", "record"),
    [
        (
            "[STREAM_FAILED] failed: [USER_RAISED_EXCEPTION] or-ders-3 offset 17 value: serde 'long' cannot "
            "read these 9 bytes: it takes 8 bytes SQLSTATE: P0001 SQLSTATE: XXKST",
            "or-ders-3 offset 17 value: serde 'long' cannot read these 9 bytes: it takes 8 bytes",
            ("or-ders", 3, 17),
        ),
        (
            "[USER_RAISED_EXCEPTION] in-0 offset 5 value: serde 'avro' cannot read these 9 bytes: it takes "
            "an array, such as [1] SQLSTATE: P0001",
            "in-0 offset 5 value: serde 'avro' cannot read these 9 bytes: it takes an array, such as [1]",
            ("in", 0, 5),
        ),
        (
            "[STREAM_FAILED] terminated: [OTHER_NAME] see below: [USER_RAISED_EXCEPTION] in-0 offset 5 key: "
            "serde 'long' cannot read these 9 bytes: it takes 8 bytes",
            "in-0 offset 5 key: serde 'long' cannot read these 9 bytes: it takes 8 bytes",
            ("in", 0, 5),
        ),
        (
            "[USER_RAISED_EXCEPTION] a value with the serde 'uuid' is not the 36 characters of a UUID\nx",
            "a value with the serde 'uuid' is not the 36 characters of a UUID",
            (None, None, None),
        ),
        (
            "[STREAM_FAILED] terminated with exception: Record at topic a.b partition 2 offset 30 has "
            "timestamp value 1700000000000000000 that overflows when converting to Spark's TimestampType.",
            None,
            ("a.b", 2, 30),
        ),
    ],
)
def test_what_a_serde_refuses_is_a_serialization_exception_in_the_chain(
    text: str, said: str | None, record: tuple[str | None, int | None, int | None]
) -> None:
    """With the record, where Spark's text names it; Spark's own exception comes after it."""
    spark = RuntimeError(text)
    error = translate("p0", ("in",), spark)
    unfit = error.__cause__
    assert isinstance(unfit, SerializationException)
    assert said is None or str(unfit) == said
    topic, partition, offset = record
    what = "a record cannot be read or written"
    if topic is not None:
        what = f"the record at {topic}-{partition} offset {offset} cannot be read"
    head, *remedy = str(error).split(f"\n{unfit}")
    assert head == f"pipeline p0: its query failed: {what}"
    assert ("deserialization.exception.handler" in remedy[0]) == (" cannot read these " in str(unfit))
    assert in_short(error) == f"PipelineException: pipeline p0: its query failed: {what}"
    assert (unfit.topic, unfit.partition, unfit.offset) == record
    assert unfit.__cause__ is spark


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Job aborted: Lost task 0.3: ExecutorLostFailure (executor 1 exited)", ExecutorLostException),
        ("Job aborted: Python worker exited unexpectedly (crashed)", PythonWorkerException),
        ("[CAST_INVALID_INPUT] The value 'Python worker exited unexpectedly'", PipelineException),
    ],
)
def test_what_there_is_something_to_do_about_has_a_class_of_its_own(
    text: str, kind: type[PipelineException]
) -> None:
    """All are PipelineExceptions; a record's content is no sign of a cause."""
    assert type(translate("p0", (), RuntimeError(text))) is kind


@pytest.mark.parametrize(
    ("name", "message", "told"),
    [
        (
            "org.apache.kafka.common.errors.ProducerFencedException",
            "There is a newer producer",
            "does not count",
        ),
        (
            "org.apache.kafka.common.errors.InvalidProducerEpochException",
            "Producer attempted",
            "does not count",
        ),
        ("org.apache.kafka.common.errors.TransactionAbortableException", "Abort it", "does not count"),
    ],
)
def test_a_producer_that_may_write_no_more_is_a_task_migrated(name: str, message: str, told: str) -> None:
    """As in Kafka Streams: nobody's handler is asked, and its records are processed again somewhere."""
    report = Report(
        "Job aborted", causes=(("org.apache.spark.SparkException", "Job aborted"), (name, message))
    )
    error = translate("p0", ("in",), RuntimeError("Job aborted"), report=report)
    assert isinstance(error, TaskMigratedException)
    assert message in str(error)
    assert told in str(error)


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("InvalidTxnTimeoutException", "lower producer.transaction.timeout.ms to their transaction.max"),
        ("TimeoutException", "check its brokers"),
        ("TimeoutException of offsets", "__consumer_offsets"),
        ("TransactionalIdAuthorizationException", "--transactional-id <application.id>-"),
        ("GroupAuthorizationException", "--group <application.id>)"),
    ],
)
def test_what_kafka_refuses_of_transactions_is_told_with_the_fix(name: str, fix: str) -> None:
    """The brokers' limit of the timeout, and what the user may not do."""
    said = {
        "InvalidTxnTimeoutException": "larger than allowed (as configured by transaction.max.timeout.ms)",
        "TimeoutException": "Timeout expired after 60000ms while awaiting InitProducerId",
        "TimeoutException of offsets": "Timeout expired after 60000ms while awaiting AddOffsetsToTxn",
    }.get(name, "no")
    causes = ((f"org.apache.kafka.common.errors.{name}", said),)
    report = Report(f"org.apache.kafka.common.errors.{name}: {said}", causes=causes)
    error = translate("p0", ("in",), RuntimeError("no"), report=report)
    assert type(error) is PipelineException
    assert fix in str(error)


def test_a_call_that_waits_while_the_jvm_is_killed_says_that_it_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own error names no reason. With a JVM that runs, it stays; and so does any other error."""
    waiting = Py4JError("An error occurred while calling o12.join")
    other = ValueError("An error occurred")
    monkeypatch.setattr(ending, "has_jvm_ended", lambda: True)
    said = of_ended_jvm(waiting)
    assert is_jvm_lost(said)
    assert said.__cause__ is waiting
    assert of_ended_jvm(other) is other
    monkeypatch.setattr(ending, "has_jvm_ended", lambda: False)
    assert of_ended_jvm(waiting) is waiting


def test_a_jvm_that_ends_while_a_query_is_put_away_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is raised, because the end of the query is yet to be reported."""

    def refused() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    def unanswered() -> None:
        raise Py4JError("An error occurred while calling o12.id")

    monkeypatch.setattr(ending, "has_jvm_ended", lambda: True)
    assert engine._answers(lambda: None)
    assert not engine._answers(refused)
    assert not engine._answers(unanswered)
    monkeypatch.setattr(ending, "has_jvm_ended", lambda: False)
    assert engine._answers(unanswered)


def test_a_fatal_error_in_a_task_is_the_end_of_the_jvm_whatever_its_queries_fail_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark reports the task, and then ends its process; meanwhile queries fail because it is stopping."""

    class Failed(StreamingQueryException):
        """As PySpark makes it of a JVM's exception."""

        def __init__(self, desc: str) -> None:
            self._desc = desc

    fatal = Failed("[STREAM_FAILED] Lost task 0.0: java.lang.StackOverflowError\n\tat x.y")
    stopped = Failed("[STREAM_FAILED] Job 0 cancelled because SparkContext was shut down")
    monkeypatch.setattr(ending, "is_jvm_ending", lambda within_s: False)
    assert of_ended_jvm(fatal) is fatal
    assert of_ended_jvm(stopped) is stopped
    monkeypatch.setattr(ending, "is_jvm_ending", lambda within_s: within_s > 0)
    assert is_jvm_lost(of_ended_jvm(fatal))
    assert of_ended_jvm(stopped) is stopped
    monkeypatch.setattr(ending, "is_jvm_ending", lambda within_s: True)
    said = of_ended_jvm(stopped)
    assert is_jvm_lost(said)
    assert said.__cause__ is stopped


def test_of_an_ended_jvm_is_told_how_it_ended() -> None:
    """By its exit code."""
    for code, words in (
        (3, "ran out of memory"),
        (52, "ran out of memory"),
        (-9, "SIGKILL"),
        (-11, "signal 11"),
    ):
        assert words in meaning_of_exit(code)
    report = Report("", jvm=meaning_of_exit(3))
    error = translate("p0", ("in",), ConnectionRefusedError(111, "refused"), report=report)
    assert isinstance(error, PipelineException)
    assert "is gone: it ran out of memory; give it more (spark.driver.memory)" in str(error)
    assert "; ConnectionRefusedError" in str(error)
