"""Kafka's configuration into kafka-python's; and that bytes from the network cannot hurt."""

from __future__ import annotations

import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.base import BaseCoordinator
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from millstream.config import StreamsConfig
from millstream.errors import ConfigException, SetupException
from millstream.kafka import coordinator
from millstream.kafka.clients import membership_config

BASE = {"application.id": "app", "bootstrap.servers": "a:1,b:2"}
JAAS = 'org.apache.kafka.common.security.{} required username="me" password="p\\"w";'


def translated(**options: Any) -> dict[str, Any]:
    return membership_config(
        StreamsConfig({**BASE, **{name.replace("__", "."): value for name, value in options.items()}})
    )


def test_what_holds_where_nothing_is_said() -> None:
    """A heartbeat five times a second; every option is one that kafka-python knows."""
    made = translated()
    assert made["bootstrap_servers"] == ["a:1", "b:2"]
    assert made["group_id"] == "app"
    assert made["heartbeat_interval_ms"] == 200
    assert made["session_timeout_ms"] == 10_000
    assert made["max_poll_interval_ms"] == 300_000
    assert made["security_protocol"] == "PLAINTEXT"


def test_main_consumer_goes_before_consumer() -> None:
    """A short session shortens the heartbeat as well, unless that is set."""
    made = translated(
        consumer__session__timeout__ms=20_000,
        main__consumer__session__timeout__ms="300",
        consumer__max__poll__interval__ms=5,
        retry__backoff__ms=7,
    )
    assert made["session_timeout_ms"] == 300
    assert made["heartbeat_interval_ms"] == 100
    assert made["max_poll_interval_ms"] == 5
    assert made["retry_backoff_ms"] == 7


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"consumer__session__timeout__ms": "soon"}, "whole number of milliseconds"),
        ({"consumer__session__timeout__ms": 0}, "whole number of milliseconds"),
        ({"consumer__session__timeout__ms": 100, "consumer__heartbeat__interval__ms": 100}, "not less than"),
        ({"security__protocol": "SASL_SSL", "sasl__mechanism": "PLAIN"}, "set 'sasl.jaas.config'"),
        ({"security__protocol": "SSL", "ssl__truststore__location": "/a/b.jks"}, "a Java key store"),
        ({"security__protocol": "SSL", "ssl__keystore__location": "/a/b.p12"}, "'ssl.keystore.key'"),
        ({"security__protocol": "SSL", "ssl__truststore__certificates": "no PEM"}, "must be PEM"),
    ],
)
def test_what_is_refused(options: dict[str, Any], text: str) -> None:
    """The message names the key and what to give instead."""
    with pytest.raises(ConfigException, match=text):
        translated(**options)


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
def test_passwords_come_out_of_javas_login_configuration(mechanism: str, module: str) -> None:
    """This works for PLAIN and SCRAM."""
    made = translated(
        security__protocol="SASL_PLAINTEXT", sasl__mechanism=mechanism, sasl__jaas__config=JAAS.format(module)
    )
    assert made["security_protocol"] == "SASL_PLAINTEXT"
    assert made["sasl_mechanism"] == mechanism
    assert (made["sasl_plain_username"], made["sasl_plain_password"]) == ("me", 'p"w')
    assert "ssl_context" not in made


def test_certificates_as_texts_and_as_files(tmp_path: Path) -> None:
    """Texts leave no file behind."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made_by = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made_by, *files], check=True, capture_output=True)
    made = translated(
        security__protocol="SSL",
        ssl__truststore__certificates=certificate.read_text(),
        ssl__keystore__key=key.read_text(),
        ssl__keystore__certificate__chain=certificate.read_text(),
    )
    context = made["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    from_files = translated(
        security__protocol="SASL_SSL",
        sasl__mechanism="PLAIN",
        sasl__jaas__config=JAAS.format("plain.PlainLoginModule"),
        ssl__truststore__location=str(certificate),
        ssl__keystore__location=str(both),
        ssl__endpoint__identification__algorithm="",
    )["ssl_context"]
    assert not from_files.check_hostname
    assert from_files.verify_mode is ssl.CERT_REQUIRED


def test_a_kafka_python_that_we_do_not_know_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what changed, and which version to install."""
    coordinator.check_library()
    monkeypatch.setattr(BaseCoordinator, "reset_generation", lambda self, other: None)
    with pytest.raises(SetupException, match=r"BaseCoordinator\.reset_generation"):
        coordinator.check_library()
    monkeypatch.undo()
    monkeypatch.delattr(BaseCoordinator, "poll_heartbeat")
    with pytest.raises(SetupException, match="poll_heartbeat takes nothing: it was removed"):
        coordinator.check_library()


def test_what_came_before_the_end_of_a_connection_is_read() -> None:
    """Then the end; the library's own transport gives both at once, and its caller drops the data."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.sendall(b"wrong password")
    theirs.close()
    receive = coordinator.data_before_the_end(KafkaTCPTransport(None, ours)._sock_recv)
    assert receive() == (b"wrong password", None)
    data, error = receive()
    assert data == b""
    assert "disconnected" in str(error)
    ours.close()


@given(st.binary(max_size=200))
def test_bytes_of_strangers_are_user_data_or_nothing(data: bytes) -> None:
    """Members and leaders may send any bytes."""
    assert isinstance(coordinator._user_data_of("m", data), bytes)
    assert isinstance(coordinator._decided_in(data), bytes)


@given(st.binary(max_size=200))
def test_user_data_goes_both_ways_unchanged(data: bytes) -> None:
    """It is in the consumer's own formats, which Kafka's tools read."""
    assert coordinator._user_data_of("m", ConsumerProtocolSubscription(0, ["t"], data).encode()) == data
    assert coordinator._decided_in(ConsumerProtocolAssignment(0, [("t", [0])], data).encode()) == data
