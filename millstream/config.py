"""StreamsConfig: all options in one place, checked when it is created.

Keys are Kafka's dotted names. They are defined in one table (config_keys.py); this file checks values against
it.
"""

from __future__ import annotations

import difflib
import inspect
import logging
import math
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import platformdirs

from millstream.client_keys import CLIENT_KEYS, KINDS, NO_EFFECT, TOPIC_KEYS
from millstream.config_keys import KEYS, PREFIXES, SERDE_NAMES, Effect, Importance, Key, Type
from millstream.errors import ConfigException
from millstream.foreign import has_controls, printable

__all__ = ["EMBEDDED", "TOKEN_PROVIDER", "StreamsConfig", "exception_handler"]

log = logging.getLogger(__name__)

EXACTLY_ONCE: Final = "exactly_once_v2"
"""The value of `processing.guarantee` with which sinks write in transactions."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The default of `transaction.timeout.ms`, and the maximum that a broker allows by default."""
EMBEDDED: Final = "embedded"
"""The value of `bootstrap.servers` for a broker of the client's own."""
MASKED: Final = "[hidden]"
TOKEN_PROVIDER: Final = "sasl.oauthbearer.token.provider"  # noqa: S105  # a key's name

_DURATION = re.compile(
    r"([-+]?)p(?=.)(?:([-+]?\d{1,18})d)?(?:t(?=.)(?:([-+]?\d{1,18})h)?(?:([-+]?\d{1,18})m)?(?:([-+]?\d{1,18})(?:[.,](\d{0,9}))?s)?)?",
    re.ASCII | re.IGNORECASE,
)
_APPLICATION_ID = re.compile(r"[A-Za-z0-9._-]+")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
_APPLICATION_ID_MAX = 150  # an internal topic's name is longer by a store's name, and ends at 249
_SERVER = re.compile(r"(?:[A-Za-z][A-Za-z0-9_]*://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/]+):(\d{1,5})")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")  # as model.py: HostInfo
_SECRET = re.compile(
    r"(password|passwd|secret|jaas|token|credential|private|user\.info|(^|\.)key$|ssl\.key\.pem|keystore\.key)",
    re.IGNORECASE,
)
_JAVA_SERDES = {
    "ByteArray": "bytes",
    "Bytes": "bytes",
    "String": "string",
    "Integer": "integer",
    "Long": "long",
    "Short": "short",
    "Float": "float",
    "Double": "double",
    "Boolean": "boolean",
    "UUID": "uuid",
    "ByteBuffer": "bytes",
    "Void": "void",
}

_CONFLUENTS_SERDES = {
    "GenericAvroSerde": "avro",
    "SpecificAvroSerde": "avro",
    "KafkaJsonSchemaSerde": "json_schema",
    "KafkaProtobufSerde": "protobuf",
}

_KAFKAS_HANDLERS = "org.apache.kafka.streams.errors."
_HANDLERS = {
    "deserialization": {
        "LogAndFailExceptionHandler": "fail",
        "LogAndContinueExceptionHandler": "continue",
    },
    "processing": {
        "LogAndFailProcessingExceptionHandler": "fail",
        "LogAndContinueProcessingExceptionHandler": "continue",
    },
    "production": {
        "DefaultProductionExceptionHandler": "fail",
        "LogAndContinueProductionExceptionHandler": "continue",
    },
}
"""The classes of dsl/handlers.py by the kind of failure that they handle, and what they mean."""


class StreamsConfig(Mapping[str, Any]):
    """The options of a client. Frozen; reads as a mapping of every key that has a value.

    Args:
        options: keys are Kafka's names, such as `application.id`. A key that ends in `.ms` also takes a
            `timedelta`. Numbers and booleans may be strings.

    Raises:
        ConfigException: a key is missing or unknown, or a value is invalid; the message names it.

    Source: org.apache.kafka.streams.StreamsConfig.
    Differs: an unknown key is an error, not a warning; `StreamsConfig.describe()` lists the keys.
    """

    APPLICATION_ID: Final = "application.id"
    APPLICATION_SERVER: Final = "application.server"
    BOOTSTRAP_SERVERS: Final = "bootstrap.servers"
    CHECKPOINT_LOCATION: Final = "checkpoint.location"
    CLIENT_ID: Final = "client.id"
    COMMIT_INTERVAL_MS: Final = "commit.interval.ms"
    DEFAULT_DSL_STORE: Final = "default.dsl.store"
    DEFAULT_KEY_SERDE: Final = "default.key.serde"
    DEFAULT_VALUE_SERDE: Final = "default.value.serde"
    DESERIALIZATION_EXCEPTION_HANDLER: Final = "deserialization.exception.handler"
    ERRORS_CONTINUE_MAX_RATIO: Final = "errors.continue.max.ratio"
    ERRORS_DEAD_LETTER_QUEUE_TOPIC_NAME: Final = "errors.dead.letter.queue.topic.name"
    NUM_STANDBY_REPLICAS: Final = "num.standby.replicas"
    NUM_STREAM_THREADS: Final = "num.stream.threads"
    PROCESSING_EXCEPTION_HANDLER: Final = "processing.exception.handler"
    PROCESSING_GUARANTEE: Final = "processing.guarantee"
    AT_LEAST_ONCE: Final = "at_least_once"
    EXACTLY_ONCE_V2: Final = EXACTLY_ONCE
    PRODUCTION_EXCEPTION_HANDLER: Final = "production.exception.handler"
    REPLICATION_FACTOR: Final = "replication.factor"
    REQUEST_TIMEOUT_MS: Final = "request.timeout.ms"
    SECURITY_PROTOCOL: Final = "security.protocol"
    STATE_DIR: Final = "state.dir"

    EMBEDDED: Final = EMBEDDED

    def __init__(self, options: Mapping[str, Any]) -> None:
        if not isinstance(options, Mapping):
            raise ConfigException(
                f"the configuration must be a dict with Kafka's keys, such as {{'application.id': "
                f"'orders'}}; "
                f"got {type(options).__name__}"
            )
        given = {name: _checked(name, value) for name, value in options.items()}
        given = {name: value for name, value in given.items() if value is not None}
        _require(given)
        self._given: dict[str, Any] = given
        defaults = {key.name: key.default for key in KEYS.values() if key.default is not None}
        self._values: dict[str, Any] = {**defaults, "state.dir": _default_state_dir(), **given}
        _check_transactions(self)
        if self.exactly_once:
            _check_exactly_once(self)
        _check_isolation(self)
        _check_tags(self)

    # --- a mapping -----------------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = {name: masked(name, value) for name, value in sorted(self._given.items())}
        return f"StreamsConfig({shown!r})"

    @property
    def given(self) -> dict[str, Any]:
        """The given options, checked and converted, without defaults."""
        return dict(self._given)

    def replace(self, options: Mapping[str, Any]) -> StreamsConfig:
        """The same configuration with other values for some keys."""
        return StreamsConfig({**self._given, **options})

    # --- what the parts of Millstream ask for ---------------------------------------------------------------

    @property
    def application_id(self) -> str:
        return str(self._values["application.id"])

    @property
    def bootstrap_servers(self) -> tuple[str, ...]:
        return tuple(self._values["bootstrap.servers"])

    @property
    def embedded(self) -> bool:
        """Whether the client brings its own broker."""
        return self.bootstrap_servers == (EMBEDDED,)

    @property
    def client_id(self) -> str:
        """As given; "" if it was not."""
        return str(self._values["client.id"])

    @property
    def application_server(self) -> str:
        """`host:port` where this client answers queries; "" if it does not."""
        return str(self._values["application.server"])

    @property
    def num_stream_threads(self) -> int:
        return int(self._values["num.stream.threads"])

    @property
    def keeps_spark_warm(self) -> bool:
        """Whether a client without pipelines starts Spark: an application with standbys needs fast
        failover."""
        given = self._values.get("keep.spark.warm")
        return bool(self._values["num.standby.replicas"]) if given is None else bool(given)

    @property
    def state_dir(self) -> Path:
        return Path(str(self._values["state.dir"])).expanduser()

    @property
    def lets_group_write(self) -> bool:
        """Whether state directories are writable by the user's group; other users can never read them."""
        return bool(self._values["allow.os.group.write.access"])

    @property
    def checkpoints(self) -> str:
        """Where the application's queries of to_spark() keep their progress: a path, or a URI."""
        location = self._values.get("checkpoint.location")
        if location is None:
            return str(self.state_dir / self.application_id / "checkpoints")
        return f"{str(location).rstrip('/')}/{self.application_id}"

    @property
    def replication_factor(self) -> int:
        return int(self._values["replication.factor"])

    @property
    def default_key_serde(self) -> Any:
        """A Serde, the name of one, or None."""
        return self._values.get("default.key.serde")

    @property
    def default_value_serde(self) -> Any:
        """A Serde, the name of one, or None."""
        return self._values.get("default.value.serde")

    @property
    def has_cache(self) -> bool:
        """Whether several updates of a key become one, unless a store says otherwise."""
        return bool(self._values["statestore.cache.max.bytes"] and self._values["cache.max.bytes.buffering"])

    @property
    def in_memory_stores(self) -> bool:
        """Whether tables get memory stores, unless the topology says otherwise."""
        return bool(self._values["default.dsl.store"] == "in_memory")

    def continues(self, kind: str) -> bool:
        """Whether a record that fails in this way may be dropped: 'deserialization', 'processing', …"""
        return bool(self._handler(kind) != "fail")

    @property
    def own_handlers(self) -> dict[str, Any]:
        """The user's own record-level handlers, classes or instances, by the kind of failure."""
        given = {kind: self._handler(kind) for kind in _HANDLERS}
        return {kind: handler for kind, handler in given.items() if not isinstance(handler, str)}

    @property
    def for_handlers(self) -> dict[str, Any]:
        """What these are configured with: the part that may leave the process, without secrets."""
        return {
            name: value for name, value in self.items() if _is_plain(value) and masked(name, value) != MASKED
        }

    def _handler(self, kind: str) -> Any:
        name = f"{kind}.exception.handler"
        return self._given.get(name, self._given.get(f"default.{name}", "fail"))

    @property
    def dead_letter_topic(self) -> str | None:
        """Where dropped records go; None: nowhere."""
        value = self._values.get("errors.dead.letter.queue.topic.name")
        return None if value is None else str(value)

    @property
    def continue_max_ratio(self) -> float:
        return float(self._values["errors.continue.max.ratio"])

    @property
    def exactly_once(self) -> bool:
        """Whether the output of pipelines is exactly once, for readers of committed records."""
        return bool(self._values["processing.guarantee"] == EXACTLY_ONCE)

    @property
    def transaction_timeout_ms(self) -> int:
        """How long a transaction of a sink may be open before the broker aborts it."""
        given = self.client_options("producer.").get("transaction.timeout.ms", TRANSACTION_TIMEOUT_MS)
        try:
            return int(as_text(given))
        except ValueError:
            raise ConfigException(
                f"'transaction.timeout.ms' is {given!r}; it must be a whole number of milliseconds"
            ) from None

    @property
    def isolation_level(self) -> str:
        """Which records of transactions all consumers read: a store and a pipeline that reads its topic must
        agree.

        Differs: Kafka Streams reads uncommitted records, unless it is told otherwise or writes exactly once.
        """
        return next(iter(_isolation_levels(self).values()), "read_committed")

    @property
    def request_timeout_s(self) -> float:
        return float(self._values["request.timeout.ms"]) / 1000

    def with_prefix(self, prefix: str) -> dict[str, Any]:
        """The options given with this prefix, without it: `with_prefix("topic.")`."""
        return {name[len(prefix) :]: value for name, value in self._given.items() if name.startswith(prefix)}

    @property
    def client_tags(self) -> dict[str, str]:
        """Where this client is, by `client.tag.…`."""
        return {name: as_text(value) for name, value in self.with_prefix("client.tag.").items()}

    @property
    def client_rack(self) -> str:
        """`client.rack` of the consumer that reads sources, or "" (KIP-925)."""
        rack = self.client_options("consumer.", "main.consumer.").get("client.rack")
        return "" if rack is None else as_text(rack)

    def client_options(self, *prefixes: str) -> dict[str, Any]:
        """The options of one kind of Kafka's clients, in Kafka's names: `client_options("consumer.",
        "main.consumer.")`. Those without a prefix come first, a later prefix wins.

        Source: StreamsConfig.getClientPropsWithPrefix.
        """
        kind = prefixes[0]
        options = {name: value for name, value in self._given.items() if kind in CLIENT_KEYS.get(name, ())}
        for prefix in prefixes:
            options.update(self.with_prefix(prefix))
        return options

    @property
    def spark(self) -> dict[str, str]:
        """Settings of the Spark session, with their full names (`spark.master`), as strings."""
        return {name: as_text(value) for name, value in self._given.items() if name.startswith("spark.")}

    def security(self, *prefixes: str) -> dict[str, Any]:
        """`security.protocol`, `sasl.*` and `ssl.*` as given, in Kafka's names: every client needs them.

        Args:
            prefixes: of the client; a later one wins.
        """
        given = dict(self._given)
        for prefix in prefixes:
            given.update(self.with_prefix(prefix))
        return {
            name: value if name == TOKEN_PROVIDER else as_text(value)
            for name, value in given.items()
            if name == "security.protocol" or name.startswith(("sasl.", "ssl."))
        }

    def log_without_effect(self) -> None:
        """Warn once about each given key that has no effect."""
        for name, value in sorted(self._given.items()):
            key = KEYS.get(name)
            if key is not None and key.effect is not Effect.YES and value != key.default:
                log.warning("configuration '%s' has no effect%s: %s", name, _yet(key), key.doc)
            if (reason := NO_EFFECT.get(_without_prefix(name))) is not None:
                log.warning("configuration '%s' has no effect: %s", name, reason)

    @staticmethod
    def describe(importance: Importance = Importance.LOW) -> str:
        """A table of the keys of at least this importance, as text."""
        order = list(Importance)
        shown = [key for key in KEYS.values() if order.index(key.importance) <= order.index(importance)]
        shown.sort(key=lambda key: (key.effect is not Effect.YES, order.index(key.importance), key.name))
        rows = [("key", "type", "default", "importance", "what it does")]
        rows += [
            (key.name, key.type.value, _default_text(key), key.importance.value, _doc(key)) for key in shown
        ]
        rows += [(f"{prefix}*", "", "", "", doc) for prefix, doc in PREFIXES.items()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        return "\n".join(
            "  ".join(
                [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]]
            ).rstrip()
            for row in rows
        )


def _without_prefix(name: str) -> str:
    for prefix in PREFIXES:
        if prefix.endswith(KINDS) and name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, str | int | float | bool)


def masked(name: str, value: Any) -> Any:
    """A value as it may be shown: a secret is hidden, judged by its key, and so is one in a URL."""
    if name.endswith(".exception.handler") and not isinstance(value, str):
        return (value if isinstance(value, type) else type(value)).__qualname__
    has_login = name == "schema.registry.url" and "@" in str(value)
    return MASKED if has_login or _SECRET.search(name) else value


def as_text(value: Any) -> str:
    """A value as Kafka's and Spark's configurations write it: `true`, `a,b`, `1000`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, timedelta):
        return str(round(value / timedelta(milliseconds=1)))
    if isinstance(value, list | tuple):
        return ",".join(as_text(item) for item in value)
    return str(value)


# --- checks ------------------------------------------------------------------------------------------------


def _require(given: Mapping[str, Any]) -> None:
    missing = {key.name for key in KEYS.values() if key.required and key.name not in given}
    if "application.id" in missing:
        raise ConfigException(
            "'application.id' is missing; it names your application: clients with the same id share the "
            "work, and "
            "the names of internal topics and state directories begin with it, e.g. "
            "{'application.id': 'word-count'}"
        )
    if "bootstrap.servers" in missing:
        raise ConfigException(
            "'bootstrap.servers' is missing; it says where Kafka is, e.g. 'localhost:9092'. To try "
            "Millstream without a cluster, 'embedded' starts a Kafka broker for this client"
        )


def _checked(name: Any, value: Any) -> Any:
    if not isinstance(name, str):
        raise ConfigException(f"a configuration key must be a string such as 'application.id'; got {name!r}")
    key = KEYS.get(name)
    if key is None:
        return _passed_on(name, value)
    if value is None:
        return None
    converted = _converted(key, value)
    if name == "application.server":
        converted = converted.strip()
    _check_texts(name, converted)
    _check_range(key, converted)
    if name == "application.id":
        _check_application_id(converted)
    if name == "errors.dead.letter.queue.topic.name" and not _TOPIC.fullmatch(converted):
        raise ConfigException(
            f"'{name}' is '{printable(converted)}', which cannot be the name of a topic; use at most 249 "
            "letters, digits, '.', '_' and '-'"
        )
    if name == "bootstrap.servers":
        _check_servers(converted)
    if name == "application.server":
        _check_application_server(converted)
    if key.valid and isinstance(converted, str):
        return next((fit for fit in key.valid if fit.lower() == converted.lower()), converted)
    return converted


def reset_of(value: Any, name: str = "auto.offset.reset") -> str | int:
    """The policy of `auto.offset.reset`: earliest, latest, none, or how many milliseconds back.

    Raises:
        ConfigException: there is no such policy.

    Source: AutoOffsetResetStrategy.fromString (KIP-1106).
    """
    text = str(value).lower()
    if text in ("earliest", "latest", "none"):
        return text
    kind, _, duration = text.partition(":")
    duration_ms = _iso_duration_ms(duration) if kind == "by_duration" else None
    if duration_ms is None:
        raise ConfigException(
            f"'{name}' is {value!r}; it can be earliest, latest, none, or by_duration with a non-negative "
            f"ISO 8601 duration, such as by_duration:PT1H"
        )
    return duration_ms


def _iso_duration_ms(text: str) -> int | None:
    """A duration as parsed by java.time.Duration.parse, in milliseconds; None if it is invalid or
    negative."""
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    sign, days, hours, minutes, seconds, fraction = found.groups()
    whole = 86_400 * int(days or 0) + 3_600 * int(hours or 0) + 60 * int(minutes or 0) + int(seconds or 0)
    part = int(f"{fraction or ''}000"[:3])
    milliseconds = 1_000 * whole + (-part if (seconds or "").startswith("-") else part)
    milliseconds = -milliseconds if sign == "-" else milliseconds
    return milliseconds if milliseconds >= 0 else None


def _passed_on(name: str, value: Any) -> Any:
    if name in ("auto.offset.reset", "consumer.auto.offset.reset", "main.consumer.auto.offset.reset"):
        reset_of(value, name)
    goes_to = next(
        (doc for prefix, doc in PREFIXES.items() if name.startswith(prefix) and len(name) > len(prefix)), None
    )
    if name in CLIENT_KEYS:
        goes_to = "a setting of Kafka's clients"
    if goes_to is None:
        raise ConfigException(_unknown(name))
    if name.startswith("client.tag.") or name.endswith((".client.id", "group.instance.id")):
        _check_texts(name, value)
    if isinstance(value, str | int | float | bool | timedelta | list | tuple) or value is None:
        return value
    raise ConfigException(
        f"'{name}' is passed on ({goes_to}), so it must be a string, a number or a boolean; got "
        f"{type(value).__name__}"
    )


def _unknown(name: str) -> str:
    dotted = name.replace("_", ".").lower()
    if dotted in KEYS or dotted in CLIENT_KEYS:
        return f"unknown configuration '{name}'. Did you mean '{dotted}'? Kafka's keys use dots"
    if dotted in TOPIC_KEYS:
        return f"unknown configuration '{name}'. It is {PREFIXES['topic.']}: write 'topic.{dotted}'"
    if dotted != name and dotted.startswith(tuple(PREFIXES)):
        return f"unknown configuration '{name}'. Did you mean '{dotted}'? Kafka's keys use dots"
    near = difflib.get_close_matches(dotted, [*KEYS, *CLIENT_KEYS], n=1, cutoff=0.7)
    if near:
        return f"unknown configuration '{name}'. Did you mean '{near[0]}'?"
    return (
        f"unknown configuration '{name}'; StreamsConfig.describe() lists the keys. Settings for other "
        f"components need a prefix: {', '.join(PREFIXES)}"
    )


def _converted(key: Key, value: Any) -> Any:
    match key.type:
        case Type.INT:
            return _int(key, value)
        case Type.DOUBLE:
            return _double(key, value)
        case Type.BOOLEAN:
            return _boolean(key, value)
        case Type.LIST:
            return _list(key, value)
        case Type.SERDE:
            return _serde(key, value)
        case Type.HANDLER:
            return exception_handler(key.name, value)
        case Type.STRING:
            if isinstance(value, Path):
                return str(value)
            if not isinstance(value, str):
                raise _wrong(key, value, "a text")
            return value
        case Type.ANY:
            return value


def _int(key: Key, value: Any) -> int:
    if isinstance(value, timedelta) and key.name.endswith(".ms"):
        return round(value / timedelta(milliseconds=1))
    if isinstance(value, bool) or not isinstance(value, int | str):
        expected = (
            "a whole number of milliseconds, or a timedelta" if key.name.endswith(".ms") else "a whole number"
        )
        raise _wrong(key, value, expected)
    try:
        return int(value)
    except ValueError:
        raise _wrong(key, value, "a whole number") from None


def _double(key: Key, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong(key, value, "a number")
    try:
        number = float(value)
    except ValueError:
        raise _wrong(key, value, "a number") from None
    if not math.isfinite(number):
        raise _wrong(key, value, "a number")
    return number


def _boolean(key: Key, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise _wrong(key, value, "true or false")


def _list(key: Key, value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(item.strip() for item in value)
    raise _wrong(key, value, "a comma-separated string, or a list of strings")


def _serde(key: Key, value: Any) -> Any:
    if not isinstance(value, str):
        if isinstance(value, type) or not (hasattr(value, "serialize") and hasattr(value, "deserialize")):
            raise _wrong(key, value, f"a Serde, such as Serdes.string(), or one of {', '.join(SERDE_NAMES)}")
        return value
    java = re.fullmatch(r"(?:org\.apache\.kafka\.common\.serialization\.)?Serdes[$.](\w+?)Serde", value)
    name = _JAVA_SERDES.get(java[1], value) if java else value.lower()
    name = _CONFLUENTS_SERDES.get(value.rpartition(".")[2], name)
    if name in SERDE_NAMES:
        return name
    near = difflib.get_close_matches(name, SERDE_NAMES, n=1, cutoff=0.5)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    if name == "json":
        hint = " JSON needs a schema: use Serdes.json('user STRING, amount DOUBLE') instead of a name"
    raise ConfigException(
        f"'{key.name}' is {value!r}, which is not the name of a serde; the names are "
        f"{', '.join(SERDE_NAMES)}.{hint}"
    )


def exception_handler(name: str, value: Any) -> Any:
    """The meaning of a record-level handler: "fail" or "continue", or the handler itself if it is the user's
    own.

    Args:
        name: the key that it was given for, such as `processing.exception.handler`.
        value: one of the classes of dsl/handlers.py, its name, Kafka's full name of it, or what it means; or
            a class of the user's own, or an instance of it, below one of those of dsl/error_handlers.py.

    Raises:
        ConfigException: it is something else; a function, for instance.
    """
    kind = name.removeprefix("default.").partition(".")[0]
    handlers = _HANDLERS[kind]
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in ("fail", "continue"):
            return text.lower()
        short = text.removeprefix(_KAFKAS_HANDLERS).removeprefix("millstream.").removeprefix("dsl.handlers.")
    else:
        given = value if isinstance(value, type) else type(value)
        ours = given.__module__ == "millstream.dsl.handlers"
        short = given.__name__ if ours else ""
    if short in handlers:
        return handlers[short]
    other = next((kind for kind, names in _HANDLERS.items() if short in names), None)
    if other is not None:
        raise ConfigException(
            f"'{name}' is {short}, which is for '{other}.exception.handler'; it can be {_either(handlers)}"
        )
    shown = repr(value) if isinstance(value, str) else getattr(value, "__qualname__", type(value).__name__)
    wanted = f"{kind.capitalize()}ExceptionHandler"
    own = None if isinstance(value, str) else _own_handler(value)
    if own == wanted:
        missing = sorted(getattr(value, "__abstractmethods__", ()))
        if missing:
            raise ConfigException(
                f"'{name}' is {shown}, which lacks the method {missing[0]}(context, record, exception)"
            )
        if isinstance(value, type) and not _takes_nothing(value):
            raise ConfigException(f"'{name}' is {shown}, whose constructor takes arguments; pass an instance")
        return value
    if own is not None:
        raise ConfigException(f"'{name}' is {shown}, which is a {own}; this key needs a {wanted}")
    raise ConfigException(
        f"'{name}' is {shown}; it can be {_either(handlers)}, or your own handler: a subclass of "
        f"millstream.{wanted}, as a class or an instance"
    )


def _takes_nothing(kind: type) -> bool:
    """Whether it can be created without arguments."""
    try:
        inspect.signature(kind).bind()
    except TypeError:
        return False
    except ValueError:  # unknown
        return True
    return True


def _own_handler(value: Any) -> str | None:
    """The kind of handler that a class, or its instance, is derived from."""
    of = value if isinstance(value, type) else type(value)
    for each in of.__mro__:
        kind = each.__name__.removesuffix("ExceptionHandler").lower()
        if each.__module__ == "millstream.dsl.error_handlers" and kind in _HANDLERS:
            return each.__name__
    return None


def _either(handlers: Mapping[str, str]) -> str:
    return " or ".join(f"'{meaning}' ({name})" for name, meaning in handlers.items())


def _check_range(key: Key, value: Any) -> None:
    if key.most is not None and value > key.most:
        raise ConfigException(f"'{key.name}' is {value}; it must be {key.fits}")
    if key.least is not None and value < key.least:
        raise ConfigException(f"'{key.name}' is {value}; it must be {key.fits}")
    if key.name == "replication.factor" and value == 0:
        raise ConfigException(
            "'replication.factor' is 0; it must be 1 or more, or -1 for the brokers' default"
        )
    if not key.valid or (key.type is Type.HANDLER and not isinstance(value, str)):
        return
    text = str(value).lower()
    for refused, reason in key.refused:
        if text == refused.lower():
            raise ConfigException(f"'{key.name}' cannot be '{value}': {reason}; it can be {key.fits}")
    if text not in (fit.lower() for fit in key.valid):
        near = difflib.get_close_matches(text.replace("_", "-"), key.valid, n=1)
        hint = f". Did you mean '{near[0]}'?" if near else ""
        raise ConfigException(f"'{key.name}' is {value!r}; it can be {key.fits}{hint}")


_CONSUMERS = ("main.consumer.", "restore.consumer.", "global.consumer.")
_ISOLATION_LEVELS = ("read_committed", "read_uncommitted")


def _isolation_levels(config: StreamsConfig) -> dict[str, str]:
    """The `isolation.level` of each consumer for which one is given."""
    given = {kind: config.client_options("consumer.", kind).get("isolation.level") for kind in _CONSUMERS}
    return {kind: as_text(level) for kind, level in given.items() if level is not None}


def _check_isolation(config: StreamsConfig) -> None:
    levels = _isolation_levels(config)
    for level in levels.values():
        if level not in _ISOLATION_LEVELS:
            raise ConfigException(
                f"'isolation.level' is {level!r}; it can be {' or '.join(_ISOLATION_LEVELS)}"
            )
    if len(set(levels.values())) > 1:
        shown = ", ".join(f"{level} for '{kind}'" for kind, level in levels.items())
        raise ConfigException(
            f"'isolation.level' is {shown}; a store would have other rows than a join with its table. Set it "
            f"once, as 'consumer.isolation.level'"
        )


_MOST_TAGS, _MOST_TAG_CHARS, _MOST_TAG_VALUE_CHARS = 5, 20, 30


def _check_tags(config: StreamsConfig) -> None:
    """Source: StreamsConfig.verifyClientTagConfig."""
    tags, wanted = config.client_tags, config["rack.aware.assignment.tags"]
    for name, value in tags.items():
        if len(name) > _MOST_TAG_CHARS or len(value) > _MOST_TAG_VALUE_CHARS:
            raise ConfigException(
                f"'client.tag.{name}' is {value!r}; a tag's name has at most {_MOST_TAG_CHARS} characters, "
                f"and its value {_MOST_TAG_VALUE_CHARS}"
            )
    if max(len(tags), len(wanted)) > _MOST_TAGS:
        raise ConfigException(
            f"there are {max(len(tags), len(wanted))} tags of clients; the most is {_MOST_TAGS}"
        )
    for name in wanted:
        if name not in tags:
            raise ConfigException(
                f"'rack.aware.assignment.tags' names {name!r}, but there is no 'client.tag.{name}', which "
                "says where this client is"
            )


_EXACTLY_ONCE_NEEDS = (
    ("consumer.", "isolation.level", ("read_committed",)),
    ("producer.", "enable.idempotence", ("true",)),
    ("producer.", "acks", ("all", "-1")),
)
"""Settings of clients that have one meaning with exactly_once_v2."""
_MAX_IN_FLIGHT = 5


def _check_exactly_once(config: StreamsConfig) -> None:
    """Check that the clients' settings allow exactly once.

    Source: StreamsConfig.verifyMaxInFlightRequestPerConnection, checkIfUnexpectedUserSpecifiedClientConfig.
    Differs: a setting that contradicts the guarantee is an error; Kafka Streams logs that it ignores it.
    """
    said = "conflicts with processing.guarantee=exactly_once_v2"
    prefixes = {"consumer.": _CONSUMERS, "producer.": ()}
    for kind, name, fit in _EXACTLY_ONCE_NEEDS:
        for more in ((), *((prefix,) for prefix in prefixes[kind])):
            value = config.client_options(kind, *more).get(name)
            if value is not None and as_text(value).lower() not in fit:
                raise ConfigException(f"'{name}' is {value!r}, which {said}; leave it out: it is {fit[0]}")
    producer = config.client_options("producer.")
    if int(as_text(producer.get("retries", 1))) < 1:
        raise ConfigException(f"'retries' is 0, which {said}; leave it out")
    if int(as_text(producer.get("max.in.flight.requests.per.connection", 1))) > _MAX_IN_FLIGHT:
        raise ConfigException(
            f"'max.in.flight.requests.per.connection' is more than {_MAX_IN_FLIGHT}, which {said}; "
            "leave it out"
        )


def _check_transactions(config: StreamsConfig) -> None:
    """Check that tasks can commit in transactions, which they do with each guarantee.

    Source: StreamsConfig.verifyEOSTransactionTimeoutCompatibility.
    """
    if config.spark.get("spark.speculation", "false").lower() == "true":
        raise ConfigException(
            "'spark.speculation' is true, but two attempts of a task would fence each other; leave it out"
        )
    interval_ms, timeout_ms = config["commit.interval.ms"], config.transaction_timeout_ms
    if timeout_ms < interval_ms:
        raise ConfigException(
            f"'transaction.timeout.ms' is {timeout_ms}, less than commit.interval.ms={interval_ms}; "
            f"transactions would be aborted before they are committed. Increase the timeout or reduce the "
            f"interval"
        )


def _check_texts(name: str, value: Any) -> None:
    """Check the texts that become names, paths, headers or lines of a log."""
    for text in value if isinstance(value, tuple) else (value,):
        if isinstance(text, str) and has_controls(text):
            raise ConfigException(
                f"'{name}' is '{printable(masked(name, text))}', which has a control character (such as a "
                "line break); remove it"
            )


def _check_application_id(value: str) -> None:
    if not _APPLICATION_ID.fullmatch(value) or value in (".", ".."):
        raise ConfigException(
            f"'application.id' is {value!r}; it becomes part of the names of topics and directories, "
            f"so only letters, digits, '.', '_' and '-' are allowed"
        )
    if len(value) > _APPLICATION_ID_MAX:
        raise ConfigException(
            f"'application.id' has {len(value)} characters; internal topics are named after it, so at most "
            f"{_APPLICATION_ID_MAX} are allowed"
        )


def _check_servers(value: tuple[str, ...]) -> None:
    if not value:
        raise ConfigException("'bootstrap.servers' is empty; it says where Kafka is, e.g. 'localhost:9092'")
    if value == (EMBEDDED,):
        return
    for server in value:
        match = _SERVER.fullmatch(server)
        if match is None or not 0 < int(match[2]) < 65536:
            raise ConfigException(
                f"'bootstrap.servers' has '{server}', which is not host:port, e.g. 'localhost:9092'; "
                "or 'embedded' alone, which starts a broker for this client"
            )


def _check_application_server(value: str) -> None:
    match = _ADDRESS.fullmatch(value)
    if value and (match is None or not value.isprintable() or not 0 < int(match[2]) < 65536):
        raise ConfigException(
            f"'application.server' is '{value}', which is not host:port, e.g. 'localhost:8080'; it is where "
            f"the other clients of the application reach this one"
        )


def _wrong(key: Key, value: Any, expected: str) -> ConfigException:
    shown = masked(key.name, value)
    return ConfigException(f"'{key.name}' is {shown!r}, a {type(value).__name__}; it must be {expected}")


def _default_state_dir() -> str:
    return platformdirs.user_state_dir("millstream", appauthor=False)


def _yet(key: Key) -> str:
    return " yet" if key.effect is Effect.LATER else ""


def _doc(key: Key) -> str:
    return key.doc if key.effect is Effect.YES else f"({key.effect.value}) {key.doc}"


def _default_text(key: Key) -> str:
    if key.required:
        return "(required)"
    return "" if key.default is None else as_text(key.default)
