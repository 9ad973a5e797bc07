"""The answer to each route, from one of three places: here, the client that has the key, or all clients.

A query for a key goes to its owner, in one hop: a forwarded request is answered locally or not at all. A
range is read page by page from every client that has a part of it, and merged; the answer is complete or an
error.

Reading blocks, and so does waiting for another client, so each has its own threads. A forwarded request needs
only the first kind: two clients that wait for each other cannot exhaust the threads that both need.
"""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any

from millstream.errors import IllegalStateException, SetupException, StreamsException, TimeoutException
from millstream.metrics import prometheus
from millstream.model import PipelineMetadata, ThreadMetadata
from millstream.query.metadata import HostInfo
from millstream.query.provider import StoreDeclaration
from millstream.remote.answers import Answer, Refused
from millstream.remote.http_wire import Deadline
from millstream.remote.json_codec import bad
from millstream.remote.routes import Request, key_of
from millstream.server.dashboard import Dashboard, Live, Others, Site, figures_of
from millstream.server.entrance import Limits
from millstream.server.entry_queries import ManyKeys, OneKey, Ranges
from millstream.server.forms import EVENT_HEADERS, MediaType, form_of
from millstream.server.local_stores import QueriedStreams, serde_names
from millstream.server.openapi import index_answer, openapi_answer
from millstream.server.peers import Peers, Reach, server_threads
from millstream.server.sql_service import Sql
from millstream.server.streaming import Exports, Watching
from millstream.topology.drawing import drawing_of

__all__ = ["About", "Actions", "QueryService"]


log = logging.getLogger(__name__)


class About:
    """Describes this client and its application, but no store's entries. Blocks."""

    def __init__(self, streams: QueriedStreams, reach: Reach) -> None:
        self._streams = streams
        self._reach = reach

    def health(self, asked: str) -> Answer:
        """`live`, `ready`, or everything known about the client's health."""
        health = self._streams.health
        good = health.live if asked == "live" else health.ready
        body = health.as_dict() if asked == "health" else {asked: good, "status": health.status}
        return Answer(200 if good else 503, body)

    def metrics(self) -> Answer:
        """All metrics, in Prometheus' format."""
        try:
            written = prometheus.text(self._streams.metrics())
        except SetupException as error:
            raise Refused(501, "NotImplemented", str(error)) from None
        return Answer(200, headers={"content-type": prometheus.CONTENT_TYPE}, raw=written.encode())

    def figures(self) -> Answer:
        """All metrics as JSON; a metric that is not a number now is null."""
        return Answer(
            200, {"client": self._streams.client_id, "metrics": figures_of(self._streams.metrics())}
        )

    def topology(self) -> Answer:
        """The topology, as boxes and arrows."""
        drawing = drawing_of(self._streams.topology)
        return Answer(200, {"client": self._streams.client_id, **drawing.as_dict()})

    def all_stores(self) -> Answer:
        """Every store of the program."""
        snapshot = self._reach.stores.snapshot()
        stores = [self._described(store) for _, store in sorted(snapshot.stores.items())]
        return Answer(
            200, {"client": snapshot.client_id, "client_state": snapshot.client_state.name, "stores": stores}
        )

    def one_store(self, name: str) -> Answer:
        """One store, whether or not it can be read now."""
        stores = self._reach.stores
        # If there is no store of this name, declaration() raises the reason.
        store = stores.snapshot().stores.get(name) or stores.declaration(name, None)
        return Answer(200, self._described(store))

    def _described(self, store: StoreDeclaration) -> dict[str, Any]:
        key_serde, value_serde = serde_names(store)
        presences = self._reach.stores.presences(store.name, stale=False)
        return {
            "store": store.name,
            "kind": store.kind.value,
            "key_serde": key_serde,
            "value_serde": value_serde,
            "partitions": store.partitions,
            "here": {str(number): presence.name.lower() for number, presence in presences.items()},
            "window_size_ms": store.window_size_ms,
            "retention_ms": store.retention_ms,
            "history_ms": store.history_ms,
        }

    def clients(self) -> Answer:
        """Every client of the application, and its stores and partitions."""
        clients = [
            {
                "host": str(client.host_info),
                "stores": sorted(client.state_store_names),
                "partitions": sorted(map(str, client.topic_partitions)),
                "standby_stores": sorted(client.standby_state_store_names),
                "standby_partitions": sorted(map(str, client.standby_topic_partitions)),
            }
            for client in self._streams.metadata_for_all_streams_clients()
        ]
        return Answer(200, {"clients": clients})

    def owner(self, request: Request) -> Answer:
        """The clients that have a key."""
        store = self._reach.stores.declaration(request.store, None)
        key = key_of(store, request)
        found = self._reach.places.metadata(request.store, key)
        partition = found.partition
        if partition < 0 and store.partition_of is not None:
            partition = store.partition_of(key)  # nothing is assigned yet, but the key's partition is known
        return Answer(
            200,
            {
                "store": request.store,
                "partition": None if partition < 0 else partition,
                "active": str(found.active_host) if found.active_host.is_available else None,
                "standbys": sorted(map(str, found.standby_hosts)),
            },
        )


class QueryService:
    """Answers requests about the stores of one client, and of the other clients through it.

    Args:
        ui: whether there is a dashboard. `commands`: whether commands are accepted, which requires a token.
    """

    def __init__(
        self,
        streams: QueriedStreams,
        *,
        host: HostInfo | None,
        limits: Limits,
        peers: Peers,
        sql: bool,
        ui: bool = False,
        commands: bool = False,
    ) -> None:
        self._reach = Reach(streams, host=host, limits=limits, peers=peers)
        self._about = About(streams, self._reach)
        self._actions = Actions(streams)
        self._ranges = Ranges(self._reach)
        self._many_keys = ManyKeys(self._reach)
        self._one_key = OneKey(self._reach, self._many_keys)
        self._exports = Exports(self._reach, self._asked)
        self._watching = Watching(self._reach, self._asked)
        self._sql = Sql(self._reach, self._ranges, streams.client_id, enabled=sql)
        self._dashboard = Dashboard(streams, self._about, self._actions, commands=commands)
        self._others = Others(peers, host)
        self._live = Live(self._look, limits.watchers)
        self._site = Site() if ui else None
        # Orchestrators get an answer however busy the other threads are.
        self._watch = server_threads(f"{streams.client_id}-QueryHealth", 1)

    async def answer(self, request: Request, body: bytes, deadline: Deadline, *, forwarded: bool) -> Answer:
        """The answer to a request.

        Raises:
            Refused: the request is wrong, or another client must not be queried.
            StreamsException: what the read raised, mainly a leaf of KIP-216.
        """
        only_here = forwarded or request.local
        form = MediaType.JSON if forwarded else form_of(request.route, request.accept)
        if request.route.name == "sql":
            return await self._sql.answer(request, form, body, deadline)
        if form is MediaType.EVENTS:
            return await self._watching.answer(request, deadline)
        if form is not MediaType.JSON:
            return await self._exports.answer(request, form, deadline)
        about, actions, read = self._about, self._actions, self._reach.read
        match request.route.name:
            case "index":
                return index_answer()
            case "openapi":
                return openapi_answer()
            case "live" | "ready" | "health":
                return await self._watch.run(lambda: about.health(request.route.name))
            case "metrics":
                return await read(deadline, about.metrics)
            case "figures":
                return await read(deadline, about.figures)
            case "topology":
                return await read(deadline, about.topology)
            case "threads":
                return await read(deadline, actions.threads)
            case "failures":
                return await read(deadline, actions.failures)
            case "pause" | "resume":
                return await read(deadline, lambda: actions.pause(request.route.name == "pause"))
            case "change_threads":
                return await read(deadline, lambda: actions.change_threads(body))
            case "close":
                return await read(deadline, actions.close)
            case "ui" | "ui_file" | "still" | "watch":
                return await self._shown(request, deadline)
            case "stores":
                return await read(deadline, about.all_stores)
            case "store":
                return await read(deadline, lambda: about.one_store(request.store))
            case "clients":
                return await read(deadline, about.clients)
            case "owner":
                return await read(deadline, lambda: about.owner(request))
            case "count":
                return await self._ranges.count(request, deadline, only_here=only_here)
            case "multi_get":
                return await self._many_keys.answer(request, body, deadline, only_here=only_here)
            case "entries" | "windows" | "sessions":
                return await self._ranges.entries(request, deadline, only_here=only_here)
            case _:
                return await self._one_key.answer(request, deadline, only_here=only_here)

    async def _asked(self, request: Request, deadline: Deadline) -> Answer:
        """The same as JSON; errors, too, become an answer."""
        try:
            return await self.answer(replace(request, accept=""), b"", deadline, forwarded=False)
        except (Refused, StreamsException, IllegalStateException) as error:
            return self.error(error)

    async def _shown(self, request: Request, deadline: Deadline) -> Answer:
        """The dashboard's page, and its data."""
        if self._site is None:
            raise Refused(404, "NotFound", "this client has no dashboard; set 'ui.enabled'")
        match request.route.name:
            case "ui":
                return self._site.entrance()
            case "ui_file":
                return self._site.file(request.key)
            case "still":
                return await self._reach.read(deadline, self._dashboard.still)
            case _:
                stream = self._live.watch()
                return Answer(200, headers=EVENT_HEADERS, pieces=lambda: stream)

    async def _look(self) -> dict[str, Any]:
        sections = await self._reach.read(Deadline(self._reach.limits.deadline_s), self._dashboard.sections)
        return {**sections, "others": self._others.look(sections["clients"], sections["health"])}

    def error(self, error: Exception) -> Answer:
        """The answer to an error."""
        return self._reach.error(error)

    def close(self) -> None:
        """End the threads, and the connections to other clients. Idempotent."""
        self._live.close()
        self._watch.close(1.0)
        self._sql.close()
        self._reach.close()


# --- commands ------------------------------------------------------------------------------------------

# What a client is doing, and commands to it: threads, failures, pausing. Blocks.
#
# Commands need the token. A server without one accepts no commands at all, because anyone who reaches it
# could stop the application (`entrance.py: Entrance.admit`).

_REMOVE_S = timedelta(seconds=5)


class Actions:
    """Queries and commands one client."""

    def __init__(self, streams: QueriedStreams) -> None:
        self._streams = streams

    def threads(self) -> Answer:
        """The stream threads, the work of each, and the positions of its pipelines."""
        found = [_thread(each) for each in self._streams.metadata_for_local_threads()]
        return self._answer(paused=self._streams.is_paused, threads=found)

    def failures(self) -> Answer:
        """The latest failures, oldest first."""
        return self._answer(failures=[each.as_dict() for each in self._streams.failures])

    def pause(self, paused: bool) -> Answer:
        """Pause, or resume."""
        log.warning("%s was %s over HTTP", self._streams.client_id, "paused" if paused else "resumed")
        if paused:
            self._streams.pause()
        else:
            self._streams.resume()
        return self._answer(paused=self._streams.is_paused)

    def close(self) -> Answer:
        """Close the client, in the background: this server belongs to it, and must still answer."""
        log.warning("%s is being closed over HTTP", self._streams.client_id)
        self._streams.close(timedelta(0))
        return self._answer(closing=True)

    def change_threads(self, body: bytes) -> Answer:
        """Add a thread, or remove one; `done` in the answer: whether the removed one has ended.

        Raises:
            Refused: the body requests neither.
            IllegalStateException: the client is not running, or has no thread to remove.
        """
        change = _change(body)
        log.warning("%s was asked over HTTP to %s a thread", self._streams.client_id, change)
        done = True
        name: str | None = None
        if change == "add":
            name = self._streams.add_stream_thread()
        else:
            try:
                name = self._streams.remove_stream_thread(_REMOVE_S)
            except TimeoutException:
                return self._answer(change=change, thread=None, done=False)
        if name is None:
            raise IllegalStateException(
                f"client '{self._streams.client_id}' is not running, or has no thread to remove; nothing "
                "was changed"
            )
        return self._answer(change=change, thread=name, done=done)

    def _answer(self, **facts: Any) -> Answer:
        return Answer(200, {"client": self._streams.client_id, **facts})


def _change(body: bytes) -> str:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    change = given.get("change") if isinstance(given, dict) else None
    if change not in ("add", "remove"):
        raise bad('the body must be {"change": "add"} or {"change": "remove"}')
    return str(change)


def _thread(thread: ThreadMetadata) -> dict[str, Any]:
    return {
        "thread": thread.thread_name,
        "state": thread.thread_state,
        "tasks": sorted(str(task.task_id) for task in thread.active_tasks),
        "standby_tasks": sorted(str(task.task_id) for task in thread.standby_tasks),
        "pipelines": [_pipeline(each) for each in thread.pipelines],
    }


def _pipeline(pipeline: PipelineMetadata) -> dict[str, Any]:
    return {
        "name": pipeline.name,
        "running": pipeline.running,
        "records": pipeline.records,
        "records_per_second": round(pipeline.records_per_second, 1),
        "batch_id": pipeline.batch_id,
        "batch_ms": pipeline.batch_ms,
        "lag": None if pipeline.lag is None else sum(pipeline.lag.values()),
        "dropped": pipeline.dropped,
    }
