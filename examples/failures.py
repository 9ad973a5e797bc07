"""The program of orders.py with an uncaught exception handler. Start it twice, and kill one client.

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

# A missing topic may still be created. Anything else that fails five times in ten minutes, at the same
# records, ends all clients.
policy = UncaughtExceptionPolicy.by_exception(
    {MissingSourceTopicException: UncaughtExceptionPolicy.replace(first_delay=timedelta(seconds=10))},
    otherwise=UncaughtExceptionPolicy.replace(
        max_failures=5,
        window=timedelta(minutes=10),
        then=StreamThreadExceptionResponse.SHUTDOWN_APPLICATION,
    ),
)


def handler(exception: StreamsException, context: FailureContext) -> UncaughtExceptionPolicy:
    """Report the failure, and leave the decision to the policy."""
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
        "deserialization.exception.handler": "continue",  # drop and count bytes that are not JSON,
        "errors.continue.max.ratio": 0.1,  # unless they are more than a tenth of the records
    }
    streams = KafkaStreams(topology, config)
    streams.set_uncaught_exception_handler(handler)
    with streams:
        while not streams.wait(timedelta(seconds=5)).has_completed_shutdown:  # Ctrl-C ends it
            health = streams.health
            print(f"{name}: {health.status}, {'ready' if health.ready else 'not ready'}: {health.reason}")
