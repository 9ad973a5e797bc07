"""The record-level handlers: names for what happens to a record that cannot be read, processed or written.

They are values for the configuration, and have no code: their decisions are part of Spark's plan. A handler
with code is a subclass of one in error_handlers.py. Instead of these classes, the configuration also takes
their names, Kafka's full class names, and plain "fail" and "continue".

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
    """A record that its serde cannot read ends the pipeline; its thread's exception handler is called.

    Source: org.apache.kafka.streams.errors.LogAndFailExceptionHandler, KIP-161.
    Differs: with a dead letter queue, Kafka Streams also writes the record there before it fails. Here the
    query that would write it is the one that has failed.
    """


class LogAndContinueExceptionHandler:
    """A record that its serde cannot read is dropped, counted, and written to the dead letter queue, if any.

    Source: org.apache.kafka.streams.errors.LogAndContinueExceptionHandler, KIP-161.
    Differs: one warning with counts for several batches, rather than one for each record.
    """


class LogAndFailProcessingExceptionHandler:
    """A record for which a function's result cannot be computed ends the pipeline.

    Source: org.apache.kafka.streams.errors.LogAndFailProcessingExceptionHandler, KIP-1033.
    Differs: as `LogAndFailExceptionHandler` does.
    """


class LogAndContinueProcessingExceptionHandler:
    """A record for which a function's result cannot be computed is dropped.

    This covers what the Columns of a function raise: a cast, an overflow, a division by zero, an index,
    `F.raise_error`. What other steps wrote for the record stays written.

    Source: org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler, KIP-1033.
    Differs: an exception in Python (a UDF, a fold, `peek`) or in the Columns of `aggregate` still ends the
    pipeline: Spark cannot tell which record it was.
    """


class DefaultProductionExceptionHandler:
    """A record that cannot be written ends the pipeline.

    Source: org.apache.kafka.streams.errors.DefaultProductionExceptionHandler, KIP-210.
    Differs: only the producer retries, for its `delivery.timeout.ms`.
    """


class LogAndContinueProductionExceptionHandler:
    """A record that its serde cannot write, or that Kafka rejects, is dropped.

    It applies to records for output topics and repartition topics that are too large, have a time or a null
    key that the topic does not accept, or go to a partition that does not exist. Records sent in the same
    request are sent again. Failures that are not about one record end the pipeline. So does a rejected
    changelog record, without which its store would be wrong.

    Source: a ProductionExceptionHandler that answers CONTINUE, KIP-210. Differs: Kafka Streams has no such
    class, and calls its handler for every failed write.
    """
