"""Joining a group on a broker that wants passwords and certificates."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from group_child import Client
from kafka.net.transport import KafkaTCPTransport
from secured import MECHANISMS, Secured
from waiting import wait_until

from millstream import Consumed, Serdes, StreamsBuilder
from millstream.cli.checks import Grade, Verdict, diagnose
from millstream.cli.doctor import examine
from millstream.config import StreamsConfig
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.kafka.membership import KafkaMembership
from millstream.kafka.tokens import unsecured
from millstream.kafka.topics import KafkaTopics
from millstream.model import TopicPartition

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.broker:
        made.add_scram_users()
        made.broker.create_topic("lines", 1)
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


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_login_serves_each_client(mechanism: str, secured: Secured) -> None:
    """The group's member (kafka-python), topics and the consumer that fills stores (librdkafka), with one set
    of settings, in Kafka's names."""
    options = secured.options_of(mechanism)
    assert told(options).count("assigned") == 1
    config = StreamsConfig(options)
    topics = KafkaTopics(config)
    try:
        assert set(topics.describe(["lines"])) == {"lines"}
    finally:
        topics.close()
    consumer = KafkaChangelogConsumer(config)
    try:
        assert consumer.end_offsets([TopicPartition("lines", 0)]) == {("lines", 0): 0}
    finally:
        consumer.close()


def test_a_token_provider_of_the_programs(secured: Secured, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked once for all clients of the program while its token is valid; one that raises is logged
    with its reason, and asked again."""
    asked: list[str] = []

    def provider() -> str:
        asked.append("asked")
        if len(asked) == 1:
            raise OSError("the vault is sealed")
        return unsecured({"unsecuredLoginStringClaim_sub": "me"}).get().text

    options = {**secured.options_of("OAUTHBEARER"), "sasl.oauthbearer.token.provider": provider}
    del options["sasl.jaas.config"]
    assert told(options).count("assigned") == 1
    topics = KafkaTopics(StreamsConfig(options))
    try:
        assert set(topics.describe(["lines"])) == {"lines"}
    finally:
        topics.close()
    assert len(asked) == 2
    assert "the vault is sealed" in caplog.text


def test_a_token_that_the_broker_refuses(secured: Secured) -> None:
    """Is final, as a wrong password is."""
    options = {
        **secured.options_of("OAUTHBEARER"),
        "sasl.oauthbearer.token.provider": lambda: "no.token.atall",
    }
    client = told(options)
    assert client.count("failed") == 1
    assert "SaslAuthenticationFailed" in str(client.told[0][2])
    assert "no.token.atall" not in str(client.told[0][2])


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
    """On a busy machine, the broker may have closed the connection before its answer is read."""
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


def test_what_doctor_says_of_rights(secured: Secured) -> None:
    """`millstream doctor`, for a user who may read one topic and no more, and for one who may do all."""
    names = [f"doctor-{what}-{uuid.uuid4().hex[:8]}" for what in ("orders", "hidden", "totals")]
    admin = AdminClient({"bootstrap.servers": secured.broker.bootstrap_servers})
    for name in names:
        secured.broker.create_topic(name, 1)
    allowed = AclBinding(
        ResourceType.TOPIC,
        names[0],
        ResourcePatternType.LITERAL,
        "User:stranger",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([allowed])[allowed].result(30)
    builder = StreamsBuilder()
    orders = builder.stream(names[0], Consumed.with_(Serdes.string(), Serdes.string()))
    orders.to(names[2])

    def told(user: str) -> dict[str, Verdict]:
        facts = examine(secured.options(user, "right"), builder.build())
        assert facts.cluster is not None
        at_once = replace(facts.cluster, answer_ms=1.0)  # a busy machine is no matter of rights
        return {each.check: each for each in diagnose(replace(facts, cluster=at_once))}

    mine = told("me")
    assert {mine[check].grade for check in ("broker", "topics", "rights", "group")} == {Grade.OK}, mine
    theirs = told("stranger")
    assert theirs["broker"].grade is Grade.OK, theirs
    assert theirs["topics"].grade is Grade.FAILED
    assert names[2] in theirs["topics"].says
    assert names[1] not in str(theirs)
    assert f"does not have the right to DESCRIBE_CONFIGS {names[0]}" in theirs["rights"].says
    assert theirs["group"].grade is Grade.WARNING
