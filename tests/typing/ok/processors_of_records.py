"""Processors, each way to make them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from typing_extensions import override

from millstream import (
    FixedKeyProcessor,
    FixedKeyRecord,
    KeyValueStore,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    Stores,
    StreamsBuilder,
    processor,
)

counts = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()
)


class Count(Processor):
    def __init__(self, step: int = 1) -> None:
        self.step = step

    @override
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.counts: KeyValueStore = context.get_state_store("counts")
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, lambda time: None)

    @override
    def process(self, record: Record) -> None:
        self.counts.put(record.key, (self.counts.get(record.key) or 0) + self.step)
        self.context.forward(record.with_value(self.counts.get(record.key)))


class Shout(FixedKeyProcessor):
    @override
    def process(self, record: FixedKeyRecord) -> None:
        print(record.with_value(str(record.value).upper()))


@processor(store=counts)
def counted(record: Record, counts: KeyValueStore) -> Iterator[Record]:
    yield record.with_value(counts.get(record.key))


class Counts:
    """A supplier, as Kafka Streams has them."""

    def get(self) -> Processor:
        return Count(2)


builder = StreamsBuilder()
stream = builder.add_state_store(counts).stream("words")
stream.process(Count, "counts", value_serde=Serdes.long())
stream.process(lambda: Count(3), "counts")
stream.process(Counts(), "counts")
stream.process(counted)
stream.process_values(Shout).to("shouted")
