"""Drops an event if the same one was seen in the five minutes before it or after it.

Ported from: EventDeduplicationLambdaIntegrationTest.java of confluentinc/kafka-streams-examples (Apache
    License 2.0)
What it cost: Nothing. The processor is a generator, with `yield` for `context.forward`. An event is its own
    id, where the original has a function for that.
"""

from datetime import timedelta

from millstream import Consumed, KafkaStreams, Serdes, Stores, StreamsBuilder, processor

REMEMBERED = timedelta(minutes=10)
HALF_MS = REMEMBERED // timedelta(milliseconds=2)

events = Stores.window_store_builder(
    Stores.persistent_window_store("eventId-store", REMEMBERED, REMEMBERED), Serdes.string(), Serdes.long()
)


@processor(store=events)
def deduplicate(record, events):
    event, time = record.value, record.timestamp
    if event is None:  # no id to identify it
        yield record
        return
    with events.fetch(event, time - HALF_MS, time + HALF_MS) as seen:
        is_new = not seen.has_next()
    events.put(event, time, time)
    if is_new:
        yield record


builder = StreamsBuilder()
(
    builder.stream("inputTopic", Consumed.with_(Serdes.bytes(), Serdes.string()))
    .process(deduplicate)
    .to("outputTopic")
)
topology = builder.build()

if __name__ == "__main__":
    config = {
        "application.id": "deduplication-lambda-integration-test",
        "bootstrap.servers": "localhost:9092",
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
