"""Jobs of Quix Streams, each run in a process of its own, with the Python that has Quix Streams.

Arguments: the job, the broker, the topics to read and the one to write, the application's id, a directory for
state; and the address of a schema registry, if the input is Avro and not JSON. It prints a line of JSON when
it reads its first record, and ends when its input does. `QUIX_LINGER_MS` is its producer's linger.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from datetime import timedelta
from typing import Any

_TUMBLING = timedelta(seconds=20)
_NEAR = timedelta(seconds=5)
_GRACE = timedelta(hours=1)


def total(order: dict[str, Any], state: Any) -> int:
    """The sum of the amounts of a key."""
    so_far: int = state.get("total", 0) + order["amount"]
    state.set("total", so_far)
    return so_far


def counted(value: Any, state: Any) -> int:
    """How many records a key has had."""
    count: int = state.get("count", 0) + 1
    state.set("count", count)
    return count


def doubled(order: dict[str, Any]) -> int:
    """Twice the amount."""
    twice: int = order["amount"] * 2
    return twice


def both(one: str, other: str) -> str:
    """Both sides of a join."""
    return f"{one},{other}"


def build(app: Any, job: str, left: str, right: str, output: str, values: Any) -> None:
    """Build the job's streams."""
    strings = {"key_deserializer": "str", "value_deserializer": "str"}
    if job in ("fold", "udf"):
        source = app.topic(left, key_deserializer="str", value_deserializer=values)
        numbers = app.topic(output, key_serializer="str", value_serializer="json")
        stream = app.dataframe(source)
        stream = stream.apply(total, stateful=True) if job == "fold" else stream.apply(doubled)
        stream.to_topic(numbers)
        return
    stream = app.dataframe(app.topic(left, key_deserializer="str", value_deserializer=values))
    texts = app.topic(output, key_serializer="str", value_serializer="str")
    numbers = app.topic(output, key_serializer="str", value_serializer="json")
    if job == "map":
        stream.filter(lambda value: not value.startswith("drop")).apply(str.upper).to_topic(texts)
    elif job == "words":
        words = stream.apply(lambda line: line.lower().split(" "), expand=True)
        words = words.group_by(
            lambda word: word, name="word", value_deserializer="str", value_serializer="str"
        )
        words.apply(counted, stateful=True).to_topic(numbers)
    elif job == "count":
        stream.apply(counted, stateful=True).to_topic(numbers)
    elif job == "windows":
        stream.tumbling_window(_TUMBLING, grace_ms=_GRACE).count().current().to_topic(numbers)
    elif job == "sessions":
        stream.session_window(_NEAR, grace_ms=_GRACE).count().current().to_topic(numbers)
    elif job == "join":
        other = app.dataframe(app.topic(right, **strings))
        stream.join_interval(
            other,
            how="inner",
            on_merge=both,
            grace_ms=_GRACE,
            backward_ms=_NEAR,
            forward_ms=_NEAR,
        ).to_topic(texts)
    elif job == "lookup":
        other = app.dataframe(app.topic(right, **strings))
        stream.join_asof(other, how="inner", on_merge=both, grace_ms=_GRACE).to_topic(texts)
    else:
        raise ValueError(f"no job '{job}'")


def main() -> None:
    """Run until the input ends."""
    from quixstreams import Application
    from quixstreams.models.serializers.avro import AvroDeserializer
    from quixstreams.models.serializers.json import JSONDeserializer
    from quixstreams.models.serializers.schema_registry import SchemaRegistryClientConfig
    from quixstreams.models.serializers.simple_types import StringDeserializer

    def end_with_the_input() -> None:
        sys.stdin.read()
        os._exit(0)

    threading.Thread(target=end_with_the_input, name="input", daemon=True).start()
    job, servers, left, right, output, application, directory, *registry = sys.argv[1:]
    kind: Any = (
        AvroDeserializer if registry else JSONDeserializer if job in ("fold", "udf") else StringDeserializer
    )

    class Noting(kind):  # type: ignore[misc]
        """Reports its first call; costs nothing from then on."""

        def __call__(self, *given: Any, **named: Any) -> Any:
            del Noting.__call__
            print(json.dumps({"at": time.time()}), flush=True)
            return self(*given, **named)

    values: Any = Noting()
    if registry:
        values = Noting(schema_registry_client_config=SchemaRegistryClientConfig(url=registry[0]))
    app: Any = Application(
        broker_address=servers,
        consumer_group=application,
        auto_offset_reset="earliest",
        state_dir=directory,
        loglevel="ERROR",
        producer_extra_config={"linger.ms": float(os.environ.get("QUIX_LINGER_MS", "5"))},
    )
    build(app, job, left, right, output, values)
    app.run()


if __name__ == "__main__":
    main()
