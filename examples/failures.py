"""The program of orders.py, with a say in what happens when something fails. Start it twice, and kill one.

.venv/bin/millstream kafka --port 9092 --topic orders:2 --topic customer-totals:2
.venv/bin/python examples/failures.py one
.venv/bin/python examples/failures.py two
"""

import sys
from datetime import timedelta
from pathlib import Path

from orders import topology

from millstream import (
    FailureContext,
    KafkaStreams,
    MissingSourceTopicException,
    StreamsException,
    StreamThreadExceptionResponse,
    UncaughtExceptionPolicy,
)

# A topic that is missing may come; whatever else fails five times in ten minutes, without getting past the
# records it fails on, ends all clients.
policy = UncaughtExceptionPolicy.by_exception(
    {MissingSourceTopicException: UncaughtExceptionPolicy.replace(first_delay=timedelta(seconds=10))},
    otherwise=UncaughtExceptionPolicy.replace(
        max_failures=5,
        window=timedelta(minutes=10),
        then=StreamThreadExceptionResponse.SHUTDOWN_APPLICATION,
    ),
)


def handler(exception: StreamsException, context: FailureContext) -> UncaughtExceptionPolicy:
    """Tell somebody, then leave it to the policy."""
    where = context.pipeline or context.thread
    print(f"{where} failed, attempt {context.attempt}: {exception}", file=sys.stderr)
    return policy


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else "one"
    here = Path("build") / "example-failures"
    config = {
        "application.id": "orders-safely",
        "bootstrap.servers": "localhost:9092",
        "client.id": name,
        "state.dir": str(here / name),  # each client has its own
        "checkpoint.location": str((here / "checkpoints").absolute()),  # all clients share this one
        "deserialization.exception.handler": "continue",  # bytes that are no JSON are dropped and counted,
        "errors.continue.max.ratio": 0.1,  # unless they are more than a tenth
    }
    streams = KafkaStreams(topology, config)
    streams.set_uncaught_exception_handler(handler)
    with streams:
        while not streams.wait(timedelta(seconds=5)).has_completed_shutdown:  # Ctrl-C ends it
            health = streams.health
            print(f"{name}: {health.status}, {'ready' if health.ready else 'not ready'}: {health.reason}")
