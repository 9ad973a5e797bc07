"""What an error of the producer means for the record that met it."""

from __future__ import annotations

import pytest
from java_programs import KernelJava


@pytest.mark.disk
def test_only_what_a_record_is_refused_for_goes_to_the_handler(kernel_java: KernelJava) -> None:
    """What the cluster or the rights are at fault for does not. The sentence names sizes, reason and fix."""
    lines = kernel_java("io.millstream.kernel.sink.VerdictMain").splitlines()
    verdicts = [tuple(line.split()) for line in lines[:-5]]
    assert verdicts == [
        ("RecordTooLargeException", "REFUSED"),
        ("RecordBatchTooLargeException", "REFUSED"),
        ("InvalidTimestampException", "REFUSED"),
        ("InvalidRecordException", "REFUSED"),
        ("NoSuchPartitionException", "REFUSED"),
        ("KafkaException", "BYSTANDER"),
        ("TransactionAbortedException", "BYSTANDER"),
        ("KafkaException", "BYSTANDER"),
        ("ProducerFencedException", "FENCED"),
        ("InvalidProducerEpochException", "FENCED"),
        ("TransactionAbortableException", "FENCED"),
        ("KafkaException", "FENCED"),
        ("TimeoutException", "FAILED"),
        ("TopicAuthorizationException", "FAILED"),
        ("KafkaException", "FAILED"),
        ("IllegalStateException", "FAILED"),
    ]
    # What the handler says is not asked about a changelog's record.
    assert lines[-5] == (
        "topic 'out' did not take a record (key: null, value: 2000 bytes, 1 header; about 2099 bytes in all)"
        ": RecordTooLargeException: too large for the broker; "
        "raise the topic's max.message.bytes and the producer's limit (producer.max.request.size), "
        "or keep less in each of the store's values; "
        "no handler may drop a changelog's record, because the store would lack it"
    )
    assert lines[-4] == (
        "topic 'out' did not take a record (key: null, value: 2000 bytes, 1 header; about 2099 bytes in all)"
        ": RecordTooLargeException: too large for the broker; "
        "raise the topic's max.message.bytes and the producer's limit (producer.max.request.size), "
        "or make records smaller; production.exception.handler=continue drops such records"
    )
    assert "the partitioner chose partition 9 of topic 'out', which has 3 partitions, 0 to 2" in lines[-3]
    assert "out of range; make the topic accept such times (message.timestamp.before.max.ms" in lines[-2]
    assert "no key; a compacted topic accepts no record without a key; production" in lines[-1]
