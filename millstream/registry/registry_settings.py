"""The schema registry settings of a configuration. Frozen and pure; they contain secrets, but show none.

The keys are those of Confluent's serializers, with or without the prefix `schema.registry.`, so an existing
configuration can be reused. The kernel gets the same settings (`for_kernel`), and makes its own requests.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from millstream.errors import ConfigException

__all__ = ["RegistrySettings", "Strategy", "is_of_registry"]

PREFIX = "schema.registry."
_URL = "schema.registry.url"

Strategy = str
"""How subjects are named: `topic`, `record` or `topic-record`."""

_STRATEGIES: Mapping[str, Strategy] = {
    "TopicNameStrategy": "topic",
    "RecordNameStrategy": "record",
    "TopicRecordNameStrategy": "topic-record",
}
_KNOWN = frozenset(
    (
        "auto.register.schemas",
        "use.latest.version",
        "key.subject.name.strategy",
        "value.subject.name.strategy",
        "basic.auth.credentials.source",
        "basic.auth.user.info",
        "bearer.auth.credentials.source",
        "bearer.auth.token",
        "schema.registry.timeout.ms",
        _URL,
    )
)


@dataclass(frozen=True)
class RegistrySettings:
    """The address of a registry, and how to use it.

    Attributes:
        urls: its addresses; without user and password.
        headers: the headers of every request, such as the login.
        ssl: Kafka's `ssl.*` settings, for https.
        register: whether schemas of written records are registered; otherwise they must exist.
        latest: whether to write with the latest schema of the subject.
        key_strategy, value_strategy: how subjects are named.
        patience_ms: how long to retry if the registry does not respond.
        application: the application id, for data without a topic.
    """

    urls: tuple[str, ...]
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    ssl: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    register: bool = True
    latest: bool = False
    key_strategy: Strategy = "topic"
    value_strategy: Strategy = "topic"
    patience_ms: int = 30_000
    application: str = ""

    @classmethod
    def of(cls, options: Mapping[str, Any], application: str = "") -> RegistrySettings | None:
        """The settings from these options; None without `schema.registry.url`.

        Raises:
            ConfigException: an option is unknown or invalid.
        """
        given = {_full(name): value for name, value in options.items() if is_of_registry(name)}
        url = given.pop(_URL, None)
        if url is None:
            return None
        for name in given:
            if name not in _KNOWN and not name.startswith("ssl."):
                raise ConfigException(
                    f"unknown configuration '{PREFIX}{name}'; the settings of a schema registry are "
                    f"{', '.join(sorted(_KNOWN))}, and {PREFIX}ssl.*"
                )
        urls, users = _addresses(url)
        return cls(
            urls=urls,
            headers=_login(given, users),
            ssl=tuple(sorted((name, str(value)) for name, value in given.items() if name.startswith("ssl."))),
            register=_flag(given, "auto.register.schemas", True),
            latest=_flag(given, "use.latest.version", False),
            key_strategy=_strategy(given, "key.subject.name.strategy"),
            value_strategy=_strategy(given, "value.subject.name.strategy"),
            patience_ms=_milliseconds(given, "schema.registry.timeout.ms", 30_000),
            application=application,
        )

    @property
    def attempt_ms(self) -> int:
        """The timeout of one request."""
        return min(10_000, self.patience_ms)

    def of_application(self, application: str) -> RegistrySettings:
        return self if self.application else replace(self, application=application)

    def subject(self, topic: str, record: str, *, is_key: bool) -> str:
        """The subject of a topic's keys or values.

        Args:
            record: the full name of the written record, for the strategies that use it.

        Raises:
            ConfigException: the strategy needs a record name, and there is none.
        """
        strategy = self.key_strategy if is_key else self.value_strategy
        if strategy != "topic" and not record:
            raise ConfigException(
                f"the subject of the {'keys' if is_key else 'values'} of topic '{topic}' is named after "
                "their record, but this schema has no name; use a record's schema, or TopicNameStrategy"
            )
        if strategy == "record":
            return record
        return f"{topic}-{record}" if strategy == "topic-record" else f"{topic}-{_side(is_key)}"

    def for_kernel(self) -> dict[str, Any]:
        """The settings in the kernel's form."""
        return {
            "urls": list(self.urls),
            "headers": dict(self.headers),
            "ssl": dict(self.ssl),
            "patience_ms": self.patience_ms,
            "attempt_ms": self.attempt_ms,
        }


def _side(is_key: bool) -> str:
    return "key" if is_key else "value"


def is_of_registry(name: str) -> bool:
    """Whether a configuration key is for a schema registry."""
    return name in _KNOWN or name.startswith(PREFIX)


def _full(name: str) -> str:
    """The key without its optional prefix."""
    plain = name.removeprefix(PREFIX)
    return name if name in (_URL, "schema.registry.timeout.ms") else plain


def _addresses(url: Any) -> tuple[tuple[str, ...], list[str]]:
    """The addresses of a registry, and the `user:password` in them."""
    parts = url.split(",") if isinstance(url, str) else list(url)
    urls, users = [], []
    for text in (str(part).strip().rstrip("/") for part in parts):
        if text.startswith("mock://"):
            from millstream.registry.mock import mock_registry

            urls.append(mock_registry(text.removeprefix("mock://")))
            continue
        split = urlsplit(text)
        if split.scheme not in ("http", "https") or not split.hostname:
            shown = text.rpartition("@")[2]
            raise ConfigException(
                f"'{_URL}' is '{shown}'; it must be an address such as http://localhost:8081, several "
                "separated by commas, or mock:// and a name for tests"
            )
        if "@" in split.path + split.query + split.fragment:
            raise ConfigException(
                f"'{_URL}' has a user or password with a character that an address cannot have, such as / or "
                "#; set 'basic.auth.user.info' instead, or write the character as %2F or %23"
            )
        user, found, host = split.netloc.rpartition("@")
        if not re.fullmatch(r"(\[[^]]+\]|[^:]+)(:\d{1,5})?", host):
            raise ConfigException(f"'{_URL}' has a port that is not a number; use http://localhost:8081")
        if found:
            users.append(unquote(user))
        urls.append(urlunsplit((split.scheme, host, split.path, "", "")))
    if not urls:
        raise ConfigException(f"'{_URL}' is empty; it must be an address such as http://localhost:8081")
    return tuple(urls), users


def _login(given: Mapping[str, Any], users: list[str]) -> tuple[tuple[str, str], ...]:
    source = given.get("basic.auth.credentials.source")
    if source not in (None, "URL", "USER_INFO"):
        raise ConfigException(
            f"'basic.auth.credentials.source' is '{source}'; it can be URL, or USER_INFO with user and "
            "password in 'basic.auth.user.info'"
        )
    bearer = given.get("bearer.auth.credentials.source")
    if bearer not in (None, "STATIC_TOKEN"):
        raise ConfigException(
            f"'bearer.auth.credentials.source' is '{bearer}'; it can be STATIC_TOKEN, with "
            "'bearer.auth.token'. Tokens that have to be fetched and renewed are not supported yet"
        )
    token = given.get("bearer.auth.token")
    if token is not None:
        token = str(token).strip()  # a token from a file ends with a newline
        if not re.fullmatch(r"[!-~]+", token):
            raise ConfigException("'bearer.auth.token' must consist of printable characters without spaces")
        return (("Authorization", f"Bearer {token}"),)
    user = given.get("basic.auth.user.info") if source != "URL" else None
    user = user if user is not None else (users[0] if users else None)
    if user is None:
        if source is not None:
            raise ConfigException(
                f"'basic.auth.credentials.source' is {source}, but there is no user; set "
                "'basic.auth.user.info', such as user:password"
            )
        return ()
    if ":" not in str(user):
        raise ConfigException("'basic.auth.user.info' must be a user and a password, separated by a colon")
    return (("Authorization", f"Basic {base64.b64encode(str(user).encode()).decode()}"),)


def _flag(given: Mapping[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    if isinstance(value, bool):
        return value
    if str(value).lower() in ("true", "false"):
        return str(value).lower() == "true"
    raise ConfigException(f"'{name}' is {value!r}; it must be true or false")


def _milliseconds(given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise ConfigException(f"'{name}' is {value!r}; it must be a number of milliseconds of at least 1")
    return number


def _strategy(given: Mapping[str, Any], name: str) -> Strategy:
    value = str(given.get(name, "TopicNameStrategy"))
    found = _STRATEGIES.get(value.rpartition(".")[2])
    if found is None:
        raise ConfigException(
            f"'{name}' is '{value}'; it can be {', '.join(_STRATEGIES)}, also with Confluent's package name"
        )
    return found
