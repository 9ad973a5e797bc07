"""The query server as a part of a client: by its configuration, from start() to close()."""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from fake_world import FakeWorld
from prometheus_client.parser import text_string_to_metric_families
from traps import trap
from waiting import wait_until

from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.errors import (
    ConfigException,
    InvalidStateStoreException,
    StateStoreNotAvailableException,
    StreamsException,
)
from millstream.metrics.prometheus import CONTENT_TYPE
from millstream.model import OpeningTasks, TopicPartition
from millstream.query.composite import QueryableStoreTypes
from millstream.query.metadata import HostInfo, default_partition
from millstream.query.parameters import StoreQueryParameters
from millstream.runtime.client import KafkaStreams
from millstream.runtime.wiring import real_parts
from millstream.serdes.serdes import Serdes
from millstream.server import RemoteStore
from millstream.server.serving import listening_address, query_server
from millstream.states import State
from millstream.topology.topology import Topology

SOON = timedelta(seconds=20)
Make = Callable[..., KafkaStreams]


def word_count(*, users: bool = False) -> Topology:
    builder = StreamsBuilder()
    strings = Consumed.with_(Serdes.string(), Serdes.string())
    stream = builder.stream("lines", strings)
    stream.group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    if users:
        builder.global_table("users", strings, Materialized.as_("users"))
    return builder.build()


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    world = FakeWorld({"lines": 3, "out": 1, "users": 2})
    for number in range(30):
        key = f"key-{number}".encode()
        partition = TopicPartition("app-counts-changelog", default_partition(key, 3))
        world.log.append(partition, (key, number.to_bytes(8, "big"), 1))
    for number in range(4):
        world.log.append(TopicPartition("users", number % 2), (f"user-{number}".encode(), b"Anna", 1))
    yield world
    world.close()


@pytest.fixture
def make(world: FakeWorld, tmp_path: Path) -> Iterator[Make]:
    """Makes clients with the real query server, each as on a machine of its own."""
    made: list[KafkaStreams] = []

    def make(name: str, topology: Topology | None = None, **options: Any) -> KafkaStreams:
        config = {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "client.id": name,
            "state.dir": str(tmp_path / name),
            "query.server.enabled": True,
            **{key.replace("__", "."): value for key, value in options.items()},
        }
        parts = replace(world.parts(), query_server=real_parts().query_server)
        client = KafkaStreams(topology or word_count(), config, parts=parts)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close(SOON)


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


def get(url: str, target: str, token: str = "") -> tuple[int, Any]:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request("GET", target, headers={"authorization": f"Bearer {token}"} if token else {})
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def written_for_prometheus(url: str) -> tuple[str, dict[str, float]]:
    """The content type of /metrics, and what stands there without labels but the client's."""
    with urlopen(f"{url}/metrics", timeout=10) as response:
        kind, text = response.headers["content-type"], response.read().decode()
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if set(sample.labels) == {"client_id"}
    }
    return kind, found


def url_of(client: KafkaStreams) -> str:
    url = client.query_server_url
    assert url is not None
    return url


def test_a_client_answers_while_it_runs(make: Make) -> None:
    """It answers from start() to close(), with its health and what it knows of itself."""
    client = make("A")
    assert client.query_server_url is None
    client.start()
    client.wait_until_running(SOON)
    url = url_of(client)
    assert url.startswith("http://127.0.0.1:")
    assert get(url, "/readyz")[0] == 200
    assert get(url, "/v1/health")[1]["status"] == "running"
    kind, metrics = written_for_prometheus(url)
    assert kind == CONTENT_TYPE
    assert metrics["kafka_streams_stream_metrics_alive_stream_threads"] == 1
    with RemoteStore(url, "counts") as counts:
        assert counts.get("key-7") == 7
        assert counts.get("nobody") is None
        assert len(dict(counts.all())) == 30
        assert client.close(SOON)
        with pytest.raises(StateStoreNotAvailableException):
            counts.get("key-7")
    assert [each.name for each in threading.enumerate() if each.name.startswith("A-Query")] == []


def test_a_server_that_fails_is_told_by_the_health(make: Make) -> None:
    """Nobody who is far away can ask any more; the stores answer here."""
    client = make("A")
    client.start()
    client.wait_until_running(SOON)
    server: Any = client._query_server._server  # type: ignore[union-attr]

    async def broken(counter: int) -> bool:
        raise OSError("too many open files")

    server.on_tick = broken
    server._loop.call_soon_threadsafe(server._woken.set)
    wait_until(lambda: client.health.status == "degraded", "the health tells it", 10)
    assert "OSError" in client.health.reason
    assert not client.health.ready
    counts = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    assert client.store(counts).get("key-7") == 7


def test_a_client_has_none_unless_it_is_asked_for(make: Make) -> None:
    """The default."""
    client = make("A", query__server__enabled=False)
    client.start()
    assert client.query_server_url is None
    assert [each.name for each in threading.enumerate() if each.name.startswith("A-Query")] == []


def test_health_is_told_while_stores_are_restored(make: Make, world: FakeWorld) -> None:
    """An orchestrator sees a client that lives; queries are told to come again."""
    world.gate.clear()  # no engine starts, so no thread is RUNNING
    client = make("A")
    client.start()
    url = url_of(client)
    assert get(url, "/healthz")[0] == 200
    assert get(url, "/readyz")[0] == 503
    with RemoteStore(url, "counts") as counts:
        with pytest.raises(InvalidStateStoreException) as refused:
            counts.get("key-7")
        assert refused.value.retriable
        world.gate.set()
        client.wait_until_running(SOON)
        assert counts.get("key-7") == 7


def test_a_client_is_ready_once_its_tasks_run(make: Make, world: FakeWorld) -> None:
    """A rolling update waits for that. The client is alive all the time, and its stores answer."""
    world.opening["p0"] = OpeningTasks(2, 154_000)
    client = make("A")
    client.start()
    client.wait_until_running(SOON)
    url = url_of(client)
    wait_until(lambda: client.health.status == "starting", "the pipeline runs")
    assert get(url, "/readyz") == (503, {"ready": False, "status": "starting"})
    assert get(url, "/healthz")[0] == 200
    health = get(url, "/v1/health")[1]
    assert health["reason"] == ("2 tasks of pipeline p0 are starting, with 154,000 records left to restore")
    with RemoteStore(url, "counts") as counts:
        assert counts.get("key-7") == 7
    world.engine.progress("p0", {TopicPartition("lines", 0): 50})
    assert get(url, "/readyz")[0] == 200


def test_global_stores_are_answered_by_each_client(make: Make) -> None:
    """Whole, and without asking others."""
    client = make("A", word_count(users=True))
    client.start()
    client.wait_until_running(SOON)
    with RemoteStore(url_of(client), "users") as users:
        assert users["user-3"] == "Anna"
        assert users.get("nobody") is None
        assert [key for key, _ in users.all()] == [f"user-{n}" for n in range(4)]
        assert users.approximate_num_entries() == 4


def test_two_clients_answer_for_each_other_and_one_for_both_when_it_is_alone(make: Make) -> None:
    """By their application.server; after one has closed, the other one takes over what it had."""
    clients = [make(name, application__server=f"localhost:{free_port()}") for name in "AB"]
    for client in clients:
        client.start()
    for client in clients:
        client.wait_until_running(SOON)
    expected = {f"key-{number}": number for number in range(30)}

    def all_of(client: KafkaStreams) -> dict[str, int] | None:
        with RemoteStore(url_of(client), "counts", page_size=7) as counts:
            try:
                return dict(counts.all()) if counts.multi_get(list(expected)) else None
            except InvalidStateStoreException:
                return None

    def shared() -> bool:
        return all(client.all_local_store_partition_lags().get("counts") for client in clients)

    wait_until(shared, "both have a part", SOON.total_seconds())
    for client in clients:
        wait_until(lambda c=client: all_of(c) == expected, "all of it from each", SOON.total_seconds())
        with RemoteStore(url_of(client), "counts") as counts:
            assert {key: counts[key] for key in expected} == expected
    hosts = {each["host"] for each in get(url_of(clients[0]), "/v1/clients")[1]["clients"]}
    assert len(hosts) == 2
    assert clients[0].close(SOON)
    wait_until(lambda: all_of(clients[1]) == expected, "the other has it all", SOON.total_seconds())


def test_a_member_of_the_group_without_the_token_hears_no_question(make: Make) -> None:
    """It may take its part of the work, and announce any endpoint: it hears no token and no key there."""
    token = "s3cret-token"
    address = f"localhost:{free_port()}"
    honest = make("A", application__server=address, query__server__token=token)
    with trap() as made:
        rogue = make("R", application__server=str(made.address), query__server__enabled=False)
        for client in (honest, rogue):
            client.start()
        for client in (honest, rogue):
            client.wait_until_running(SOON)

        def trapped() -> list[str]:
            hosts = {
                f"key-{n}": honest.query_metadata_for_key("counts", f"key-{n}").active_host for n in range(30)
            }
            return [key for key, host in hosts.items() if host == made.address]

        keys = wait_until(trapped, "a part is where the trap is", SOON.total_seconds())
        for key in keys:
            status, body = get(url_of(honest), f"/v1/stores/counts/keys/{key}", token)
            assert (status, body["error"]) == (502, "BadGateway")
        assert get(url_of(honest), "/v1/stores/counts/entries", token)[0] == 502
        assert made.heard
        assert token not in made.all_heard
        assert "key-" not in made.all_heard


def test_an_address_in_use_ends_the_start(make: Make) -> None:
    """Other failures of start() do the same; the client can be created again elsewhere."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        client = make("A", query__server__listen=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StreamsException, match="cannot listen"):
            client.start()
    assert client.state is State.ERROR


def test_an_open_address_without_a_token_ends_the_start(make: Make) -> None:
    """Nobody opens his stores to the network by accident."""
    client = make("A", query__server__listen="0.0.0.0:0", application__server="localhost:1")
    with pytest.raises(ConfigException):
        client.start()
    client = make("B", query__server__listen=f"0.0.0.0:{free_port()}")
    with pytest.raises(ConfigException, match=r"query\.server\.token"):
        client.start()
    client = make("C", query__server__listen=f"0.0.0.0:{free_port()}", query__server__token="s3cr3t-token")
    client.start()
    assert get(url_of(client).replace("0.0.0.0", "127.0.0.1"), "/v1/stores")[0] == 401
    assert "s3cr3t" not in repr(client) + repr(client._config)


def test_a_short_token_is_told_where_others_reach_the_server(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """A proof lets whoever connects try guesses. The warning does not say the token."""
    for name, token, warned in (("A", "s3cret", True), ("B", "s3cret-and-much-longer", False)):
        caplog.clear()
        make(name, query__server__listen=f"0.0.0.0:{free_port()}", query__server__token=token).start()
        assert ("'query.server.token' has only 6 characters" in caplog.text) is warned
        assert "s3cret" not in caplog.text


@pytest.mark.parametrize(
    ("listen", "host", "expected"),
    [
        (None, None, HostInfo("127.0.0.1", 0)),
        (None, HostInfo("localhost", 80), HostInfo("localhost", 80)),
        (None, HostInfo("orders-1", 80), HostInfo("127.0.0.1", 80)),
        (HostInfo("0.0.0.0", 90), HostInfo("orders-1", 80), HostInfo("0.0.0.0", 90)),
    ],
)
def test_where_it_listens(listen: HostInfo | None, host: HostInfo | None, expected: HostInfo) -> None:
    """The default is loopback; a setting names another address."""
    assert listening_address(listen, host) == expected


def test_an_address_that_others_do_not_reach_is_told(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The others would look for it where application.server says."""
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "application.server": f"orders-1:{free_port()}",
            "query.server.enabled": True,
        }
    )
    query_server(make("A"), config).close()
    assert "other clients cannot reach it" in caplog.text
    with pytest.raises(ConfigException, match=r"'query\.server\.listen'"):
        query_server(make("B"), config.replace({"query.server.listen": "here"}))


def test_the_configuration_hides_the_token(caplog: pytest.LogCaptureFixture) -> None:
    """Neither its text nor the log of a client shows it."""
    caplog.set_level(logging.DEBUG)
    config = StreamsConfig(
        {"application.id": "a", "bootstrap.servers": "k:1", "query.server.token": "s3cr3t-token"}
    )
    assert "s3cr3t" not in repr(config)
    assert config["query.server.token"] == "s3cr3t-token"
