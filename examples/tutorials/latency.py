"""Passes large orders on, and measures how long it takes: python latency.py GUARANTEE."""

import sys
import time
from datetime import timedelta
from statistics import median
from uuid import uuid4

from confluent_kafka import Consumer, Producer

from millstream import Consumed, KafkaStreams, Produced, Serdes, StreamsBuilder

builder = StreamsBuilder()
orders = builder.stream("amounts", Consumed.with_(Serdes.string(), Serdes.long()))
large = orders.filter(lambda amount: amount > 100)
large.to("large-orders", Produced.with_(Serdes.string(), Serdes.long()))
topology = builder.build()


def measure(count: int = 100) -> list[float]:
    """Milliseconds from writing an order to reading its result, one order after the other."""
    run = uuid4().hex  # a result belongs to an order by its key
    servers = {"bootstrap.servers": "localhost:9092"}
    producer = Producer({**servers, "linger.ms": 0})
    consumer = Consumer(
        {**servers, "group.id": f"measure-{run}", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 5}
    )
    consumer.subscribe(["large-orders"])
    waits = []
    for number in range(count):
        key = f"{run}-{number}".encode()
        begin = time.perf_counter()
        producer.produce("amounts", key=key, value=(500).to_bytes(8, "big"))
        producer.flush(10)
        found = None
        while found != key:
            if time.perf_counter() > begin + 60:
                raise SystemExit("no result within a minute")
            message = consumer.poll(1)
            found = message.key() if message is not None else None
        waits.append((time.perf_counter() - begin) * 1000)
    consumer.close()
    return sorted(waits[1:])  # the first one also waits for the consumer


if __name__ == "__main__":
    guarantee = sys.argv[1] if len(sys.argv) > 1 else "at_least_once"
    config = {
        "application.id": f"large-orders-{guarantee}",
        "bootstrap.servers": "localhost:9092",
        "processing.guarantee": guarantee,
    }
    with KafkaStreams(topology, config) as streams:
        streams.wait_until_running(timedelta(minutes=2))
        measure(100)  # warm up
        waits = measure()
        most = waits[int(len(waits) * 0.99) - 1]
        print(f"{guarantee}: median {median(waits):.0f} ms, 99% within {most:.0f} ms")
