"""From what Spark reports to our exceptions: the table, on texts that Spark wrote."""

from __future__ import annotations

import pytest

from millstream import LostTopicException, MissingSourceTopicException, PipelineException
from millstream.errors import TaskMigratedException
from millstream.model import TopicPartition
from millstream.ports import CheckpointClaim
from millstream.spark.failures import RemoteException, Report, translate

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
            "topic 'out-x', which the pipeline writes to, has not taken records within delivery.timeout.ms; "
            "see whether it is there, with as many partitions as before, and whether its brokers are well",
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
        (
            "[USER_RAISED_EXCEPTION] in-0 offset 1 value: serde 'long' cannot read these 9 bytes: it takes 8",
            "a record does not fit its serde",
            "USER_RAISED_EXCEPTION",
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


CLAIM = CheckpointClaim("p0", "/data/checkpoints/p0/4", 4)
FENCED = "Parent path is not a directory: file:/data/checkpoints/p0/4"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        (FENCED, "/data/checkpoints/p0/4"),
        (FENCED, "file:///data/checkpoints/p0/4/"),
        ("FileAlreadyExistsException: /data/checkpoints/p0/4/offsets", "/data/checkpoints/p0/4"),
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.", "s3a://bucket/p0/4"),
    ],
)
def test_a_checkpoint_that_was_claimed_is_a_migration(text: str, path: str) -> None:
    """With the pipeline and the epoch of the claim that was lost."""
    error = translate("p0", ("in",), RuntimeError(text), claim=CheckpointClaim("p0", path, 4))
    assert isinstance(error, TaskMigratedException)
    assert str(error).startswith(
        "pipeline p0: another client has taken over its checkpoint, which this one had claimed at epoch 4"
    )


@pytest.mark.parametrize(
    "text",
    [
        "Parent path is not a directory: file:/data/elsewhere",
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
        "Traceback (most recent call last):\n"
        f'  File "a.py", line 1, in f\nOSError: {FENCED}\n SQLSTATE: 38000',
    ],
)
def test_another_path_or_a_users_own_error_is_no_migration(text: str) -> None:
    """It would never reach the handler."""
    assert isinstance(translate("p0", ("in",), RuntimeError(text), claim=CLAIM), PipelineException)


def test_a_topic_made_anew_is_told_from_one_whose_records_are_gone() -> None:
    """Offsets that went back belong to another topic of the same name."""
    text = "Some data may have been lost\nReason: Partition or.d-ers-12 offset was changed from {} to {}."
    error = translate("p0", ("or.d-ers",), RuntimeError(text.format(30, 4)))
    assert isinstance(error, MissingSourceTopicException)
    assert (error.topics, error.deleted, error.recreated) == (("or.d-ers",), (), ("or.d-ers",))
    assert isinstance(translate("p0", ("or.d-ers",), RuntimeError(text.format(4, 30))), PipelineException)


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


def test_of_chained_exceptions_the_last_one_is_rebuilt_and_all_are_in_the_note() -> None:
    """As Python prints them."""
    cause = remote(
        "ValueError: first\n\nThe above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "app.py", line 9, in h\nTypeError: second'
    )
    assert (type(cause), str(cause)) == (TypeError, "second")
    assert "ValueError: first" in cause.__notes__[0]
