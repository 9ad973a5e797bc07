"""The record-level handlers: names for what happens to a record that cannot be read, processed or written.

They are values for the configuration, and have no code: what they say is part of Spark's plan. A handler with
code is a subclass of one in error_handlers.py. Their texts, Kafka's full class names, and plain "fail" and
"continue" mean the same.

    {"deserialization.exception.handler": millstream.LogAndContinueExceptionHandler}
"""

from __future__ import annotations

__all__ = [
    "DefaultProductionExceptionHandler",
    "LogAndContinueExceptionHandler",
    "LogAndContinueProcessingExceptionHandler",
    "LogAndContinueProductionExceptionHandler",
    "LogAndFailExceptionHandler",
    "LogAndFailProcessingExceptionHandler",
]


class LogAndFailExceptionHandler:
    """A record that its serde cannot read ends the pipeline; its thread's exception handler is asked.

    Source: org.apache.kafka.streams.errors.LogAndFailExceptionHandler, KIP-161.
    Differs: with a dead letter queue, Kafka Streams also writes the record there before it fails. Here the
    query that would write it is the one that has failed.
    """


class LogAndContinueExceptionHandler:
    """A record that its serde cannot read is dropped, counted, and written to the dead letter queue, if any.

    Source: org.apache.kafka.streams.errors.LogAndContinueExceptionHandler, KIP-161.
    Differs: one warning for some batches, with counts, and not one for each record.
    """


class LogAndFailProcessingExceptionHandler:
    """A record for which a function's result cannot be computed ends the pipeline.

    Source: org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler, KIP-1033.
    Differs: as `LogAndFailExceptionHandler` does.
    """


class LogAndContinueProcessingExceptionHandler:
    """A record for which a function's result cannot be computed goes no further.

    That is what the Columns of a function raise: a cast, an overflow, a division by zero, an index,
    `F.raise_error`. What was written of the record before, and beside, stays written.

    Source: org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler, KIP-1033.
    Differs: an exception in Python (a UDF, a fold, `peek`), and one in the Columns of `aggregate`, ends the
    pipeline all the same: Spark cannot tell which record it was.
    """


class DefaultProductionExceptionHandler:
    """A record that cannot be written ends the pipeline.

    Source: org.apache.kafka.streams.errors.DefaultProductionExceptionHandler, KIP-210.
    Differs: what can be retried is retried by the producer alone, for its `delivery.timeout.ms`.
    """


class LogAndContinueProductionExceptionHandler:
    """A record that its serde cannot write, or that Kafka refuses, is dropped.

    Records for output topics and repartition topics: too large, a time or a null key that the topic does not
    take, a partition that it does not have. What was sent together with one is sent again. Failures that are
    not about one record end the pipeline; so does a changelog record that is refused, without which its store
    would be wrong.

    Source: a ProductionExceptionHandler that answers CONTINUE, KIP-210. Differs: Kafka Streams has none
    ready-made, and asks its handler about every failed write.
    """
