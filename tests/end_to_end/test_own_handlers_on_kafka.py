"""Record-level handlers of the user's own, on a real broker: asked in a worker, in the transaction."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as F
from waiting import wait_until
from world import World, key_value_store

from millstream import (
    Consumed,
    DeserializationExceptionHandler,
    ErrorHandlerResponse,
    KafkaStreams,
    Materialized,
    PipelineException,
    ProcessingExceptionHandler,
    Produced,
    ProductionExceptionHandler,
    Serdes,
    StreamsBuilder,
)

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_handlers_are_asked_and_what_they_write_is_of_the_transaction(world: World, guarantee: str) -> None:
    """Of bytes that cannot be read, a division by zero, and a record that Kafka refuses, each handler makes a
    dead letter. One that says "fail" ends the pipeline; what it writes is there, unless exactly once.
    """
    source, aside, topic = world.topic("in", 1), world.topic("aside", 1), world.name("out")
    world.kafka.create_topic(topic, 1, {"cleanup.policy": "compact"})

    class Noting:
        def configure(self, configs: Any) -> None:
            self.application = configs["application.id"]

        def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
            letter = context.dead_letter(aside, exception)
            if record.value == 13:
                return ErrorHandlerResponse.fail([letter])
            return ErrorHandlerResponse.resume([letter])

    class Reading(Noting, DeserializationExceptionHandler):
        pass

    class Processing(Noting, ProcessingExceptionHandler):
        pass

    class Writing(Noting, ProductionExceptionHandler):
        def handle_error(self, context: Any, record: Any, exception: Exception) -> ErrorHandlerResponse:
            assert (record.topic, record.key) == (topic, None)
            return super().handle_error(context, record, exception)

    builder = StreamsBuilder()
    numbers = builder.stream(source, Consumed.with_(Serdes.string(), Serdes.long()))
    tenths = numbers.map_values(lambda value: F.lit(10) / F.when(value != 13, value).otherwise(0))
    tenths.to(topic, Produced.with_(Serdes.string(), Serdes.double()))
    tenths.group_by_key().count(Materialized.as_("n"))
    client = world.client(
        builder.build(),
        processing_guarantee=guarantee,
        deserialization_exception_handler=Reading,
        processing_exception_handler=Processing(),
        production_exception_handler=Writing,
        commit_interval_ms=100,
    )

    def long(number: int) -> bytes:
        return number.to_bytes(8, "big")

    world.produce(
        source,
        [(b"a", long(1)), (b"b", b"junk"), (b"c", long(0)), (None, long(2)), *[(b"a", long(5))] * 50],
        headers=[("h", b"1")],
    )
    assert len(world.consume(topic, 51)) == 51
    letters = world.consume(aside, 3)
    assert {(letter.key, letter.value) for letter in letters} == {
        (b"b", b"junk"),
        (b"c", long(0)),
        (None, long(2)),
    }
    said = {letter.key: dict(letter.headers) for letter in letters}
    assert said[b"b"]["h"] == b"1"
    assert said[b"b"]["__streams.errors.exception"] == b"millstream.errors.SerializationException"
    assert b"KSTREAM-MAPVALUES-0000000001" in (said[b"c"]["__streams.errors.message"] or b"")
    assert (
        f"topic '{topic}' did not take a record" in (said[None]["__streams.errors.message"] or b"").decode()
    )
    assert said[None]["__streams.errors.offset"] == b"3"
    store = key_value_store(client, "n")
    wait_until(lambda: store.get("a") == 51, "the good ones are counted", 30.0)
    assert client.failures == ()

    world.produce(source, [(b"z", long(13))])
    wait_until(lambda: client.state is KafkaStreams.State.ERROR, "the pipeline has ended", 60.0)
    error = client.failures[-1].exception
    assert isinstance(error, PipelineException)
    assert "Processing of processing.exception.handler says 'fail'" in str(error)
    assert "KSTREAM-MAPVALUES-0000000001 (test_own_handlers_on_kafka.py:" in str(error)
    world.produce(aside, [(b"end", b"")])
    keys = [letter.key for letter in world.consume(aside, 4 if guarantee == "exactly_once_v2" else 5)]
    assert keys[3:] == ([b"end"] if guarantee == "exactly_once_v2" else [b"z", b"end"])
