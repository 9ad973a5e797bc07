"""Kafka's configuration, as its users write it, into librdkafka's.

Both speak dotted names and agree on most. Where they do not, this file is one table: renamed, dropped
because it configures Java, or refused because it would silently not do what it says (a Java key store).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from millstream.config import StreamsConfig, as_text
from millstream.errors import ConfigException, StreamsException

__all__ = ["admin_config", "build", "client_log", "producer_config", "restore_consumer_config", "unreachable"]

T = TypeVar("T")

client_log = logging.getLogger(__name__)
"""Where librdkafka's own messages go, instead of the standard error output."""

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_JAVA_ONLY = frozenset(
    (
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "max.poll.records",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "request.timeout.ms",  # our own deadline on each call stands for it
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "value.deserializer",
    )
)

_OURS = frozenset(
    (
        "auto.offset.reset",  # a store never skips: what is gone from the changelog is an error
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.id",
        "group.instance.id",
        "partition.assignment.strategy",
    )
)

_COMMON = (
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.ms",
    "send.buffer.bytes",
)


def admin_config(config: StreamsConfig) -> dict[str, Any]:
    """What an AdminClient of librdkafka takes."""
    return {
        **_common(config, "admin"),
        **_translated(config.with_prefix("admin."), "admin."),
        # Asking for a topic must not bring it back (KIP-662).
        "allow.auto.create.topics": False,
    }


def producer_config(config: StreamsConfig) -> dict[str, Any]:
    """What a producer of our own takes (records of pipelines are written by Spark's)."""
    return {
        **_common(config, "producer"),
        **_translated(config.with_prefix("producer."), "producer."),
        # A retry must not write a record twice.
        "enable.idempotence": True,
        # Delivery is asked about only where it failed; successes are counted by the flush.
        "delivery.report.only.error": True,
    }


def restore_consumer_config(config: StreamsConfig) -> dict[str, Any]:
    """What the consumer that fills stores takes.

    It reads what it is told to, from where it is told to, and commits nothing. librdkafka wants a group id
    even so; it joins no group.
    """
    return {
        **_common(config, "restore-consumer"),
        # The broker answers as soon as there is a byte; but a new assignment waits for the answer under way.
        "fetch.wait.max.ms": 100,
        "fetch.min.bytes": 1,
        "fetch.error.backoff.ms": 100,
        "queued.min.messages": 200_000,
        "queued.max.messages.kbytes": 65_536,
        **_translated(config.with_prefix("consumer."), "consumer."),
        **_translated(config.with_prefix("restore.consumer."), "restore.consumer."),
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        # Tells that the end was reached, where the last offsets are not records (transaction markers).
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }


def build(kind: Callable[..., T], options: Mapping[str, Any]) -> T:
    """A client of librdkafka's.

    Raises:
        ConfigException: it does not know an option, or not its value.
    """
    try:
        return kind(dict(options), logger=client_log)
    except KafkaException as error:
        raise ConfigException(
            f"the clients that fill stores and create topics refuse their configuration: {_reason(error)}. "
            f"What is "
            "for Spark's consumers alone goes behind 'main.consumer.', for its producers behind 'producer.'"
        ) from error


def unreachable(config: StreamsConfig, what: str, error: BaseException) -> StreamsException:
    """The error for a cluster that did not answer in time, or refused."""
    servers = ",".join(config.bootstrap_servers)
    return StreamsException(
        f"could not {what}: {_reason(error)}; bootstrap.servers is '{servers}', request.timeout.ms "
        f"{config.request_timeout_s * 1000:.0f}. Check that Kafka is running there and can be reached"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException) and error.args:
        cause = error.args[0]
        return f"{cause.name()}: {cause.str()}" if hasattr(cause, "name") else str(cause)
    return str(error) or type(error).__name__


def _common(config: StreamsConfig, role: str) -> dict[str, Any]:
    given = config.given
    common: dict[str, Any] = {
        "bootstrap.servers": ",".join(config.bootstrap_servers),
        "client.id": f"{config.client_id or config.application_id}-{role}",
        # Brokers come back; what asks has a deadline of its own.
        "log.connection.close": False,
        **_translated({name: given[name] for name in _COMMON if name in given}, ""),
        **_translated(config.security, ""),
    }
    return common


def _translated(options: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    translated: dict[str, Any] = {}
    for name, value in options.items():
        if name in _JAVA_ONLY or name in _OURS or value is None:
            continue
        if name == "sasl.jaas.config":
            translated.update(_jaas(as_text(value)))
        elif name in ("ssl.truststore.location", "ssl.truststore.password"):
            translated.update(_truststore(name, as_text(value), options, prefix))
        elif name == "ssl.keystore.location":
            translated[name] = _keystore(as_text(value), options, prefix)
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = as_text(value) or "none"
        elif name in ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class"):
            raise ConfigException(
                f"'{prefix}{name}' names a Java class, which the clients that fill stores cannot run; "
                "use sasl.mechanism PLAIN or SCRAM-SHA-512, or SSL certificates"
            )
        else:
            translated[_RENAMED.get(name, name)] = as_text(value)
    return translated


_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")
_JAAS_MODULES = ("PlainLoginModule", "ScramLoginModule")


def _jaas(value: str) -> dict[str, str]:
    """User name and password out of Java's login configuration."""
    module = value.split()[0].rpartition(".")[2] if value.split() else ""
    if module not in _JAAS_MODULES:
        raise ConfigException(
            f"'sasl.jaas.config' is for the login module '{module or '(none)'}'; "
            f"{' and '.join(_JAAS_MODULES)} are "
            "understood. For others give librdkafka's own settings behind 'admin.' and 'restore.consumer.'"
        )
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in _JAAS_OPTION.findall(value)
    }
    missing = {"username", "password"} - options.keys()
    if missing:
        raise ConfigException(
            f"'sasl.jaas.config' has no {' and no '.join(sorted(missing))}; it looks like "
            f'\'{module} required username="..." password="...";\''
        )
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def _truststore(name: str, value: str, options: Mapping[str, Any], prefix: str) -> dict[str, str]:
    if name == "ssl.truststore.password":
        return {}
    if as_text(options.get("ssl.truststore.type", "")).upper() == "PEM" or value.endswith((".pem", ".crt")):
        return {"ssl.ca.location": value}
    raise ConfigException(
        f"'{prefix}ssl.truststore.location' is '{value}', a Java key store, which the clients that fill "
        f"stores "
        "cannot read; give the certificates as PEM: 'ssl.truststore.type': 'PEM' and a .pem file "
        "(keytool -exportcert -rfc writes one)"
    )


def _keystore(value: str, options: Mapping[str, Any], prefix: str) -> str:
    kind = as_text(options.get("ssl.keystore.type", "")).upper()
    if kind == "PKCS12" or value.endswith((".p12", ".pfx")):
        return value
    raise ConfigException(
        f"'{prefix}ssl.keystore.location' is '{value}', which is not PKCS#12; convert it (keytool "
        f"-importkeystore "
        "-deststoretype PKCS12) and set 'ssl.keystore.type': 'PKCS12', or give 'ssl.keystore.key' and "
        "'ssl.keystore.certificate.chain' as PEM texts"
    )
