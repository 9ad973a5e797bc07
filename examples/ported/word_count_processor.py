"""Counts words with a processor and a store; a punctuator forwards all counts every second of stream time.

Ported from: WordCountProcessorDemo.java of apache/kafka (Apache License 2.0)
What it cost: Python's `split` keeps an empty word at the end of "Hello!", which Java's leaves out; so the
    pattern matches words instead of what is between them. It needs `re.ASCII`. The rest is word for word.
"""

import re
from datetime import timedelta

from millstream import KafkaStreams, Processor, PunctuationType, Record, Serdes, Stores, Topology

# As with Java's `split`, there is an empty word before punctuation that begins a line, and in an empty line.
WORDS = re.compile(r"\w+|^(?=\W+\w|\Z)", re.ASCII)


class WordCountProcessor(Processor):
    def init(self, context):
        self.context = context
        self.counts = context.get_state_store("Counts")
        context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, self.tell)

    def process(self, record):
        for word in WORDS.findall(record.value.lower()):
            self.counts.put(word, (self.counts.get(word) or 0) + 1)

    def tell(self, timestamp):
        print(f"The counts at {timestamp}:")
        with self.counts.all() as counts:
            for word, count in counts:
                print(f"  {word}: {count}")
                self.context.forward(Record(word, str(count), timestamp))


counts = Stores.key_value_store_builder(
    Stores.in_memory_key_value_store("Counts"), Serdes.string(), Serdes.integer()
)
topology = (
    Topology()
    .add_source("Source", "streams-plaintext-input")
    .add_processor("Process", WordCountProcessor, "Source")
    .add_state_store(counts, "Process")
    .add_sink("Sink", "streams-wordcount-processor-output", "Process")
)
config = {"default.key.serde": "string", "default.value.serde": "string", "statestore.cache.max.bytes": 0}

if __name__ == "__main__":
    config |= {"application.id": "streams-wordcount-processor", "bootstrap.servers": "localhost:9092"}
    with KafkaStreams(topology, config) as streams:
        streams.wait()  # Ctrl-C ends it
