"""From what Spark reports to our exceptions: the table, on texts that Spark wrote."""

from __future__ import annotations

import pytest

from millstream import MissingSourceTopicException, PipelineException
from millstream.spark.failures import translate

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


@pytest.mark.parametrize(
    ("text", "meaning", "error_class"),
    [
        (
            "Job aborted: Topic out not present in metadata after 10000 ms.",
            "a topic that the pipeline writes to does not exist; create it, then start a new client",
            None,
        ),
        (
            "[STREAM_FAILED] failed: [KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED] Some data may have been lost",
            "records were deleted from a source topic before they were read",
            "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED",
        ),
        (
            "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log.",
            "another client runs this pipeline on the same checkpoint",
            "CONCURRENT_STREAM_LOG_UPDATE",
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
