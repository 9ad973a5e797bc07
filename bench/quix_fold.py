"""A fold with Quix Streams: run by folds.py with the Python that has it, in a process of its own.

Arguments: the broker, the topic to read, the one to write, the application's id, a directory for state.
"""

from __future__ import annotations

import sys
from typing import Any


def total(order: dict[str, Any], state: Any) -> int:
    """The sum of the amounts of a key."""
    so_far: int = state.get("total", 0) + order["amount"]
    state.set("total", so_far)
    return so_far


def main() -> None:
    """Until the process is ended."""
    from quixstreams import Application

    servers, source, output, application, directory = sys.argv[1:]
    app: Any = Application(
        broker_address=servers,
        consumer_group=application,
        auto_offset_reset="earliest",
        state_dir=directory,
        loglevel="ERROR",
    )
    orders = app.topic(source, key_deserializer="str", value_deserializer="json")
    totals = app.topic(output, key_serializer="str", value_serializer="json")
    app.dataframe(orders).apply(total, stateful=True).to_topic(totals)
    app.run()


if __name__ == "__main__":
    main()
