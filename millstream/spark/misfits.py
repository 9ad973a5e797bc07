"""Which field of a record does not fit its JSON serde: Spark's parser does not say, Python's half does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from millstream.errors import SerializationException
from millstream.serdes.formats import JsonSerde
from millstream.serdes.serde import Serde
from millstream.topology.nodes import Node, Source, TableSource

__all__ = ["ReadWith", "sharpened", "sharpened_unfit"]

ReadWith = Mapping[Node, tuple[Serde, Serde]]
"""The serdes of keys and values that a pipeline reads its inputs with."""

_VAGUE = re.compile(r"it takes a JSON (?:object|value) that fits its schema")
_FIELD = re.compile(r"it takes [^;\n]+ in the field '[^'\n]+'")


def sharpened(said: str, serde: Serde | None, data: bytes | None) -> str:
    """The sentence about bytes that this serde cannot read; it names the field if one does not fit."""
    if not isinstance(serde, JsonSerde) or data is None or not _VAGUE.search(said):
        return said
    try:
        serde.deserialize(data)
    except SerializationException as error:
        found = _FIELD.search(str(error))
        return said if found is None else _VAGUE.sub(lambda _: found[0], said)
    return said


def sharpened_unfit(
    unfit: SerializationException,
    read_with: ReadWith,
    record: Callable[[str, int, int], tuple[bytes | None, bytes | None]],
) -> SerializationException:
    """The same for the exception about a record.

    Args:
        record: gets the bytes of the key and the value of a record of a topic, by partition and offset. It is
            called only where they may tell more.
    """
    topic, partition, offset = unfit.topic, unfit.partition, unfit.offset
    if topic is None or partition is None or offset is None:
        return unfit
    side = 0 if f"offset {offset} key: " in str(unfit) else 1
    serdes = next((pair for node, pair in read_with.items() if _reads(node, topic)), None)
    if serdes is None or not isinstance(serdes[side], JsonSerde):
        return unfit
    said = sharpened(str(unfit), serdes[side], record(topic, partition, offset)[side])
    return SerializationException(said, topic=topic, partition=partition, offset=offset)


def _reads(node: Node, topic: str) -> bool:
    if isinstance(node, TableSource):
        return node.topic == topic
    if not isinstance(node, Source):
        return False
    return topic in node.topics or bool(node.pattern and node.pattern.fullmatch(topic))
