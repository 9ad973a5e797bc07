"""What the dashboard shows: a client at one moment in sections, and what stays the same while it runs.

Everything is JSON that the page puts in as text. It blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from millstream.errors import IllegalStateException, StreamsException
from millstream.server.answers import Answer
from millstream.server.figures import batches_of, flow_of, group_of, sizes_of
from millstream.server.reading import QueriedStreams
from millstream.topology.drawing import Arrow, Box, BoxKind, Drawing, drawing_of
from millstream.topology.picture import Picture, picture_of

__all__ = ["Dashboard", "machine_of"]


class Told(Protocol):
    """Answers of the query server that the page shows as they are."""

    def all_stores(self) -> Answer: ...

    def clients(self) -> Answer: ...


class Threads(Protocol):
    """The same about threads and failures."""

    def threads(self) -> Answer: ...

    def failures(self) -> Answer: ...


class Dashboard:
    """Looks at one client.

    Args:
        commands: whether the server takes commands, which needs a token.
    """

    def __init__(self, streams: QueriedStreams, about: Told, actions: Threads, *, commands: bool) -> None:
        self._streams = streams
        self._about = about
        self._actions = actions
        self._commands = commands

    def sections(self) -> dict[str, Any]:
        """All that changes, by section. A section that cannot be told now is None."""
        metrics = self._streams.metrics()
        parts: dict[str, Callable[[], Any]] = {
            "client": self._client,
            "health": lambda: self._streams.health.as_dict(),
            "threads": lambda: self._actions.threads().body["threads"],
            "stores": lambda: self._about.all_stores().body["stores"],
            "sizes": lambda: sizes_of(metrics),
            "lags": self._lags,
            "clients": lambda: self._about.clients().body["clients"],
            "failures": lambda: self._actions.failures().body["failures"],
            "batches": lambda: batches_of(metrics),
            "flow": lambda: flow_of(metrics),
            "group": lambda: group_of(metrics),
        }
        return {name: _or_none(part) for name, part in parts.items()}

    def still(self) -> Answer:
        """What stays as it is: the topology as a picture and as text, and the client's state machine."""
        topology = self._streams.topology
        return Answer(
            200,
            {
                "client": self._streams.client_id,
                "topology": picture_of(drawing_of(topology)).as_dict(),
                "described": str(topology.describe()),
                "machine": machine_of(type(self._streams.state)).as_dict(),
            },
        )

    def _client(self) -> Mapping[str, Any]:
        return {
            "id": self._streams.client_id,
            "state": self._streams.state.name,
            "paused": self._streams.is_paused,
            "commands": self._commands,
        }

    def _lags(self) -> Mapping[str, Any]:
        return {
            store: {str(partition): lag.offset_lag for partition, lag in parts.items()}
            for store, parts in self._streams.all_local_store_partition_lags().items()
        }


def _or_none(part: Callable[[], Any]) -> Any:
    try:
        return part()
    except (StreamsException, IllegalStateException):
        return None  # the client's state says why: it is closing, say


def machine_of(states: Any) -> Picture:
    """The states of a client and their transitions, drawn from the table that decides about them.

    Args:
        states: the enumeration; each member says which may follow it.
    """
    boxes = tuple(Box(state.name, BoxKind.PROCESSOR, state.name) for state in states)
    arrows = tuple(
        Arrow(state.name, new.name)
        for state in states
        for new in states
        if new is not state and state.is_valid_transition(new)
    )
    return picture_of(Drawing(boxes, arrows, ()))
