"""Several clients of an application, each with its query server: any of them answers for all."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from server_world import Application, application, ask, key_in
from waiting import wait_until

from millstream.errors import (
    InvalidStateStoreException,
    InvalidStateStorePartitionException,
    InvalidStateStoreTypeException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsRebalancingException,
)
from millstream.query.metadata import HostInfo
from millstream.query.provider import PartRole
from millstream.server import Limits, QueryServer, RemoteStore
from millstream.server.application import QueryApplication

TOKEN = "the-token-of-all"


@contextmanager
def served(
    world: Application, *, tokens: Iterable[str | None] = (), limits: Limits | None = None
) -> Iterator[list[QueryServer]]:
    """A query server for each client, known to all of them by the group's agreement."""
    given = list(tokens) or [TOKEN] * len(world.clients)
    servers = [
        QueryServer(client, token=token, limits=limits)
        for client, token in zip(world.clients, given, strict=True)
    ]
    try:
        # The ports are known once the servers listen; who is who is agreed after that.
        world.agree({number: server.start().address for number, server in enumerate(servers)})
        yield servers
    finally:
        with ThreadPoolExecutor(len(servers)) as all_at_once:
            list(all_at_once.map(QueryServer.close, servers))


def get(server: QueryServer, target: str, **headers: str) -> tuple[int, Any]:
    connection = HTTPConnection(*server.address, timeout=20)
    connection.request("GET", target, headers={"authorization": f"Bearer {TOKEN}", **headers})
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()
    return response.status, body


def filled(*partitions: Iterable[int]) -> Application:
    world = application(*partitions)
    for number in range(40):
        world.put(f"key-{number}", number)
        world.put_window(f"key-{number}", 1000, number)
        world.put_session(f"key-{number}", 1000, 2000, number)
    return world


@pytest.fixture(scope="module")
def three() -> Iterator[tuple[Application, list[QueryServer]]]:
    """Three clients, of which the last has nothing."""
    world = filled([0, 2], [1, 3], [])
    with served(world) as servers:
        yield world, servers


@pytest.mark.parametrize("number", [0, 1, 2])
def test_every_client_answers_for_every_key(
    three: tuple[Application, list[QueryServer]], number: int
) -> None:
    """Point, many, range, window, session, count: the same answer, whoever is asked."""
    world, servers = three
    url = servers[number].url
    with RemoteStore(url, "counts", token=TOKEN, page_size=7) as counts:
        assert {key: counts.get(key) for key in world.put_keys} == world.put_keys
        assert counts.get("nobody") is None
        assert counts.multi_get([*world.put_keys, "nobody"]) == [*world.put_keys.values(), None]
        assert list(counts.all()) == sorted(world.put_keys.items())
        assert list(counts.reverse_all()) == sorted(world.put_keys.items(), reverse=True)
        assert [key for key, _ in counts.range("key-3", "key-32")] == ["key-3", "key-30", "key-31", "key-32"]
        assert [key for key, _ in counts.prefix_scan("key-1")] == sorted(
            k for k in world.put_keys if k[4] == "1"
        )
        assert counts.approximate_num_entries() == 40
    with RemoteStore(url, "windows", token=TOKEN, page_size=7) as windows:
        assert [windows.fetch(f"key-{n}", 1000) for n in range(40)] == list(range(40))
        assert [list(windows.fetch(f"key-{n}", 0, 5000)) for n in range(3)] == [[(1000, n)] for n in range(3)]
        assert [w.key for w, _ in windows.all()] == sorted(world.put_keys)
        assert windows.approximate_num_entries() == 40
    with RemoteStore(url, "sessions", token=TOKEN, page_size=7) as sessions:
        assert [sessions.fetch_session(f"key-{n}", 1000, 2000) for n in range(40)] == list(range(40))
        assert [value for _, value in sessions.fetch("key-7")] == [7]
        assert [w.key for w, _ in sessions.backward_all()] == sorted(world.put_keys, reverse=True)


def test_the_owner_is_named(three: tuple[Application, list[QueryServer]]) -> None:
    """Clients can ask the owner themselves, and see who has what."""
    _, servers = three
    status, body = get(servers[2], f"/v1/stores/counts/owner/{key_in(1)}")
    assert status == 200
    assert body == {"store": "counts", "partition": 1, "active": str(servers[1].address), "standbys": []}
    clients = get(servers[2], "/v1/clients")[1]["clients"]
    assert {each["host"] for each in clients} == {str(server.address) for server in servers}
    (second,) = [each for each in clients if each["host"] == str(servers[1].address)]
    assert "counts" in second["stores"]
    assert "counts-changelog-3" in second["partitions"]


def test_local_is_answered_here_or_not_at_all(three: tuple[Application, list[QueryServer]]) -> None:
    """421 and the client that has it; `RemoteStore` would go there."""
    _, servers = three
    status, body = get(servers[0], f"/v1/stores/counts/keys/{key_in(1)}?local=true")
    assert (status, body["error"]) == (421, "InvalidStateStorePartitionException")
    assert body["host"] == str(servers[1].address)
    assert get(servers[0], f"/v1/stores/counts/keys/{key_in(0)}?local=true")[0] == 200
    status, body = get(servers[0], "/v1/stores/counts/entries?local=true")
    assert (status, body["partitions"]) == (200, [0, 2])
    assert get(servers[0], "/v1/stores/counts/count?local=true")[1]["count"] < 40


def test_a_question_is_passed_on_once(three: tuple[Application, list[QueryServer]]) -> None:
    """Two clients that each take the other for the owner do not pass it to and fro."""
    _, servers = three
    forwarded = {"millstream-forwarded": "1"}
    status, body = get(servers[0], f"/v1/stores/counts/keys/{key_in(1)}", **forwarded)
    assert (status, body["error"]) == (421, "InvalidStateStorePartitionException")


def test_clients_that_disagree_end_in_an_answer_that_says_retry() -> None:
    """The group has moved on at one of them only: 503 at once, and no loop."""
    world = filled([0, 1], [2, 3])
    with served(world) as servers:
        # Now the first has let go of partition 0, and both are told that the other one has it.
        world.clients[0].stores = {
            place: store for place, store in world.clients[0].stores.items() if place[1] != 0
        }
        world.clients[0].publish()
        world.clients[0].active, world.clients[1].active = (1,), (0, 2, 3)
        world.agree({number: server.address for number, server in enumerate(servers)})
        for server in servers:
            status, body = get(server, f"/v1/stores/counts/keys/{key_in(0)}")
            assert (status, body["retriable"]) in [(503, True), (421, False)]
        with RemoteStore(servers[0].url, "counts", token=TOKEN) as counts:
            with pytest.raises(StreamsRebalancingException):
                counts.get(key_in(0))
            with pytest.raises(StreamsRebalancingException):
                counts.multi_get([key_in(0), key_in(1)])
            with pytest.raises(StreamsRebalancingException, match="partitions 0 of store 'counts'"):
                counts.all()
            assert counts.get(key_in(1)) is not None


def test_a_partition_that_two_clients_have_is_not_read_twice() -> None:
    """It is moving, so the answer would not be the store's contents."""
    world = filled([0, 1], [2, 3])
    extra = {place: store for place, store in world.clients[0].stores.items() if place == ("counts", 0)}
    world.clients[1].stores.update(extra)
    world.clients[1].publish()
    with served(world) as servers, RemoteStore(servers[0].url, "counts", token=TOKEN) as counts:
        with pytest.raises(StreamsRebalancingException, match="moved"):
            counts.all()
        assert counts.get(key_in(2)) is not None


def test_a_client_that_is_gone_is_told_as_a_rebalance() -> None:
    """Others take over its partitions; what they have is answered."""
    world = filled([0, 1], [2, 3])
    with served(world) as servers:
        servers[1].close()
        with RemoteStore(servers[0].url, "counts", token=TOKEN) as counts:
            assert counts.get(key_in(0)) is not None
            with pytest.raises(StreamsRebalancingException, match="does not answer"):
                counts.get(key_in(2))
            with pytest.raises(StreamsRebalancingException):
                counts.approximate_num_entries()


def test_standbys_answer_stale_reads_when_their_active_is_gone() -> None:
    """Locally first; else wherever one is."""
    world = filled([0, 1], [2, 3], [])
    for store in ("counts",):
        for partition in (2, 3):
            world.clients[2].stores[store, partition] = world.clients[1].stores[store, partition]
            world.clients[2].roles[store, partition] = PartRole.STANDBY
    world.clients[2].publish()
    with served(world) as servers:
        world.agree({n: server.address for n, server in enumerate(servers)}, {2: [2, 3]})
        servers[1].close()
        for number in (0, 2):
            counts = RemoteStore(servers[number].url, "counts", token=TOKEN)
            with counts, pytest.raises(StreamsRebalancingException):
                counts.get(key_in(2))
            with RemoteStore(servers[number].url, "counts", token=TOKEN, stale=True, page_size=7) as stale:
                assert stale.get(key_in(2)) == world.put_keys[key_in(2)]
                keys = list(world.put_keys)
                assert stale.multi_get(keys) == list(world.put_keys.values())
                assert list(stale.all()) == sorted(world.put_keys.items())


def test_stale_ranges_have_each_entry_once() -> None:
    """Although both the active part and its standby are asked."""
    world = filled([0, 1], [2, 3])
    for partition in (2, 3):
        world.clients[0].stores["counts", partition] = world.clients[1].stores["counts", partition]
        world.clients[0].roles["counts", partition] = PartRole.STANDBY
    world.clients[0].publish()
    with (
        served(world) as servers,
        RemoteStore(servers[1].url, "counts", token=TOKEN, stale=True, page_size=7) as stale,
    ):
        assert list(stale.all()) == sorted(world.put_keys.items())


def test_a_table_of_a_topic_that_others_write_is_looked_for_everywhere() -> None:
    """Nobody knows how its keys are partitioned: here first, then at the others."""
    world = application([0, 1], [2, 3], [])
    world.put_at(0, "table", 1, "anna", 1)
    world.put_at(1, "table", 3, "bob", 2)
    with served(world) as servers:
        for server in servers:
            with RemoteStore(server.url, "table", token=TOKEN) as table:
                assert [table.get(key) for key in ("anna", "bob", "carl")] == [1, 2, None]
                assert table.multi_get(["carl", "bob", "anna"]) == [None, 2, 1]
                assert list(table.all()) == [("anna", 1), ("bob", 2)]
        # One of them cannot be asked: what it may have is not "no value".
        servers[1].close()
        with RemoteStore(servers[0].url, "table", token=TOKEN) as table:
            assert table.get("anna") == 1
            for read in (lambda: table.get("carl"), lambda: table.multi_get(["carl"]), table.all):
                with pytest.raises(StreamsRebalancingException):
                    read()
    world.agree({})
    with QueryServer(world.clients[0]) as alone, RemoteStore(alone.url, "table") as table:
        assert table.get("anna") == 1
        for read in (lambda: table.get("carl"), lambda: table.multi_get(["carl"]), table.all):
            with pytest.raises(StreamsRebalancingException):
                read()


def test_a_store_with_history_is_read_as_it_was_wherever_its_keys_are() -> None:
    """One key, many, ranges; a time before the history is a ValueError, as it is locally."""
    world = application([0, 1], [2, 3])
    for partition in range(4):
        for number, time in ((1, 10_000_000), (2, 12_000_000)):
            key = key_in(partition).encode()
            world.put_bytes("prices", key, number.to_bytes(8, "big"), time)
    keys = sorted(key_in(partition) for partition in range(4))
    with served(world) as servers, RemoteStore(servers[0].url, "prices", token=TOKEN, page_size=1) as now:
        then = now.as_of(11_000_000)
        assert [now.get(key) for key in keys] == [2] * 4
        assert [then.get(key) for key in keys] == [1] * 4
        assert then.multi_get(keys) == [1] * 4
        assert list(then.all()) == [(key, 1) for key in keys]
        assert list(then.prefix_scan("key")) == [(key, 1) for key in keys]
        assert now.multi_get(keys) == [2] * 4
        before = now.as_of(1)
        for read in (
            lambda: [before.get(key) for key in keys],
            lambda: before.multi_get(keys),
            lambda: before.all(),
        ):
            with pytest.raises(ValueError, match="history"):
                read()
        with (
            RemoteStore(servers[0].url, "counts", token=TOKEN) as counts,
            pytest.raises(InvalidStateStoreTypeException, match="keeps no history"),
        ):
            counts.as_of(1).get(keys[0])


def test_clients_need_the_same_token() -> None:
    """It is told, and what is here is answered."""
    world = filled([0, 1], [2, 3])
    with served(world, tokens=[TOKEN, "another"]) as servers:
        assert get(servers[0], f"/v1/stores/counts/keys/{key_in(0)}")[0] == 200
        status, body = get(servers[0], f"/v1/stores/counts/keys/{key_in(2)}")
        assert (status, body["error"]) == (502, "BadGateway")
        assert "does not prove that it knows this client's token" in body["message"]
        with (
            RemoteStore(servers[0].url, "counts", token=TOKEN) as counts,
            pytest.raises(StreamsException, match="502"),
        ):
            counts.get(key_in(2))


def test_two_clients_that_ask_each_other_do_not_wait_for_each_other() -> None:
    """Each with one thread to read and one to ask, and many questions that have to be passed on."""
    world = filled([0, 1], [2, 3])
    limits = Limits(readers=1, forwarders=1, concurrent=64, deadline_s=20)
    failures: list[Exception] = []

    def many(url: str, partition: int) -> None:
        try:
            with RemoteStore(url, "counts", token=TOKEN, timeout=timedelta(seconds=20)) as counts:
                for number in range(10):
                    key = key_in(partition, number)
                    assert counts.get(key) == world.put_keys.get(key)
        except Exception as error:
            failures.append(error)

    with served(world, limits=limits) as servers:
        threads = [
            threading.Thread(
                target=many, args=(servers[n % 2].url, 2 - 2 * (n % 2)), name=f"asks-{n}", daemon=True
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert failures == []


def test_while_partitions_move_no_answer_is_wrong() -> None:
    """A hundred moves under readers: each value right, each range whole, or a leaf of KIP-216."""
    world = filled([0, 1], [2, 3])
    expected = dict(sorted(world.put_keys.items()))
    ended = threading.Event()
    wrong: list[Any] = []
    right: Counter[str] = Counter()
    refused: Counter[str] = Counter()

    def read(url: str, number: int) -> None:
        with RemoteStore(url, "counts", token=TOKEN, page_size=15) as counts:
            while not ended.is_set():
                number += 1
                key = f"key-{number % 40}"
                reads: dict[str, tuple[Callable[[], Any], Any]] = {
                    "get": (lambda key=key: counts.get(key), expected[key]),
                    "multi_get": (lambda: counts.multi_get(list(expected)), list(expected.values())),
                    "all": (lambda: dict(counts.all()), expected),
                    "count": (counts.approximate_num_entries, 40),
                }
                for name, (one, answer) in reads.items():
                    try:
                        found = one()
                    except InvalidStateStoreException as error:
                        refused[type(error).__name__] += 1
                    except Exception as error:
                        wrong.append(error)
                    else:
                        right[name] += 1
                        if found != answer:
                            wrong.append((name, found))

    with served(world) as servers:
        hosts = {number: server.address for number, server in enumerate(servers)}
        threads = [
            threading.Thread(target=read, args=(servers[n % 2].url, n), name=f"reads-{n}", daemon=True)
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        chance = random.Random(5)
        for _ in range(100):
            move(world, chance.randrange(4), hosts)
            if chance.random() < 0.2:
                wait_until(partial(answered, right, right.total()), "an answer")
        ended.set()
        for thread in threads:
            thread.join(30)
    assert wrong == []
    assert min(right[name] for name in ("get", "multi_get", "all", "count")) > 0
    assert set(refused) <= {
        "StreamsRebalancingException",
        "InvalidStateStorePartitionException",
        "StateStoreMigratedException",
    }


def answered(right: Counter[str], before: int) -> bool:
    return right.total() > before


def move(world: Application, partition: int, hosts: dict[int, HostInfo]) -> None:
    """The other client takes a partition of `counts` over; in between nobody has it."""
    old = world.owner(partition)
    new = next(client for client in world.clients if client is not old)
    store = old.stores.pop(("counts", partition))
    old.publish()
    old.active = tuple(number for number in old.active if number != partition)
    new.active = (*new.active, partition)
    world.agree(hosts)
    new.stores["counts", partition] = store
    new.publish()


@contextmanager
def saying(said: bytes) -> Iterator[HostInfo]:
    """A server that says the same to whatever it is asked."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), name="says", daemon=True)
    thread.start()
    yield HostInfo("127.0.0.1", server.server_address[1])
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"hello",
        b"[]",
        b"{}",
        b'{"entries":7}',
        b'{"entries":[7],"partitions":[2,3]}',
        b'{"entries":[{"key":7,"value":"AA=="}],"partitions":[2,3]}',
        b'{"entries":[{"key":"","value":"AA==","timestamp":"x"}],"partitions":[2,3]}',
        b'{"entries":[],"partitions":["x"]}',
        b'{"entries":[],"partitions":[2,3],"next":"garbage"}',
        b'{"entries":[],"partitions":[2,3],"next":{}}',
        b'{"count":"many","partitions":[2,3]}',
        b'{"entries":[' + b"[" * 10_000,
    ],
)
def test_another_client_that_answers_garbage_is_told(said: bytes) -> None:
    """What comes from elsewhere is not believed: 502, or a retry; never 500."""
    world = filled([0, 1], [2, 3])

    with saying(said) as address:
        world.agree({0: HostInfo("127.0.0.1", 1), 1: address})
        made = QueryApplication(world.clients[0], host=HostInfo("127.0.0.1", 1))
        statuses = {
            ask(made, "/v1/stores/counts/entries").status,
            ask(made, "/v1/stores/counts/count").status,
            ask(made, "/v1/stores/counts/keys", body={"keys": [key_in(2)]}).status,
        }
        made.close()
    assert statuses <= {502, 503}


def test_remote_store_goes_to_the_client_that_an_answer_names() -> None:
    """The first one is not told where others are when it is asked, and names the owner."""
    world = filled([0, 1], [2, 3])
    with served(world) as servers, RemoteStore(servers[0].url, "counts", token=TOKEN) as counts:
        counts.get(key_in(0))
        # By a server that passes nothing on: each question is marked as one that was passed on.
        ask_once = counts._server._wire.ask

        def marked(method: str, target: str, **given: Any) -> Any:
            return ask_once(method, target, **{**given, "forwarded": True})

        counts._server._wire.ask = marked  # type: ignore[method-assign]
        assert counts.get(key_in(2)) == world.put_keys[key_in(2)]
        servers[1].close()
        with pytest.raises(StateStoreNotAvailableException):
            counts.get(key_in(2))
        world.clients[0].placement = None
        with pytest.raises(InvalidStateStorePartitionException):
            counts.get(key_in(2))
