"""A fold, or a plain function, with Quix Streams: run by folds.py, in a process of its own, with the Python
that has it.

Arguments: `fold` or `map`, the broker, the topic to read, the one to write, the application's id, a directory
for state; and the address of a schema registry, if what is to be read is not JSON but Avro.
"""

from __future__ import annotations

import sys
from typing import Any


def total(order: dict[str, Any], state: Any) -> int:
    """The sum of the amounts of a key."""
    so_far: int = state.get("total", 0) + order["amount"]
    state.set("total", so_far)
    return so_far


def doubled(order: dict[str, Any]) -> int:
    """Twice the amount."""
    twice: int = order["amount"] * 2
    return twice


def main() -> None:
    """Until the process is ended."""
    from quixstreams import Application
    from quixstreams.models.serializers.avro import AvroDeserializer
    from quixstreams.models.serializers.schema_registry import SchemaRegistryClientConfig

    what, servers, source, output, application, directory, *registry = sys.argv[1:]
    values: Any = "json"
    if registry:
        config = SchemaRegistryClientConfig(url=registry[0])
        values = AvroDeserializer(schema_registry_client_config=config)
    app: Any = Application(
        broker_address=servers,
        consumer_group=application,
        auto_offset_reset="earliest",
        state_dir=directory,
        loglevel="ERROR",
    )
    orders = app.topic(source, key_deserializer="str", value_deserializer=values)
    totals = app.topic(output, key_serializer="str", value_serializer="json")
    stream = app.dataframe(orders)
    stream = stream.apply(total, stateful=True) if what == "fold" else stream.apply(doubled)
    stream.to_topic(totals)
    app.run()


if __name__ == "__main__":
    main()
