"""Computes the price per item of each order: python failures.py, or python failures.py --skip."""

import logging
import sys
from datetime import timedelta
from textwrap import shorten

from millstream import (
    Consumed,
    FailureContext,
    KafkaStreams,
    Produced,
    Serdes,
    StreamsBuilder,
    StreamsException,
    UncaughtExceptionPolicy,
)

order = Serdes.json("customer string, total double, items int")

builder = StreamsBuilder()
orders = builder.stream("orders", Consumed.with_(Serdes.string(), order))
prices = orders.map_values(lambda order: order.total / order["items"])
prices.to("prices", Produced.with_(Serdes.string(), Serdes.double()))
topology = builder.build()

config = {"application.id": "prices", "bootstrap.servers": "localhost:9092"}
skip = {
    "deserialization.exception.handler": "continue",  # for a value that is not JSON
    "processing.exception.handler": "continue",  # for a division by zero
    "errors.dead.letter.queue.topic.name": "orders-dead",
}

policy = UncaughtExceptionPolicy.replace(max_failures=2, window=timedelta(minutes=10))


def handler(exception: StreamsException, context: FailureContext) -> UncaughtExceptionPolicy:
    """Report the failure, and leave the decision to the policy."""
    print(f"attempt {context.attempt}: {shorten(str(exception), 280)}", flush=True)
    return policy


if __name__ == "__main__":
    logging.basicConfig(filename="failures.log", level=logging.INFO)
    streams = KafkaStreams(topology, config | skip if "--skip" in sys.argv else config)
    streams.set_uncaught_exception_handler(handler)
    try:
        with streams:
            streams.wait_until_running(timedelta(minutes=2))
            print("running; press Ctrl-C to stop", flush=True)
            streams.wait()
    except StreamsException:
        print("the client has ended:", streams.state.name)
