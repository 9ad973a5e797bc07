"""The dashboard: what it shows of a client, how watchers are sent what has changed, and the page's files.

All data is JSON, which the page inserts as text. Reading this client's state blocks, so it has a thread. All
watchers share one look at the client, once a second. Each gets the sections that have changed since its last
event, so a slow watcher misses intermediate states but never the latest one. When the last watcher has left,
the looks stop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from millstream.errors import IllegalStateException, StreamsException
from millstream.foreign import printable
from millstream.metrics.client_metrics import ClientMetrics
from millstream.metrics.metrics_table import (
    CONSUMER,
    COORDINATOR,
    DROPPED,
    GROUP,
    NODE,
    SPARK,
    STATE,
    STORES,
)
from millstream.query.metadata import HostInfo
from millstream.remote.answers import Answer, Refused
from millstream.remote.http_wire import Deadline, Reply
from millstream.remote.routes import RemoteRequest
from millstream.server.local_stores import QueriedStreams
from millstream.server.peers import Peers
from millstream.topology.drawing import Arrow, Box, BoxKind, Drawing, drawing_of
from millstream.topology.picture import Picture, picture_of

__all__ = [
    "Dashboard",
    "Live",
    "Others",
    "Site",
    "answer_of",
    "batches_of",
    "figures_of",
    "flow_of",
    "group_of",
    "machine_of",
    "sizes_of",
]

log = logging.getLogger(__name__)


class ClientAnswers(Protocol):
    """Answers about stores and clients, which the page shows unchanged."""

    def all_stores(self) -> Answer: ...

    def clients(self) -> Answer: ...


class ThreadAnswers(Protocol):
    """Answers about threads and failures, which it shows unchanged too."""

    def threads(self) -> Answer: ...

    def failures(self) -> Answer: ...


class Dashboard:
    """The dashboard's data about one client.

    Args:
        commands: whether the server takes commands, which needs a token.
    """

    def __init__(
        self, streams: QueriedStreams, about: ClientAnswers, actions: ThreadAnswers, *, commands: bool
    ) -> None:
        self._streams = streams
        self._about = about
        self._actions = actions
        self._commands = commands

    def sections(self) -> dict[str, Any]:
        """Everything that changes, by section. A section that is not available now is None."""
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
        """What is constant: the topology as a picture and as text, and the client's state machine."""
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
        return None  # the client's state says why: for example, it is closing


def machine_of(states: Any) -> Picture:
    """The states of a client and their transitions, drawn from the table that governs them.

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


# --- figures from the metrics --------------------------------------------------------------------------

# Figures for the dashboard, from a client's metrics: batches, rates and lag by topic and node. Pure.
#
# A figure that is missing, or not a number, is None. JSON has no NaN, and no value is better than a
# guess.

Number = int | float

_BATCH = (
    "batch-id",
    "batches-total",
    "batch-rate",
    "batch-duration-last",
    "batch-duration-avg",
    "batch-duration-max",
    "input-rows-total",
    "input-rows-rate",
    "input-rows-per-second",
    "processed-rows-per-second",
    "last-batch-timestamp",
)


def batches_of(metrics: ClientMetrics) -> list[dict[str, Any]]:
    """Batches: one entry for each pipeline, by name."""
    found: dict[str, dict[str, Any]] = {}

    def of(pipeline: str) -> dict[str, Any]:
        return found.setdefault(pipeline, {"pipeline": pipeline, **dict.fromkeys(_BATCH), "parts": {}})

    for name, tags, value in _numbers(metrics, SPARK):
        if name in _BATCH:
            of(tags["pipeline"])[name] = value
        elif name == "part-duration-avg":
            of(tags["pipeline"])["parts"][tags["part"]] = value
    return [found[pipeline] for pipeline in sorted(found)]


def figures_of(metrics: ClientMetrics) -> list[dict[str, Any]]:
    """Every metric, by group, name and tags."""
    return [
        {
            "group": name.group,
            "name": name.name,
            "tags": dict(name.tags),
            "value": metric.value if isinstance(metric.value, str) or math.isfinite(metric.value) else None,
            "description": name.description,
        }
        for name, metric in sorted(
            metrics.items(), key=lambda each: (each[0].group, each[0].name, each[0].tags)
        )
    ]


def flow_of(metrics: ClientMetrics) -> dict[str, Any]:
    """The flow of records: for each topic its lag and read rate, for each node its rate and the number of
    records that it has dropped."""
    lag: defaultdict[str, Number] = defaultdict(int)
    rate: defaultdict[str, Number] = defaultdict(float)
    nodes: defaultdict[str, Number] = defaultdict(float)
    dropped: defaultdict[str, Number] = defaultdict(int)
    for name, tags, value in _numbers(metrics, CONSUMER):
        if value is not None and name == "records-lag":
            lag[tags["topic"]] += value
        elif value is not None and name == "records-consumed-rate" and "topic" in tags:
            rate[tags["topic"]] += value
    for name, tags, value in _numbers(metrics, NODE):
        if value is not None and name == "process-rate":
            nodes[tags["processor-node-id"]] += value
    for name, tags, value in _numbers(metrics, DROPPED):
        if value is not None and name == "dropped-records-total":
            dropped[tags["processor-node-id"]] += value
    return {
        "topics": {
            topic: {"lag": lag.get(topic), "rate": rate.get(topic)} for topic in sorted({*lag, *rate})
        },
        "nodes": dict(sorted(nodes.items())),
        "dropped": dict(sorted(dropped.items())),
    }


def sizes_of(metrics: ClientMetrics) -> dict[str, dict[str, Number]]:
    """For each store, the approximate number of keys, bytes on disk, and lag of the part that this client
    has."""
    kinds = {"estimate-num-keys": "keys", "total-sst-files-size": "bytes", "lag": "lag"}
    found: dict[str, dict[str, Number]] = {}
    for group in (STATE, STORES):
        for name, tags, value in _numbers(metrics, group):
            store = tags.get("store") or next((tags[tag] for tag in tags if tag.endswith("state-id")), "")
            if value is not None and name in kinds and store:
                figures = found.setdefault(store, {})
                figures[kinds[name]] = figures.get(kinds[name], 0) + value
    return found


def group_of(metrics: ClientMetrics) -> dict[str, Number | None]:
    """The group, as this client sees it: members, rebalances, and how long recovery took."""
    wanted = {
        (GROUP, "members"),
        (GROUP, "recovery-total"),
        (GROUP, "recovery-time-last"),
        (GROUP, "recovery-time-max"),
        (COORDINATOR, "rebalance-total"),
        (COORDINATOR, "failed-rebalance-total"),
        (COORDINATOR, "last-rebalance-seconds-ago"),
    }
    found: dict[str, Number | None] = dict.fromkeys(sorted(name for _, name in wanted))
    for group in (GROUP, COORDINATOR):
        found.update({name: value for name, _, value in _numbers(metrics, group) if (group, name) in wanted})
    return found


def _numbers(metrics: ClientMetrics, group: str) -> Iterator[tuple[str, Mapping[str, str], Number | None]]:
    """The metrics of a group that are numbers: their name, tags and value."""
    for name, metric in metrics.items():
        if name.group == group and not isinstance(metric.value, str):
            yield name.name, dict(name.tags), metric.value if math.isfinite(metric.value) else None


# --- the health of the other clients -------------------------------------------------------------------

# For the dashboard, each of the other clients is queried for its health every few seconds.
#
# They are queried like for any forwarded request (peers.py): only the allowed ones, and each has to
# prove that it is a client. Their answers are treated as text.

_EVERY_S = 5.0
_WAIT_S = 2.0
_MOST = 64
"""The maximum number of clients that are queried."""
_MOST_REASON = 300


class Others:
    """Queries the other clients, and keeps their latest answers. Used on one event loop.

    Args:
        host: this client's own endpoint, which is not queried.
    """

    def __init__(self, peers: Peers, host: HostInfo | None) -> None:
        self._peers = peers
        self._host = host
        self._asking: asyncio.Task[None] | None = None
        self._again = Deadline(0.0)
        self._answers: list[dict[str, Any]] = []

    def look(
        self, clients: Sequence[Mapping[str, Any]] | None, own: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        """The latest known health. This does not wait: answers to queries sent now appear in a later call.

        Args:
            clients: those of the application; None: unknown now. `own`: this client's health.
        """
        hosts = [HostInfo.parse(each["host"]) for each in (clients or ())][:_MOST]
        others = [host for host in hosts if host != self._host]
        if others and self._again.remaining_s <= 0 and (self._asking is None or self._asking.done()):
            self._again = Deadline(_EVERY_S)
            self._asking = asyncio.create_task(self._ask(others))
        known = [each for each in self._answers if HostInfo.parse(each["host"]) in others]
        if self._host in hosts:
            known.insert(0, {"host": str(self._host), **_health(own)})
        return known

    async def _ask(self, hosts: Sequence[HostInfo]) -> None:
        replies = await self._peers.ask_all(hosts, RemoteRequest("GET", "/v1/health"), Deadline(_WAIT_S))
        self._answers = [answer_of(host, reply) for host, reply in zip(hosts, replies, strict=True)]


def answer_of(host: HostInfo, reply: Reply | Refused | None) -> dict[str, Any]:
    """The answer of one of them."""
    if reply is None:
        return {"host": str(host), "status": "no answer", "ready": False, "reason": ""}
    if isinstance(reply, Refused):
        return {"host": str(host), "status": "not asked", "ready": False, "reason": str(reply)}
    return {"host": str(host), **_health(reply.body)}


def _health(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "status": printable(body.get("status", "?"), 40),
        "ready": body.get("ready") is True,
        "reason": printable(body.get("reason", ""), _MOST_REASON),
    }


# --- the page ------------------------------------------------------------------------------------------

# The dashboard's page: the files of `ui/`, and what a browser may do with them. They contain no data.
#
# A browser loads scripts and styles only from here, does not show the page in a frame, and does not send
# its address to other sites. All data is requested with the token, as in any other request.

_FOLDER = Path(__file__).parent / "ui"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


class Site:
    """The files, read once."""

    def __init__(self) -> None:
        self._files = {
            file.name: (_TYPES[file.suffix], file.read_bytes())
            for file in _FOLDER.iterdir()
            if file.suffix in _TYPES
        }

    def entrance(self) -> Answer:
        """A redirect to the page. Its address ends in a slash, because its files are beside it."""
        return Answer(308, headers={**_HEADERS, "location": "ui/"}, raw=b"")

    def file(self, name: str) -> Answer:
        """A file; the page itself if the name is empty.

        Raises:
            Refused: there is no file of this name.
        """
        found = self._files.get(name or "index.html")
        if found is None:
            raise Refused(404, "NotFound", "the dashboard has no such file")
        kind, content = found
        return Answer(200, headers={**_HEADERS, "content-type": kind}, raw=content)


# --- watching -------------------------------------------------------------------------------------------


_LOOK_S = 1.0


class Live:
    """Reports changes to a limited number of watchers.

    Args:
        take: looks at the client, and returns all sections.
        most: the maximum number of watchers at a time.
        every_s: the time between two looks.
    """

    def __init__(
        self, take: Callable[[], Awaitable[Mapping[str, Any]]], most: int, every_s: float = _LOOK_S
    ) -> None:
        self._take = take
        self._most = most
        self._every_s = every_s
        self._watchers = 0
        self._looking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looked = asyncio.Event()
        self._ended = asyncio.Event()
        self._number = 0
        self._sections: dict[str, tuple[int, str]] = {}
        """Each section as last seen, as JSON, and the number of the look at which it last changed."""
        self._closed = False

    def watch(self) -> AsyncGenerator[bytes]:
        """Events for one watcher; they end when this is closed.

        Raises:
            Refused: there is already the maximum number of watchers.
        """
        if self._watchers >= self._most or self._closed:
            busy = f"{self._watchers} already watch this client; close a page, or try again"
            raise Refused(503, "Busy", busy, retriable=True)
        return self._events()

    def close(self) -> None:
        """End the events of all watchers. Any thread may call it. Idempotent."""
        self._closed = True
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._end)

    async def _events(self) -> AsyncGenerator[bytes]:
        if self._watchers >= self._most:
            return  # others were quicker
        self._watchers += 1
        try:
            self._begin()
            yield b"retry: 2000\n\n"
            seen = 0
            while not self._closed:
                looked, number = self._looked, self._number
                changed = {name: data for name, (at, data) in self._sections.items() if at > seen}
                if number > seen:
                    seen = number
                    yield _event(changed) if changed else b": nothing has changed\n\n"
                await looked.wait()
        finally:
            self._watchers -= 1
            if not self._watchers:
                self._stop()

    def _begin(self) -> None:
        if self._looking is None:
            self._loop = asyncio.get_running_loop()
            self._looked, self._ended = asyncio.Event(), asyncio.Event()
            self._looking = asyncio.create_task(self._look())

    def _stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        self._sections.clear()

    async def _look(self) -> None:
        while not self._closed:
            try:
                sections = dict(await self._take())
                sections["trouble"] = None
            except Exception as error:
                # Its message may contain record data, so only the class is logged.
                log.debug("the dashboard could not look at the client: %s", type(error).__name__)
                sections = {"trouble": type(error).__name__}
            self._number += 1
            for name, value in sections.items():
                data = json.dumps(value, separators=(",", ":"), allow_nan=False)
                if self._sections.get(name, (0, None))[1] != data:
                    self._sections[name] = self._number, data
            self._wake()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._ended.wait()

    def _end(self) -> None:
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        looked, self._looked = self._looked, asyncio.Event()
        looked.set()


def _event(sections: Mapping[str, str]) -> bytes:
    """The event for sections that are already JSON; its time is the server's."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    parts = [f'"at":"{at}"', *(f"{json.dumps(name)}:{data}" for name, data in sections.items())]
    return f"event: change\ndata: {{{','.join(parts)}}}\n\n".encode("ascii")
