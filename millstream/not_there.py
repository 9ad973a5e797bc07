"""What Kafka Streams has and Millstream does not have yet, so that errors can say so.

A class does this by inheriting `ExplainsMissingNames`, and for attributes of the class itself, such as
`Serdes.String()`, by the metaclass `ExplainsPythonNames`. Any other missing attribute raises a normal
AttributeError with the name that was probably meant, because Java's names are spelled differently here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

__all__ = ["NOT_YET", "ExplainsMissingNames", "ExplainsPythonNames"]

_PROCESS = "it was removed from Kafka Streams: use process()"
_PROCESS_VALUES = "it was removed from Kafka Streams: use process_values()"
_HEADERS = "stores keep timestamps but no headers: use the method without 'with_headers'"

NOT_YET: Mapping[str, Mapping[str, str]] = {
    "KStream": {
        "transform": _PROCESS,
        "transform_values": _PROCESS_VALUES,
        "flat_transform": _PROCESS,
        "flat_transform_values": _PROCESS_VALUES,
        "branch": "it is deprecated in Kafka Streams: use split()",
        "through": "it is deprecated in Kafka Streams: use repartition()",
    },
    "Stores": {
        "lru_map": "a store is a view of its changelog and holds all keys, as Spark's state does, so no key "
        "can be evicted to keep a maximum number; use in_memory_key_value_store() or a window",
        "persistent_timestamped_key_value_store_with_headers": _HEADERS,
        "persistent_timestamped_window_store_with_headers": _HEADERS,
        "persistent_session_store_with_headers": _HEADERS,
        "timestamped_key_value_store_with_headers_builder": _HEADERS,
        "timestamped_window_store_with_headers_builder": _HEADERS,
        "session_store_with_headers_builder": _HEADERS,
    },
    "KafkaStreams": {
        "client_instance_ids": "brokers give such an id to each Kafka client that pushes metrics to "
        "them (KIP-714), and Spark's clients do not expose theirs; metrics has this client's own figures",
        "register_metric_for_subscription": "client metrics (KIP-714) are not supported yet",
        "unregister_metric_from_subscription": "client metrics (KIP-714) are not supported yet",
        "local_threads_metadata": "it was removed from Kafka Streams: use metadata_for_local_threads()",
        "all_metadata": "it was removed from Kafka Streams: use metadata_for_all_streams_clients()",
    },
}
"""By class and name: what to do instead. Names are Millstream's, which are Java's with underscores."""


class ExplainsMissingNames:
    """A class whose AttributeErrors mention Kafka Streams."""

    __slots__ = ()

    if not TYPE_CHECKING:  # type checkers should still find missing attributes

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                # One of our properties failed with an AttributeError, which must be visible.
                return object.__getattribute__(self, name)
            # The object is left out; otherwise Python's own suggestion would follow ours in tracebacks.
            raise AttributeError(_sentence(kind, name), name=name, obj=None)


class ExplainsPythonNames(type):
    """A metaclass whose AttributeErrors know how names are spelled here."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            raise AttributeError(_sentence(cls, name, "type object {!r}"), name=name, obj=None)


def _sentence(kind: type, name: str, whose: str = "{!r} object") -> str:
    message = f"{whose.format(kind.__name__)} has no attribute {name!r}"
    if name.startswith("_"):
        return message  # copy, pickle, IPython and the like probe for optional attributes
    here = [each for each in dir(kind) if not each.startswith("_")]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    for each in kind.__mro__:
        instead = NOT_YET.get(each.__name__, {}).get(snake)
        if instead is not None:
            return f"{message}: Millstream does not have Kafka Streams' {each.__name__}.{name}; {instead}"
    if snake in here:
        return f"{message}. Did you mean '{snake}'?"
    near = get_close_matches(snake, here, n=1)
    return f"{message}. Did you mean '{near[0]}'?" if near else message
