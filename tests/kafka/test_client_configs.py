"""Kafka's configuration into librdkafka's."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from millstream.config import StreamsConfig
from millstream.errors import ConfigException
from millstream.kafka import clients
from millstream.kafka.clients import admin_config, restore_consumer_config
from millstream.kafka.consumer import KafkaChangelogConsumer
from millstream.kafka.topics import KafkaTopics

BASE = {"application.id": "app", "bootstrap.servers": "a:1,b:2"}


def consumer(**options: Any) -> dict[str, Any]:
    return restore_consumer_config(
        StreamsConfig({**BASE, **{name.replace("__", "."): value for name, value in options.items()}})
    )


def test_the_consumer_reads_what_it_is_told_and_commits_nothing() -> None:
    """No configuration changes that."""
    made = consumer(
        consumer__auto__offset__reset="latest",
        consumer__enable__auto__commit=True,
        consumer__group__id="mine",
        restore__consumer__group__id="mine",
    )
    assert made["bootstrap.servers"] == "a:1,b:2"
    assert made["auto.offset.reset"] == "error"
    assert made["enable.auto.commit"] is False
    assert made["group.id"] == "app"
    assert made["allow.auto.create.topics"] is False


def test_names_that_differ_are_translated_and_javas_own_are_dropped() -> None:
    """`restore.consumer.` goes before `consumer.`; numbers and booleans become texts."""
    made = consumer(
        consumer__fetch__max__wait__ms=7,
        consumer__fetch__min__bytes=10,
        restore__consumer__fetch__min__bytes=20,
        consumer__max__poll__records=5,
        receive__buffer__bytes=1000,
        consumer__check__crcs=True,
    )
    assert made["fetch.wait.max.ms"] == "7"
    assert made["fetch.min.bytes"] == "20"
    assert made["socket.receive.buffer.bytes"] == "1000"
    assert made["check.crcs"] == "true"
    assert not {"max.poll.records", "fetch.max.wait.ms", "receive.buffer.bytes"} & set(made)


@pytest.mark.parametrize(
    "module",
    [
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
    ],
)
def test_a_java_login_becomes_a_user_name_and_a_password(module: str) -> None:
    """Quoted, with an escaped quote in it, or bare."""
    for text, user, password in (
        (f'{module} required username="ann" password="p;w=\\"1";', "ann", 'p;w="1'),
        (f"{module} required username='ann' password='x';", "ann", "x"),
        (f"{module} required\n  username=ann password=x;", "ann", "x"),
    ):
        made = admin_config(StreamsConfig({**BASE, "sasl.mechanism": "PLAIN", "sasl.jaas.config": text}))
        assert (made["sasl.username"], made["sasl.password"]) == (user, password)
        assert "sasl.jaas.config" not in made


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": ""}, "no user name"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'x.PlainLoginModule required username="hush";'},
            "has no password",
        ),
        ({"ssl.truststore.location": "/ca.jks"}, "a Java key store.*ssl.truststore.type"),
        ({"ssl.keystore.location": "/me.jks"}, "neither PEM nor PKCS#12"),
        (
            {"sasl.mechanism": "PLAIN", "sasl.login.callback.handler.class": "com.example.Login"},
            "names a Java class",
        ),
        ({"sasl.mechanism": "DIGEST-MD5"}, "it can be PLAIN, .*OAUTHBEARER, AWS_MSK_IAM, GSSAPI"),
    ],
)
def test_what_only_java_can_do_is_refused_with_another_way(options: dict[str, str], told: str) -> None:
    """It is not ignored: the client would talk to Kafka with less protection than requested."""
    with pytest.raises(ConfigException, match=told) as raised:
        admin_config(StreamsConfig({**BASE, **options}))
    assert "hush" not in str(raised.value)


def test_certificates_as_pem_and_pkcs12_are_understood() -> None:
    """Their settings have Kafka's names."""
    made = admin_config(
        StreamsConfig(
            {
                **BASE,
                "security.protocol": "SSL",
                "ssl.truststore.location": "/ca.pem",
                "ssl.truststore.type": "PEM",
                "ssl.keystore.location": "/me.p12",
                "ssl.keystore.password": "x",
                "ssl.endpoint.identification.algorithm": "",
            }
        )
    )
    assert made["ssl.ca.location"] == "/ca.pem"
    assert made["ssl.keystore.location"] == "/me.p12"
    assert made["ssl.keystore.password"] == "x"
    assert made["ssl.endpoint.identification.algorithm"] == "none"
    assert "ssl.keystore.type" not in made


def test_an_option_that_nobody_knows_is_named() -> None:
    """The error is raised when the client is created, before anything else happens."""
    config = StreamsConfig({**BASE, "consumer.colour": "blue", "admin.retries": "many"})
    with pytest.raises(ConfigException, match=r"colour.*main\.consumer"):
        KafkaChangelogConsumer(config)
    with pytest.raises(ConfigException, match="retries"):
        KafkaTopics(config)


def test_librdkafka_takes_what_is_made() -> None:
    """Every name in it exists."""
    config = StreamsConfig(
        {
            **BASE,
            "metadata.max.age.ms": 1000,
            "connections.max.idle.ms": 1000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 20,
            "retry.backoff.ms": 30,
            "send.buffer.bytes": 1000,
            "receive.buffer.bytes": 1000,
            "request.timeout.ms": 1000,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": 'x.ScramLoginModule required username="a" password="b";',
        }
    )
    AdminClient(admin_config(config))
    Consumer(restore_consumer_config(config)).close()


def test_what_a_young_broker_answers_is_no_warning() -> None:
    """A producer asks again by itself; an answer that ends its tries stays what it is."""
    calm = clients._Calm(lambda: 0.0)

    def level(text: str) -> str:
        record = logging.LogRecord("rdkafka", logging.WARNING, "", 0, "%s", (text,), None)
        assert calm.filter(record)
        return record.levelname

    assert (
        level("GETPID [a]: Failed to acquire idempotence PID: Coordinator load in progress: retrying")
        == "INFO"
    )
    assert level("FAIL [a]: refused: retrying") == "WARNING"


def test_what_a_client_says_again_and_again_is_told_once_in_a_while() -> None:
    """One of each kind in half a minute, and how many there were since; other kinds are not held up."""
    now = 100.0
    calm = clients._Calm(lambda: now)

    def said(text: str) -> str | None:
        record = logging.LogRecord("rdkafka", logging.ERROR, "", 0, "%s", (text,), None)
        return record.getMessage() if calm.filter(record) else None

    assert said("FAIL [a]: refused") == "FAIL [a]: refused"
    assert [said("FAIL [b]: refused") for _ in range(3)] == [None, None, None]
    assert said("ERROR [a]: all brokers are down") is not None
    now += 31.0
    assert said("FAIL [c]: refused") == "FAIL [c]: refused (and 3 more like it before)"
