"""Passes large orders on, and measures how long that takes: python real_time.py micro-batch|real-time."""

import sys
import time
from datetime import timedelta
from statistics import median

from confluent_kafka import Consumer, Producer

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
orders = builder.stream("amounts", Consumed.with_(Serdes.string(), Serdes.long()))
large = orders.filter(lambda amount: amount > 100)
large.to("large-orders", Produced.with_(Serdes.string(), Serdes.long()))
topology = builder.build()


def measure(count: int = 100) -> list[float]:
    """Milliseconds from writing an order to reading the result, one order after the other."""
    producer = Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 0})
    consumer = Consumer(
        {"bootstrap.servers": "localhost:9092", "group.id": "measure", "fetch.wait.max.ms": 5}
    )
    consumer.subscribe(["large-orders"])
    waits = []
    deadline = time.monotonic() + 120
    while len(waits) < count and time.monotonic() < deadline:
        begin = time.perf_counter()
        producer.produce("amounts", key="o", value=(500).to_bytes(8, "big"))
        producer.flush(10)
        if consumer.poll(10) is not None:
            waits.append((time.perf_counter() - begin) * 1000)
    consumer.close()
    return sorted(waits)


if __name__ == "__main__":
    mode = sys.argv[1] if len(sys.argv) > 1 else "micro-batch"
    config = {
        "application.id": f"large-orders-{mode}",
        "bootstrap.servers": "localhost:9092",
        "processing.mode": mode,
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        measure(20)  # warm up
        waits = measure()
        print(f"{mode}: median {median(waits):.0f} ms, 99% within {waits[int(len(waits) * 0.99) - 1]:.0f} ms")
