"""Joining a group on a broker that wants passwords and certificates."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from group_child import Client
from kafka.net.transport import KafkaTCPTransport
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.kafka.membership import KafkaMembership

pytestmark = pytest.mark.kafka

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="{}" password="{}";'


class Secured:
    """A broker with a listener for passwords and one for both, and whom it lets in."""

    def __init__(self, folder: Path) -> None:
        key, certificate = folder / "key.pem", folder / "certificate.pem"
        made_by = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*made_by, *files], check=True, capture_output=True)
        both = folder / "both.pem"
        both.write_text(key.read_text() + certificate.read_text())
        self.certificate = certificate.read_text()
        sockets = [socket.socket() for _ in range(4)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        plain, self.passwords, self.secure, controller = (one.getsockname()[1] for one in sockets)
        for one in sockets:
            one.close()
        open_to = (
            f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{self.passwords},BOTH://127.0.0.1:{self.secure}"
        )
        server = (
            LOGIN.format("admin", "admin").rstrip(";")
            + ' user_me="right" user_stranger="right" user_admin="admin";'
        )
        self.broker = EmbeddedKafka(
            port=plain,
            settings={
                "listeners": f"{open_to},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": open_to,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL"
                ),
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl.plain.sasl.jaas.config": server,
                "listener.name.both.plain.sasl.jaas.config": server,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(both),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:me",
            },
        )

    def options(self, user: str, password: str) -> dict[str, object]:
        return {
            "application.id": f"g-{uuid.uuid4().hex[:10]}",
            "bootstrap.servers": f"127.0.0.1:{self.passwords}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": LOGIN.format(user, password),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.broker:
        yield made


def told(options: dict[str, object]) -> Client:
    """A member with these options, when it has been told something."""
    client = Client("a")
    membership = KafkaMembership(
        StreamsConfig(options), client, ["lines"], client_id=f"{options['application.id']}-a"
    )
    membership.start()
    try:
        wait_until(lambda: client.told, "it is told something", 20)
    finally:
        membership.close(5)
    assert not [one.name for one in threading.enumerate() if str(options["application.id"]) in one.name]
    return client


def test_a_password(secured: Secured) -> None:
    """PLAIN, as Java's login configuration gives it."""
    assert told(secured.options("me", "right")).count("assigned") == 1


def test_a_password_and_encryption(secured: Secured) -> None:
    """The authority's certificate as a text; the host's name is checked."""
    options = secured.options("me", "right")
    options["bootstrap.servers"] = f"127.0.0.1:{secured.secure}"
    options["security.protocol"] = "SASL_SSL"
    options["ssl.truststore.certificates"] = secured.certificate
    assert told(options).count("assigned") == 1


def test_a_wrong_password(secured: Secured) -> None:
    """Is final, and says what to look at; the password is not in it."""
    client = told(secured.options("me", "a-wrong-one"))
    text = str(client.told[0][2])
    assert client.count("failed") == 1
    assert "SaslAuthenticationFailed" in text
    assert "a-wrong-one" not in text


def test_a_wrong_password_that_is_read_late(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a busy machine, where the broker has closed the connection before its answer is looked at."""
    receive = KafkaTCPTransport._sock_recv

    def late(transport: KafkaTCPTransport) -> object:
        deadline = time.monotonic() + 0.5
        while _is_open(transport._sock) and time.monotonic() < deadline:
            pass
        return receive(transport)

    monkeypatch.setattr(KafkaTCPTransport, "_sock_recv", late)
    client = told(secured.options("me", "a-wrong-one"))
    assert "SaslAuthenticationFailed" in str(client.told[0][2])


def _is_open(connection: socket.socket) -> bool:
    if not hasattr(socket, "TCP_INFO"):
        return True  # not Linux: then it is late by the clock
    state = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return int(state) == 1  # ESTABLISHED; CLOSE_WAIT when the other side has closed


def test_no_rights_in_the_group(secured: Secured) -> None:
    """Is final, and says which right to give."""
    client = told(secured.options("stranger", "right"))
    assert client.count("failed") == 1
    assert "GroupAuthorizationFailedError" in str(client.told[0][2])
    assert "kafka-acls --add --operation Read" in str(client.told[0][2])


def test_a_certificate_that_is_not_trusted(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """May be mended on the broker's side: it is tried on, and logged with its reason."""
    options = secured.options("me", "right")
    options["bootstrap.servers"] = f"127.0.0.1:{secured.secure}"
    options["security.protocol"] = "SASL_SSL"
    options["consumer.session.timeout.ms"] = 1000
    client = Client("a")
    membership = KafkaMembership(StreamsConfig(options), client, ["lines"], client_id="untrusting")
    membership.start()
    wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text, "it is logged", 20)
    membership.close(5)
    assert client.told == []
