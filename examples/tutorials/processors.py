"""Warns once when a card is declined three times within ten minutes, and forgets cards that are quiet."""

from datetime import timedelta

from millstream import Consumed, Processor, Produced, PunctuationType, Serdes, Stores, StreamsBuilder

LIMIT = 3
TEN_MINUTES = 10 * 60 * 1000  # milliseconds, like the timestamps of records


class Declined(Processor):
    """Keeps the times at which each card was declined."""

    def init(self, context):
        self.context = context
        self.declined = context.get_state_store("declined")
        context.schedule(timedelta(minutes=1), PunctuationType.STREAM_TIME, self.forget)

    def process(self, record):
        if record.value != "declined":
            return
        times = [int(time) for time in (self.declined.get(record.key) or "").split()]
        times = [time for time in times if time > record.timestamp - TEN_MINUTES] + [record.timestamp]
        if len(times) == LIMIT:
            self.context.forward(record.with_value(f"declined {LIMIT} times"))
        self.declined.put(record.key, " ".join(map(str, times)))

    def forget(self, now):
        for card, times in self.declined.all():
            if int(times.split()[-1]) <= now - TEN_MINUTES:
                self.declined.delete(card)


store = Stores.persistent_key_value_store("declined")
builder = StreamsBuilder()
builder.add_state_store(Stores.key_value_store_builder(store, Serdes.string(), Serdes.string()))
cards = builder.stream("cards", Consumed.with_(Serdes.string(), Serdes.string()))
cards.process(Declined, "declined").to("warnings", Produced.with_(Serdes.string(), Serdes.string()))
topology = builder.build()
