"""Translates Kafka's configuration, as its users write it, into librdkafka's and kafka-python's.

librdkafka uses dotted names too, and most are the same. The others are one table in this file: renamed,
dropped because they configure Java, or refused because they would silently have no effect (a Java key store).
kafka-python is the group's member; it never fetches, so it needs timeouts and security only.
"""

from __future__ import annotations

import _thread
import logging
import os
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaException

from millstream.client_keys import COMMON_KEYS, MEMBER_KEYS
from millstream.config import StreamsConfig, as_text
from millstream.errors import ConfigException, StreamsException
from millstream.kafka.login import for_kafka_python, for_librdkafka

__all__ = [
    "admin_config",
    "build",
    "client_log",
    "membership_config",
    "producer_config",
    "restore_consumer_config",
    "unreachable",
]

T = TypeVar("T")

client_log = logging.getLogger(__name__)
"""The logger of librdkafka's own messages, in place of standard error."""

_QUIET_S = 30.0


class _Calm(logging.Filter):
    """Passes one message of each kind every half minute, with the number of suppressed ones.

    While a broker is unavailable, each of a client's consumers reports it several times a second. What
    librdkafka tries again by itself, on a broker that has just started, is no warning.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[tuple[int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if message.startswith("GETPID ") and message.endswith(": retrying"):
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
        # `FAIL [rdkafka#consumer-1] [thrd:...]: 127.0.0.1:9092/1: Connect to ... failed`: the first word is
        # the kind.
        kind = (record.levelno, message.split(" ", 1)[0])
        now = self._clock()
        with self._lock:
            last, held = self._seen.get(kind, (float("-inf"), 0))
            if now - last < _QUIET_S:
                self._seen[kind] = (last, held + 1)
                return False
            self._seen[kind] = (now, 0)
        if held:
            record.msg, record.args = f"{message} (and {held} more like it before)", ()
        return True


client_log.addFilter(_Calm())

_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
}

_JAVA_ONLY = frozenset(
    (
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "default.api.timeout.ms",
        "exclude.internal.topics",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "max.block.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "request.timeout.ms",  # each call has our own deadline instead
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "partitioner.class",
        "partitioner.ignore.keys",
        "security.providers",
        "socket.connection.setup.timeout.max.ms",
        "ssl.enabled.protocols",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "value.deserializer",
        "value.serializer",
    )
)

_OURS = frozenset(
    (
        "allow.auto.create.topics",
        "auto.commit.interval.ms",
        "auto.offset.reset",  # a store never skips: missing changelog records are an error
        "enable.auto.commit",
        "enable.auto.offset.store",
        "group.id",
        "transactional.id",
        *MEMBER_KEYS,
    )
)


def admin_config(config: StreamsConfig) -> dict[str, Any]:
    """The options of librdkafka's AdminClient."""
    return {
        **_common(config, "admin", "admin."),
        # Querying a topic must not create it again (KIP-662).
        "allow.auto.create.topics": False,
    }


def producer_config(config: StreamsConfig) -> dict[str, Any]:
    """The options of our own producers. (Pipelines' records are written by Spark's.)"""
    return {
        **_common(config, "producer", "producer."),
        # A retry must not write a record twice.
        "enable.idempotence": True,
        # Only failed deliveries are reported; the flush counts successes.
        "delivery.report.only.error": True,
    }


def restore_consumer_config(config: StreamsConfig) -> dict[str, Any]:
    """The options of the consumer that fills stores.

    It reads given partitions from given offsets, and commits nothing. librdkafka still requires a group id,
    but joins no group.
    """
    return {
        # The broker answers as soon as there is a byte, but a new assignment waits for the pending answer.
        "fetch.wait.max.ms": 100,
        "fetch.min.bytes": 1,
        "fetch.error.backoff.ms": 100,
        "queued.min.messages": 200_000,
        "queued.max.messages.kbytes": 65_536,
        **_common(config, "restore-consumer", "consumer.", "restore.consumer."),
        "group.id": config.application_id,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        # Reports that the end was reached even if the last offsets are not records (transaction markers).
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
        "isolation.level": config.isolation_level,
    }


_KERBEROS = (
    "For Kerberos, librdkafka has to be built with it, on a machine with librdkafka and its SASL library: "
    "pip install --no-binary confluent-kafka confluent-kafka. "
)


_THREADS = 8
"""A client of librdkafka starts four threads, and then one for each broker."""
_THREADS_END_S = 5.0


def build(kind: Callable[..., T], options: Mapping[str, Any]) -> T:
    """Create a librdkafka client.

    Raises:
        ConfigException: an option or its value is unknown to librdkafka.
        StreamsException: the process cannot start the threads that the client needs.
    """
    _check_threads()
    try:
        return kind(dict(options), logger=client_log)
    except KafkaException as error:
        raise ConfigException(
            f"the clients that fill stores and create topics refuse their configuration: {_reason(error)}. "
            f"{_KERBEROS if 'GSSAPI' in str(error) else ''}Use the prefix 'main.consumer.' for settings of "
            "Spark's consumers only, and 'producer.' for those of its producers"
        ) from error


def _check_threads() -> None:
    """Check that there is room for the threads of a client, by starting as many.

    If librdkafka's constructor cannot start one, it ends the process, or it waits for ever. It does so with
    Python's lock held, so that no thread of this process could notice or end it: it must not begin.
    """
    gate, ended, started = _thread.allocate_lock(), threading.Semaphore(0), 0

    def wait() -> None:
        with gate:
            pass
        ended.release()

    try:
        with gate:
            for _ in range(_THREADS):
                # Not a Thread: its start() waits for a thread that may have no memory to say that it runs.
                _thread.start_new_thread(wait, ())
                started += 1
    except (RuntimeError, MemoryError) as error:
        raise StreamsException(
            f"no Kafka client can be created: it needs {_THREADS} more threads, but this process, which has "
            f"{threading.active_count()} of Python and those of its libraries, could start only {started} "
            f"({error}). Raise its limit on threads or on memory (ulimit -u, ulimit -v, the pids or memory "
            f"limit of its container), or run fewer clients and stream threads in it"
        ) from error
    finally:
        # The client then gets the memory of their stacks.
        for _ in range(started):
            ended.acquire(timeout=_THREADS_END_S)


def unreachable(config: StreamsConfig, what: str, error: BaseException) -> StreamsException:
    """The error for a cluster that did not answer in time, or refused."""
    servers = ",".join(config.bootstrap_servers)
    return StreamsException(
        f"could not {what}: {_reason(error)}; bootstrap.servers is '{servers}', request.timeout.ms "
        f"{config.request_timeout_s * 1000:.0f}; check that Kafka is running there and is reachable"
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, KafkaException) and error.args:
        cause = error.args[0]
        return f"{cause.name()}: {cause.str()}" if hasattr(cause, "name") else str(cause)
    return str(error) or type(error).__name__


def _common(config: StreamsConfig, role: str, *prefixes: str) -> dict[str, Any]:
    """The options that all librdkafka clients share, and those that the prefixes add."""
    given = config.given
    security = config.security(*prefixes)
    common: dict[str, Any] = {
        "bootstrap.servers": ",".join(config.bootstrap_servers),
        "client.id": f"{config.client_id or config.application_id}-{role}",
        # Brokers come back, and each request has its own deadline.
        "log.connection.close": False,
        **_translated({name: given[name] for name in COMMON_KEYS if name in given}),
        **_translated(config.client_options(*prefixes)),
        **_translated(security),
        **for_librdkafka(security),
    }
    return common


def _translated(options: Mapping[str, Any]) -> dict[str, Any]:
    translated: dict[str, Any] = {}
    for name, value in options.items():
        if name in _JAVA_ONLY or name in _OURS or name.startswith("sasl.") or value is None:
            continue
        if name in ("ssl.truststore.location", "ssl.truststore.password"):
            translated.update(_truststore(name, as_text(value), options))
        elif name == "ssl.keystore.location":
            translated.update(_keystore(as_text(value), options))
        elif name == "ssl.keystore.password" and _is_pem("ssl.keystore.location", options):
            continue  # Java has no such password for PEM; the key's is ssl.key.password
        elif name == "ssl.endpoint.identification.algorithm":
            translated[name] = as_text(value) or "none"
        else:
            translated[_RENAMED.get(name, name)] = as_text(value)
    return translated


def _is_pem(name: str, options: Mapping[str, Any]) -> bool:
    """Whether a store is a PEM file, judged by its type or else by its name."""
    kind = as_text(options.get(name.replace("location", "type"), "")).upper()
    return kind == "PEM" or (not kind and as_text(options.get(name, "")).endswith((".pem", ".crt")))


def _truststore(name: str, value: str, options: Mapping[str, Any]) -> dict[str, str]:
    if name == "ssl.truststore.password":
        return {}
    if _is_pem(name, options):
        return {"ssl.ca.location": value}
    raise ConfigException(
        f"'ssl.truststore.location' is '{value}', a Java key store, which the clients that fill "
        "stores cannot read; provide the certificates as PEM: 'ssl.truststore.type': 'PEM' and a .pem file "
        "(keytool -exportcert -rfc writes one)"
    )


def _keystore(value: str, options: Mapping[str, Any]) -> dict[str, str]:
    if _is_pem("ssl.keystore.location", options):
        return {"ssl.key.location": value, "ssl.certificate.location": value}
    if as_text(options.get("ssl.keystore.type", "")).upper() == "PKCS12" or value.endswith((".p12", ".pfx")):
        return {"ssl.keystore.location": value}
    raise ConfigException(
        f"'ssl.keystore.location' is '{value}', which is neither PEM nor PKCS#12; convert it (keytool "
        "-importkeystore -deststoretype PKCS12) and set 'ssl.keystore.type': 'PKCS12', or give "
        "'ssl.keystore.key' and 'ssl.keystore.certificate.chain' as PEM strings"
    )


# --- kafka-python, for the group's membership ------------------------------------------------------------

_MEMBERSHIP_DEFAULTS = {
    # A member learns of a rebalance through heartbeats, which cost 60 bytes each.
    "heartbeat.interval.ms": 200,
    "session.timeout.ms": 10_000,
    "max.poll.interval.ms": 300_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "retry.backoff.ms": 100,
    "connections.max.idle.ms": 540_000,
    "metadata.max.age.ms": 300_000,
}
"""Kafka's names of kafka-python's numeric options, and our defaults."""


def membership_config(config: StreamsConfig) -> dict[str, Any]:
    """The options of kafka-python for group membership; the caller adds `client_id`.

    Numbers come from the configuration itself, `consumer.` and `main.consumer.`; the last one wins.

    Raises:
        ConfigException: an invalid number, timeouts that contradict each other, or security that kafka-python
            does not support.
    """
    given = {**config.given, **config.client_options("consumer.", "main.consumer.")}
    numbers = {
        name: _milliseconds(name, given.get(name, value)) for name, value in _MEMBERSHIP_DEFAULTS.items()
    }
    session, heartbeat = numbers["session.timeout.ms"], numbers["heartbeat.interval.ms"]
    if "heartbeat.interval.ms" not in given:
        heartbeat = numbers["heartbeat.interval.ms"] = min(heartbeat, max(1, session // 3))
    if heartbeat >= session:
        raise ConfigException(
            f"'consumer.heartbeat.interval.ms' is {heartbeat}, which is not less than "
            f"'consumer.session.timeout.ms', {session}; a third of it or less leaves room for lost heartbeats"
        )
    return {
        "bootstrap_servers": list(config.bootstrap_servers),
        "group_id": config.application_id,
        **{name.replace(".", "_"): value for name, value in numbers.items()},
        **_security(config.security("consumer.", "main.consumer.")),
    }


def _milliseconds(name: str, value: Any) -> int:
    try:
        number = int(as_text(value))
    except ValueError:
        number = 0
    if number < 1:
        raise ConfigException(
            f"'consumer.{name}' is '{as_text(value)}'; it takes a whole number of milliseconds"
        )
    return number


def _security(options: Mapping[str, Any]) -> dict[str, Any]:
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    settings: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL_"):
        settings.update(for_kafka_python(options))
    if protocol in ("SSL", "SASL_SSL"):
        settings["ssl_context"] = _ssl_context(options)
    return settings


def _ssl_context(options: Mapping[str, str]) -> ssl.SSLContext:
    """An SSL context from PEM certificates, as texts or files; by default with the system's authorities."""
    try:
        context = ssl.create_default_context(
            cafile=_pem_file("ssl.truststore.location", options) or options.get("ssl.ca.location"),
            cadata=options.get("ssl.truststore.certificates") or options.get("ssl.ca.pem"),
        )
        if options.get("ssl.endpoint.identification.algorithm", "https").lower() in ("", "none"):
            context.check_hostname = False
        password = options.get("ssl.key.password") or options.get("ssl.keystore.password")
        key = options.get("ssl.keystore.key") or options.get("ssl.key.pem")
        chain = options.get("ssl.keystore.certificate.chain") or options.get("ssl.certificate.pem")
        if key and chain:
            _load_texts(context, chain, key, password)
        elif "ssl.keystore.location" in options:
            context.load_cert_chain(_pem_file("ssl.keystore.location", options) or "", None, password)
        elif "ssl.certificate.location" in options:
            context.load_cert_chain(
                options["ssl.certificate.location"], options.get("ssl.key.location"), password
            )
        if options.get("ssl.cipher.suites"):
            context.set_ciphers(options["ssl.cipher.suites"].replace(",", ":"))
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigException(
            f"the certificates that 'ssl.*' names cannot be used: {error}; they must be PEM: certificates "
            f"that begin with '-----BEGIN CERTIFICATE-----', and a key"
        ) from error
    return context


def _pem_file(name: str, options: Mapping[str, str]) -> str | None:
    value = options.get(name)
    if value is None:
        return None
    if _is_pem(name, options):
        return value
    texts = (
        "'ssl.truststore.certificates'"
        if "trust" in name
        else "'ssl.keystore.key' and 'ssl.keystore.certificate.chain'"
    )
    raise ConfigException(
        f"'{name}' is '{value}', a Java key store, which the client that joins the group cannot read; give "
        f"{texts} as PEM strings, which every client accepts"
    )


def _load_texts(context: ssl.SSLContext, chain: str, key: str, password: str | None) -> None:
    """Python's ssl reads keys only from files, so the key is briefly in one that only this user can read."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{key.strip()}\n{chain.strip()}\n")
        context.load_cert_chain(path, None, password)
    finally:
        os.unlink(path)
