"""The query server over TLS: on real sockets, with certificates that are made for it."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from certificates import PASSWORD, Files, made_in
from server_world import FakeStreams, application, key_in

from millstream.config import StreamsConfig
from millstream.errors import ConfigException, StateStoreNotAvailableException
from millstream.query.metadata import HostInfo
from millstream.remote.http_wire import Tls
from millstream.server import Limits, QueryServer, RemoteStore
from millstream.server.serving import query_server

pytestmark = pytest.mark.disk


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return made_in(tmp_path_factory.mktemp("tls"))


def filled() -> FakeStreams:
    world = application()
    world.put("a", 1)
    return world.clients[0]


@pytest.fixture(scope="module")
def server(files: Files) -> Iterator[QueryServer]:
    with QueryServer(filled(), HostInfo("localhost", 0), token="t", tls=files.tls) as made:
        yield made


def test_a_store_is_read_over_tls(server: QueryServer, files: Files) -> None:
    """The reader trusts its authority."""
    assert server.url.startswith("https://localhost:")
    with RemoteStore(server.url, "counts", token="t", ca_file=files.certificate) as counts:
        assert counts["a"] == 1
        assert [key for key, _ in counts.all()] == ["a"]


def test_another_authority_is_not_believed(server: QueryServer, files: Files) -> None:
    """The token is not shown to whoever answers there; the machine's own authorities are the same."""
    for ca_file in (files.other, None):
        with (
            RemoteStore(server.url, "counts", token="t", ca_file=ca_file) as counts,
            pytest.raises(StateStoreNotAvailableException, match="CERTIFICATE_VERIFY_FAILED"),
        ):
            counts["a"]


def test_its_name_has_to_be_in_the_certificate(server: QueryServer, files: Files) -> None:
    """An address that leads to the same place is another name."""
    url = server.url.replace("localhost", "127.0.0.1")
    with (
        RemoteStore(url, "counts", token="t", ca_file=files.certificate) as counts,
        pytest.raises(StateStoreNotAvailableException, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        counts["a"]


def test_what_is_not_encrypted_is_not_answered(server: QueryServer) -> None:
    """Plain HTTP to the same port gets nothing."""
    with socket.create_connection(server.address, timeout=10) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP" not in connection.recv(1000)


def test_whoever_says_nothing_makes_room(files: Files) -> None:
    """Connections that never agree how to encrypt keep nobody out, and closing does not wait for them."""
    server = QueryServer(
        filled(), HostInfo("localhost", 0), limits=Limits(connections=8, transfer_s=60), tls=files.tls
    ).start()
    silent = [socket.create_connection(server.address, timeout=5) for _ in range(20)]
    try:
        context = ssl.create_default_context(cafile=files.certificate)
        connection = HTTPSConnection(*server.address, timeout=10, context=context)
        connection.request("GET", "/v1/stores/counts/keys/a")
        assert json.loads(connection.getresponse().read())["value"] == 1
        connection.close()
        ended = 0
        for each in silent[:12]:
            ended += each.recv(1) == b""
        assert ended == 12
    finally:
        begun = time.monotonic()
        assert server.close()
        assert time.monotonic() - begun < 5
        for each in silent:
            each.close()


def test_clients_ask_each_other_over_tls(files: Files) -> None:
    """A key that the other one has; and its proof is asked for as ever."""
    world = application([0, 1], [2, 3])
    key = key_in(2)
    world.put(key, 7)
    servers = [
        QueryServer(client, HostInfo("localhost", 0), token="t", tls=files.tls).start()
        for client in world.clients
    ]
    try:
        world.agree({number: server.address for number, server in enumerate(servers)})
        with RemoteStore(servers[0].url, "counts", token="t", ca_file=files.certificate) as counts:
            assert counts[key] == 7
    finally:
        for server in servers:
            server.close()


# --- configuration ---------------------------------------------------------------------------------------


def test_what_does_not_fit_is_told_before_it_starts(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The password is in no message, log or repr."""
    caplog.set_level(logging.DEBUG)
    wrong = [
        Tls(files.certificate, files.key, "another"),
        Tls(files.certificate, files.key),
        Tls(files.other, files.key, PASSWORD),
        Tls(files.certificate),
        Tls(str(tmp_path / "nowhere.pem"), files.key, PASSWORD),
        Tls(files.certificate, files.key, PASSWORD, str(tmp_path / "nowhere.pem")),
        Tls(files.certificate, files.key, PASSWORD, files.key),
    ]
    for tls in wrong:
        with pytest.raises(ConfigException) as refused:
            QueryServer(filled(), tls=tls)
        assert PASSWORD not in f"{refused.value} {tls!r} {caplog.text}"
    with pytest.raises(ConfigException, match="give an address that begins with https:"):
        RemoteStore("http://localhost:1", "counts", ca_file=files.certificate)


def test_it_is_set_up_by_keys(files: Files) -> None:
    """The certificate's is what switches it on; others without it are a mistake."""
    given = {
        "application.id": "a",
        "bootstrap.servers": "fake:9092",
        "query.server.ssl.key.location": files.key,
        "query.server.ssl.key.password": PASSWORD,
    }
    with pytest.raises(ConfigException, match=r"certificate\.location"):
        query_server(filled(), StreamsConfig(given))
    config = StreamsConfig({**given, "query.server.ssl.certificate.location": files.certificate})
    assert PASSWORD not in repr(config)
    server = query_server(filled(), config)
    try:
        assert server.url.startswith("https://")
    finally:
        server.close()
