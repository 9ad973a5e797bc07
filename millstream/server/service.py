"""What is answered to each route: here, at the client that has the key, or by all clients together.

A key's question goes to its owner, by one hop: what was passed on already is answered here or not at all.
A range is read from every client that has a part of it, page by page, and merged; the answer is whole or
none.

Reading blocks, and so does waiting for another client, so each has threads of its own. What was passed on
only ever needs the first kind: two clients that wait for each other cannot use up what both of them need.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from millstream.dsl.serdes import Serdes
from millstream.errors import (
    InvalidStateStorePartitionException,
    StateStoreMigratedException,
    StreamsRebalancingException,
)
from millstream.model import StoreKind
from millstream.query.metadata import HostInfo, KeyQueryMetadata
from millstream.query.provider import Presence, StoreDeclaration
from millstream.server.answers import Answer, Refused, answer_to, is_misdirected
from millstream.server.codec import (
    bad,
    from_base64,
    key_from_json,
    key_from_text,
    parse_json,
    shown,
    to_base64,
)
from millstream.server.pages import Page, Place, Row, merged, place_of
from millstream.server.peers import Peers, count_from, garbled, page_from, partitions_of, rows_of
from millstream.server.reads import LocalStores, QueriedStreams, Scan, serde_names
from millstream.server.routes import Request
from millstream.server.wire import Reply
from millstream.server.workers import Deadline, Workers

__all__ = ["Limits", "QueryService"]

T = TypeVar("T")

_ROUNDS = 2
"""How often the owner of a key is looked up, if it has moved when it is asked."""

_AT_ONCE = 256
"""How many keys are read before it is looked at how large the values are."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may take, and all of them together.

    Attributes:
        target_bytes: path and query. `body_bytes`: a body. `keys`: those of one body.
        page: how many entries a page has, if the request does not say; `most_page`: at most.
        page_bytes: how large the keys and values of a page get together (one entry may be larger).
        answer_bytes: the same of the values that one body asks for; more is refused.
        concurrent: requests being answered; more are refused at once.
        readers, forwarders: threads that read stores, and that wait for other clients.
        deadline_s: how long an answer may take. `transfer_s`: how long a body may take to come, and an
            answer to be taken. `idle_s`: how long a connection is kept between two requests.
    """

    target_bytes: int = 8_192
    body_bytes: int = 1 << 20
    keys: int = 10_000
    page: int = 1_000
    most_page: int = 10_000
    page_bytes: int = 1 << 20
    answer_bytes: int = 16 << 20
    concurrent: int = 64
    readers: int = 4
    forwarders: int = 8
    deadline_s: float = 10.0
    transfer_s: float = 10.0
    idle_s: float = 30.0


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Other clients have it: who, in the order to ask them."""

    hosts: Sequence[HostInfo]


@dataclass(frozen=True, slots=True)
class Somewhere:
    """Nobody knows which client has a key of this store: all are asked."""

    store: StoreDeclaration
    key: bytes


@dataclass(frozen=True, slots=True)
class PartOfRange:
    """This client's part of a range. `alone`: it is all of the answer."""

    store: StoreDeclaration
    scan: Scan
    place: Place | None
    page: Page
    partitions: frozenset[int]
    alone: bool


class QueryService:
    """Answers requests about the stores of one client, and of the others for it."""

    def __init__(
        self,
        streams: QueriedStreams,
        *,
        host: HostInfo | None,
        token: str | None,
        limits: Limits,
        peer_prefix: str = "",
    ) -> None:
        self._streams = streams
        self._stores = LocalStores(streams.store_view)
        self._own = host
        self._limits = limits
        name = f"{streams.client_id}-Query"
        self._readers = Workers(f"{name}Reader", limits.readers)
        self._peers = Peers(f"{name}Forwarder", limits.forwarders, token, peer_prefix)
        self._watch = Workers(f"{name}Health", 1)  # an orchestrator is answered however busy the others are

    async def answer(self, request: Request, body: bytes, deadline: Deadline, *, forwarded: bool) -> Answer:
        """The answer.

        Raises:
            Refused: the request is wrong, or another client cannot be asked.
            StreamsException: what the read raised, above all a leaf of KIP-216.
        """
        only_here = forwarded or request.local
        match request.route.name:
            case "live" | "ready" | "health":
                return await self._watch.run(lambda: self._health(request.route.name))
            case "stores":
                return await self._read(deadline, self._all_stores)
            case "store":
                return await self._read(deadline, lambda: self._one_store(request.store))
            case "clients":
                return await self._read(deadline, self._clients)
            case "owner":
                return await self._read(deadline, lambda: self._owner(request))
            case "count":
                return await self._count(request, deadline, only_here=only_here)
            case "multi_get":
                return await self._multi_get(request, body, deadline, only_here=only_here)
            case "entries" | "windows" | "sessions":
                return await self._range(request, deadline, only_here=only_here)
            case _:
                return await self._at_owner(request, deadline, only_here=only_here)

    def close(self) -> None:
        """End the threads, and the connections to other clients. Idempotent."""
        for workers in (self._readers, self._watch):
            workers.close(1.0)
        self._peers.close()

    async def _read(self, deadline: Deadline, job: Callable[[], T]) -> T:
        def checked() -> T:
            deadline.check()  # it may have waited
            return job()

        return await self._readers.run(checked)

    # --- what there is -----------------------------------------------------------------------------------

    def _health(self, asked: str) -> Answer:
        health = self._streams.health
        good = health.live if asked == "live" else health.ready
        body = health.as_dict() if asked == "health" else {asked: good, "status": health.status}
        return Answer(200 if good else 503, body)

    def _all_stores(self) -> Answer:
        snapshot = self._stores.snapshot()
        stores = [self._described(store) for _, store in sorted(snapshot.stores.items())]
        return Answer(
            200, {"client": snapshot.client_id, "client_state": snapshot.client_state, "stores": stores}
        )

    def _one_store(self, name: str) -> Answer:
        store = self._stores.snapshot().stores.get(name)
        if store is None:
            self._stores.declaration(name, None)  # raises what says so
            raise AssertionError("unreachable")
        return Answer(200, self._described(store))

    def _described(self, store: StoreDeclaration) -> dict[str, Any]:
        key_serde, value_serde = serde_names(store)
        presences = self._stores.presences(store.name, stale=False)
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

    def _clients(self) -> Answer:
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

    def _owner(self, request: Request) -> Answer:
        store = self._stores.declaration(request.store, None)
        key = self._key(store, request)
        found = self._metadata(request.store, key)
        partition = found.partition
        if partition < 0 and store.partition_of is not None:
            partition = store.partition_of(key)  # nothing is agreed, which does not change where it belongs
        return Answer(
            200,
            {
                "store": request.store,
                "partition": None if partition < 0 else partition,
                "active": str(found.active_host) if found.active_host.is_available else None,
                "standbys": sorted(map(str, found.standby_hosts)),
            },
        )

    # --- one key -----------------------------------------------------------------------------------------

    async def _at_owner(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        for _ in range(_ROUNDS):
            answering = partial(self._answer_key, request, deadline, only_here=only_here)
            outcome = await self._read(deadline, answering)
            if isinstance(outcome, Answer):
                return outcome
            if isinstance(outcome, Somewhere):
                (row,) = await self._find_many(
                    request, outcome.store, [outcome.key], deadline, only_here=False
                )
                return _answer_of(request, outcome.store, outcome.key, row)
            for host in outcome.hosts:
                reply = await self._peers.ask(host, "GET", request.target, deadline)
                if reply is not None and not is_misdirected(reply.status, reply.body):
                    return _passed_on(reply)
        raise self._out_of_reach(request.store)

    def _answer_key(
        self, request: Request, deadline: Deadline, *, only_here: bool
    ) -> Answer | Elsewhere | Somewhere:
        """The answer about one key from the stores that are here, or who has it."""
        store = self._stores.declaration(request.store, request.route.kind)
        key = self._key(store, request)
        if store.partition_of is None:
            return self._answer_unrouted(request, store, key, deadline, only_here=only_here)
        partition = store.partition_of(key)
        if not only_here and not self._is_here(store.name, partition, stale=request.stale):
            hosts = self._hosts(store.name, key, stale=request.stale)
            if hosts:
                return Elsewhere(hosts)
        try:
            return self._from_here(request, store, key, partition, deadline)
        except (InvalidStateStorePartitionException, StateStoreMigratedException) as error:
            hosts = self._hosts(store.name, key, stale=False)
            return self._error(error, hosts[0] if hosts else None)

    def _answer_unrouted(
        self, request: Request, store: StoreDeclaration, key: bytes, deadline: Deadline, *, only_here: bool
    ) -> Answer | Somewhere:
        """Nobody knows how its topic is partitioned: look here first, then everywhere."""
        alone = only_here or self._is_whole(store, stale=request.stale)
        try:
            answer = self._from_here(request, store, key, None, deadline)
        except StateStoreMigratedException:
            if alone:
                raise
        else:
            if alone or answer.status != 404:
                return answer
        return Somewhere(store, key)

    def _from_here(
        self,
        request: Request,
        store: StoreDeclaration,
        key: bytes,
        partition: int | None,
        deadline: Deadline,
    ) -> Answer:
        name, stale = store.name, request.stale
        stores = self._stores
        start, end, time = request.time("start"), request.time("end"), request.time("time")
        if request.route.name == "get":
            row = stores.get(name, key, partition=partition, stale=stale, as_of=request.time("as_of"))
        elif time is not None:
            row = stores.window(name, key, time, partition=partition, stale=stale)
        elif start is not None and end is not None:
            row = stores.session(name, key, start, end, partition=partition, stale=stale)
        else:
            scan = replace(self._scan(request, store), from_key=key, to_key=key, partition=partition)
            page, here = self._page(request, scan, self._place(request), deadline)
            return self._shown_page(request, store, page, here)
        return _answer_of(request, store, key, row)

    def _key(self, store: StoreDeclaration, request: Request) -> bytes:
        assert store.key_serde is not None  # LocalStores.declaration holds that
        return key_from_text(store.key_serde, request.key, request.format)

    # --- many keys ---------------------------------------------------------------------------------------

    async def _multi_get(
        self, request: Request, body: bytes, deadline: Deadline, *, only_here: bool
    ) -> Answer:
        store, keys = await self._read(deadline, lambda: self._keys(request, body))
        found = await self._find_many(request, store, keys, deadline, only_here=only_here)
        here = self._stores.readable(store.name, stale=request.stale)
        return await self._read(deadline, partial(_shown_many, request, store, keys, found, here))

    async def _find_many(
        self,
        request: Request,
        store: StoreDeclaration,
        keys: Sequence[bytes],
        deadline: Deadline,
        *,
        only_here: bool,
    ) -> list[Row | None]:
        """The values of keys, wherever they are."""
        found: list[Row | None] = [None] * len(keys)
        covered: set[int] = set()
        before = self._stores.parts(store.name, stale=request.stale)
        missing: Sequence[int] = range(len(keys))
        for attempt in range(_ROUNDS):
            wanted = list(missing)
            here = partial(self._many_from_here, request, store, keys, wanted, found, attempt)
            elsewhere = await self._read(deadline, partial(here, only_here=only_here))
            hosts = list(elsewhere)
            replies = await asyncio.gather(
                *(
                    self._ask_many(host, request, [keys[i] for i in elsewhere[host]], deadline)
                    for host in hosts
                )
            )
            moved: set[int] = set()
            for host, reply in zip(hosts, replies, strict=True):
                if reply is None:
                    moved.update(elsewhere[host])
                    continue
                rows, partitions = reply
                covered |= partitions
                for index, row in zip(elsewhere[host], rows, strict=True):
                    found[index] = found[index] or row
            missing = sorted(moved)
            self._check_size(found)
            if not missing:
                break
        else:
            raise self._out_of_reach(request.store)
        if store.partition_of is None and None in found:
            # That nobody has it is known only when all partitions were looked at, and none of them moved.
            if self._stores.parts(store.name, stale=request.stale) != before:
                raise self._moved(store.name)
            if not only_here and not store.is_global:
                self._check_whole(store, covered | before.keys())
        return found

    def _keys(self, request: Request, body: bytes) -> tuple[StoreDeclaration, list[bytes]]:
        store = self._stores.declaration(request.store, request.route.kind)
        assert store.key_serde is not None  # LocalStores.declaration holds that
        given = parse_json(body)
        keys = given.get("keys") if isinstance(given, dict) and set(given) == {"keys"} else None
        if not isinstance(keys, list):
            raise bad('the body is {"keys": [...]}')
        if len(keys) > self._limits.keys:
            raise Refused(413, "TooLarge", f"one request asks for {self._limits.keys} keys at most")
        return store, [key_from_json(store.key_serde, key, request.format) for key in keys]

    def _many_from_here(
        self,
        request: Request,
        store: StoreDeclaration,
        keys: Sequence[bytes],
        wanted: Sequence[int],
        found: list[Row | None],
        attempt: int,
        *,
        only_here: bool,
    ) -> dict[HostInfo, list[int]]:
        """Put what is here into `found`; who is to be asked for the others, by their indexes."""
        if store.partition_of is None:
            return self._many_unrouted(request, store, keys, wanted, found, only_here=only_here)
        by_partition: dict[int, list[int]] = {}
        for index in wanted:
            by_partition.setdefault(store.partition_of(keys[index]), []).append(index)
        here: dict[int, list[int]] = {}
        elsewhere: dict[HostInfo, list[int]] = {}
        for partition, indexes in by_partition.items():
            key = keys[indexes[0]]
            is_here = self._is_here(store.name, partition, stale=request.stale)
            hosts = () if only_here or is_here else self._hosts(store.name, key, stale=request.stale)
            if hosts:
                elsewhere.setdefault(hosts[min(attempt, len(hosts) - 1)], []).extend(indexes)
                continue
            if not is_here:
                # Nobody can be asked: the read says which exception that is, unless it has come meanwhile.
                self._stores.get(store.name, key, partition=partition, stale=request.stale)
            here[partition] = indexes
        wanted_here = [index for indexes in here.values() for index in indexes]
        rows = self._many(request, store.name, [keys[index] for index in wanted_here])
        if not here.keys() <= self._stores.readable(store.name, stale=request.stale):
            raise self._out_of_reach(store.name)  # that it is not here any more is not that it has no value
        for index, row in zip(wanted_here, rows, strict=True):
            found[index] = row
        return elsewhere

    def _many_unrouted(
        self,
        request: Request,
        store: StoreDeclaration,
        keys: Sequence[bytes],
        wanted: Sequence[int],
        found: list[Row | None],
        *,
        only_here: bool,
    ) -> dict[HostInfo, list[int]]:
        """The same where nobody knows how keys are partitioned: what is not here is asked of everyone."""
        alone = only_here or self._is_whole(store, stale=request.stale)
        everyone = () if alone else self._all_hosts(store.name)
        try:
            rows = self._many(request, store.name, [keys[index] for index in wanted])
        except StateStoreMigratedException:
            if not everyone:
                raise
            return {host: list(wanted) for host in everyone}
        for index, row in zip(wanted, rows, strict=True):
            found[index] = row
        nowhere = [index for index in wanted if found[index] is None]
        return dict.fromkeys(everyone, nowhere) if nowhere else {}

    def _many(self, request: Request, store: str, keys: Sequence[bytes]) -> list[Row | None]:
        """The values of keys that are here, as long as they are not too large together."""
        rows: list[Row | None] = []
        for start in range(0, len(keys), _AT_ONCE):
            some = keys[start : start + _AT_ONCE]
            rows += self._stores.multi_get(store, some, stale=request.stale, as_of=request.time("as_of"))
            self._check_size(rows)
        return rows

    def _check_size(self, rows: Sequence[Row | None]) -> None:
        most = self._limits.answer_bytes
        if len(rows) > 1 and sum(len(row.key) + len(row.value) for row in rows if row is not None) > most:
            raise Refused(
                413, "TooLarge", f"these values have more than {most} bytes; ask for fewer keys at once"
            )

    async def _ask_many(
        self, host: HostInfo, request: Request, keys: Sequence[bytes], deadline: Deadline
    ) -> tuple[list[Row | None], set[int]] | None:
        """What another client has for these keys, and the partitions that it looked at; None: it has not
        them, or cannot be asked.
        """
        given = {"format": "bytes", "stale": _word(request.stale)}
        if "as_of" in request.given:
            given["as_of"] = request.given["as_of"]
        target = _target(request.store, "keys", given)
        body = json.dumps({"keys": [to_base64(key) for key in keys]}).encode()
        reply = await self._peers.ask(host, "POST", target, deadline, body)
        if reply is not None and reply.status in (400, 413):
            # Of the request, and not of where the keys are: too large an answer, a time before the history.
            error, message = str(reply.body.get("error")), str(reply.body.get("message"))
            raise Refused(reply.status, error, message)
        if reply is None or reply.status != 200:
            return None
        rows = rows_of(reply, host)
        if len(rows) != len(keys):
            raise garbled(host)
        return rows, partitions_of(reply, host)

    # --- ranges ------------------------------------------------------------------------------------------

    async def _range(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        part = await self._read(deadline, lambda: self._range_here(request, deadline, only_here=only_here))
        store, scan, place, page, here = part.store, part.scan, part.place, part.page, part.partitions
        if part.alone:
            return await self._read(deadline, lambda: self._shown_page(request, store, page, here))
        hosts = await self._read(deadline, lambda: self._all_hosts(store.name, stale=request.stale))
        given = {name: value for name, value in request.given.items() if name not in _OWN_PARAMETERS}
        given |= {name: to_base64(key) for name, key in _bounds_of(scan).items() if key is not None}
        given |= {"format": "bytes", "limit": str(self._limit(request))}
        if place is not None:
            given["cursor"] = place.token()
        target = _target(store.name, request.route.path[-1], given)
        replies = await asyncio.gather(*(self._peers.ask(host, "GET", target, deadline) for host in hosts))
        pages, covered = [page], set(here)
        for host, reply in zip(hosts, replies, strict=True):
            if reply is not None and reply.status == 400:
                raise Refused(400, str(reply.body.get("error")), str(reply.body.get("message")))
            if reply is None or reply.status != 200:
                continue  # whether that matters shows below
            theirs, partitions = page_from(reply, host)
            if covered & partitions and not request.stale:
                raise self._moved(store.name)
            pages.append(theirs)
            covered |= partitions
        self._check_whole(store, covered)

        def merge() -> Answer:
            whole = merged(
                pages,
                place_of(scan.kind),
                reverse=scan.reverse,
                limit=self._limit(request),
                most_bytes=self._limits.page_bytes,
                distinct=request.stale,
            )
            return self._shown_page(request, store, whole, frozenset(covered))

        return await self._read(deadline, merge)

    def _range_here(self, request: Request, deadline: Deadline, *, only_here: bool) -> PartOfRange:
        store = self._stores.declaration(request.store, request.route.kind)
        scan = self._scan(request, store)
        place = self._place(request)
        alone = only_here or self._is_whole(store, stale=request.stale)
        if not alone and not self._stores.readable(store.name, stale=request.stale):
            return PartOfRange(store, scan, place, Page(()), frozenset(), alone)
        page, here = self._page(request, scan, place, deadline)
        return PartOfRange(store, scan, place, page, here, alone)

    def _scan(self, request: Request, store: StoreDeclaration) -> Scan:
        assert store.key_serde is not None  # LocalStores.declaration holds that
        kind = store.kind
        names = ("from", "to") if kind is StoreKind.KEY_VALUE else ("from_key", "to_key")

        def key(name: str) -> bytes | None:
            text = request.given.get(name)
            if text is None or store.key_serde is None:
                return None
            return key_from_text(store.key_serde, text, request.format)

        times = ("earliest_end", "latest_start") if kind is StoreKind.SESSION else ("from", "to")
        windowed = kind is not StoreKind.KEY_VALUE
        return Scan(
            store.name,
            kind,
            key(names[0]),
            key(names[1]),
            self._prefix_of(request, store),
            request.time(times[0]) if windowed else None,
            request.time(times[1]) if windowed else None,
            request.reverse,
            request.stale,
            as_of=request.time("as_of"),
        )

    def _prefix_of(self, request: Request, store: StoreDeclaration) -> bytes | None:
        text = request.given.get("prefix")
        if text is None or store.key_serde is None:
            return None
        if request.format == "bytes" or store.key_serde.name == "bytes":
            return from_base64(text)
        if store.key_serde.name not in ("string", "uuid"):
            raise bad(f"keys of serde '{store.key_serde.name}' have a prefix in bytes only: format=bytes")
        return text.encode("utf-8")

    def _page(
        self,
        request: Request,
        scan: Scan,
        place: Place | None,
        deadline: Deadline,
    ) -> tuple[Page, frozenset[int]]:
        return self._stores.page(
            scan,
            place,
            limit=self._limit(request),
            most_bytes=self._limits.page_bytes,
            check=deadline.check,
        )

    def _limit(self, request: Request) -> int:
        return request.limit(self._limits.page, self._limits.most_page)

    def _place(self, request: Request) -> Place | None:
        token = request.given.get("cursor")
        return None if token is None else Place.parse(token)

    def _shown_page(
        self, request: Request, store: StoreDeclaration, page: Page, partitions: frozenset[int]
    ) -> Answer:
        return Answer(
            200,
            {
                "store": store.name,
                "partitions": sorted(partitions),
                "entries": [_shown_row(store, row, request.format) for row in page.rows],
                "next": None if page.next is None else page.next.token(),
            },
        ).encoded()

    # --- how many ----------------------------------------------------------------------------------------

    async def _count(self, request: Request, deadline: Deadline, *, only_here: bool) -> Answer:
        store, count, here = await self._read(
            deadline, lambda: self._count_here(request, only_here=only_here)
        )
        if not only_here and not _covers(here, store):
            hosts = await self._read(deadline, lambda: self._all_hosts(store.name))
            target = _target(store.name, "count", {})
            replies = await asyncio.gather(
                *(self._peers.ask(host, "GET", target, deadline) for host in hosts)
            )
            covered = set(here)
            for host, reply in zip(hosts, replies, strict=True):
                if reply is not None and reply.status == 200:
                    theirs, partitions = count_from(reply, host)
                    if covered & partitions:
                        raise self._moved(store.name)
                    count += theirs
                    covered |= partitions
            self._check_whole(store, covered)
            here = frozenset(covered)
        return Answer(200, {"store": store.name, "partitions": sorted(here), "count": count})

    def _count_here(
        self, request: Request, *, only_here: bool
    ) -> tuple[StoreDeclaration, int, frozenset[int]]:
        store = self._stores.declaration(request.store, None)
        if not only_here and not self._stores.presences(store.name, stale=False):
            return store, 0, frozenset()
        parts = self._stores.parts(store.name, stale=False)
        count = self._stores.count(store.name, stale=False)
        if self._stores.parts(store.name, stale=False) != parts:
            raise self._moved(store.name)
        return store, count, frozenset(parts)

    # --- who has what ------------------------------------------------------------------------------------

    def _is_here(self, store: str, partition: int, *, stale: bool) -> bool:
        presence = self._stores.presences(store, stale=stale).get(partition, Presence.ABSENT)
        return presence not in (Presence.ABSENT, Presence.STANDBY)

    def _is_whole(self, store: StoreDeclaration, *, stale: bool) -> bool:
        return _covers(self._stores.readable(store.name, stale=stale), store)

    def _check_whole(self, store: StoreDeclaration, covered: AbstractSet[int]) -> None:
        if store.partitions is None or covered >= set(range(store.partitions)):
            return
        missing = ", ".join(str(each) for each in sorted(set(range(store.partitions)) - covered))
        raise StreamsRebalancingException(
            f"partitions {missing} of store '{store.name}' cannot be read now: no client that can be asked "
            "has them; retry. Where clients have no application.server, local=true reads what is here",
            store=store.name,
        )

    def _metadata(self, store: str, key: bytes) -> KeyQueryMetadata:
        return self._streams.query_metadata_for_key(store, key, Serdes.bytes())

    def _hosts(self, store: str, key: bytes, *, stale: bool) -> tuple[HostInfo, ...]:
        """Other clients that have a key, the active one first."""
        found = self._metadata(store, key)
        hosts = [found.active_host, *(sorted(found.standby_hosts) if stale else ())]
        return tuple(host for host in hosts if host.is_available and host != self._own)

    def _all_hosts(self, store: str, *, stale: bool = False) -> tuple[HostInfo, ...]:
        """Other clients that have a part of a store."""
        return tuple(
            client.host_info
            for client in self._streams.streams_metadata_for_store(store)
            if client.host_info.is_available
            and client.host_info != self._own
            and (store in client.state_store_names or (stale and store in client.standby_state_store_names))
        )

    def _error(self, error: Exception, host: HostInfo | None) -> Answer:
        snapshot = self._stores.snapshot()
        return answer_to(
            error,
            client_id=snapshot.client_id,
            client_state=snapshot.client_state,
            host=None if host is None else str(host),
        )

    def error(self, error: Exception) -> Answer:
        """The answer to what went wrong."""
        return self._error(error, None)

    def _moved(self, store: str) -> StreamsRebalancingException:
        return StreamsRebalancingException(
            f"store '{store}': partitions moved while the clients were asked; retry", store=store
        )

    def _out_of_reach(self, store: str) -> StreamsRebalancingException:
        return StreamsRebalancingException(
            f"the client that has this part of store '{store}' does not answer, or has just let go of it; "
            "retry: if it is gone, another client takes its part over",
            store=store,
        )


_OWN_PARAMETERS = frozenset({"format", "limit", "cursor", "local"})
"""What is not passed on as it came, when all clients are asked for a page."""


def _covers(partitions: frozenset[int], store: StoreDeclaration) -> bool:
    """Whether these are all partitions that other clients could have."""
    return store.is_global or (store.partitions is not None and partitions >= set(range(store.partitions)))


def _word(yes: bool) -> str:
    return "true" if yes else "false"


def _target(store: str, last: str, given: Mapping[str, str]) -> str:
    query = f"?{urlencode(given)}" if given else ""
    return f"/v1/stores/{quote(store, safe='')}/{last}{query}"


def _bounds_of(scan: Scan) -> dict[str, bytes | None]:
    if scan.kind is StoreKind.KEY_VALUE:
        return {"from": scan.from_key, "to": scan.to_key, "prefix": scan.prefix}
    return {"from_key": scan.from_key, "to_key": scan.to_key}


def _passed_on(reply: Reply) -> Answer:
    headers = {} if reply.retry_after is None else {"retry-after": "1"}
    return Answer(reply.status, headers=headers, raw=reply.raw)


def _shown_row(store: StoreDeclaration, row: Row, format_: str) -> dict[str, Any]:
    body = {
        "key": shown(store.key_serde, row.key, format_),
        "value": shown(store.value_serde, row.value, format_),
    }
    times = {"timestamp": row.timestamp, "start": row.start, "end": row.end}
    return body | {name: time for name, time in times.items() if time is not None}


def _answer_of(request: Request, store: StoreDeclaration, key: bytes, row: Row | None) -> Answer:
    if row is None:
        shown_key = shown(store.key_serde, key, request.format)
        return Answer(404, {"store": store.name, "key": shown_key, "value": None})
    return Answer(200, {"store": store.name, **_shown_row(store, row, request.format)})


def _shown_many(
    request: Request,
    store: StoreDeclaration,
    keys: Sequence[bytes],
    found: Sequence[Row | None],
    here: frozenset[int],
) -> Answer:
    entries = [
        {"key": shown(store.key_serde, key, request.format), "value": None}
        if row is None
        else _shown_row(store, row, request.format)
        for key, row in zip(keys, found, strict=True)
    ]
    return Answer(200, {"store": store.name, "partitions": sorted(here), "entries": entries}).encoded()
