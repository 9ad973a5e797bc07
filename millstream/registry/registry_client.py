"""A client of schema registries over HTTP: with a deadline, retries, and a cache for what never changes.

The REST interface is Confluent's (also Karapace's, Apicurio's and Redpanda's). The schema of an id or a
version never changes; the latest version of a subject is requested each time.

Differs: does not use confluent-kafka's client, which needs eleven packages and has no deadline over its
    retries (docs/decisions/0035).
"""

from __future__ import annotations

import json
import random
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import quote

from millstream.errors import ConfigException, SchemaRegistryException
from millstream.polling import pause
from millstream.registry.registry_settings import RegistrySettings

__all__ = ["Registered", "Registry", "registry_of"]

V = TypeVar("V")
_TYPE = "application/vnd.schemaregistry.v1+json"
_MOST_REFERENCES = 100
_MOST_BYTES = 8 << 20
"""No schema is that long. A server that is none, or not ours, must not fill the memory."""


@dataclass(frozen=True)
class Registered:
    """A registered schema.

    Attributes:
        id: its number; a schema has a single id in a registry, whatever its subjects.
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        texts: the schema's text, preceded by those that it refers to.
        version: its version in the requested subject; 0 if it was requested by id.
    """

    id: int
    kind: str
    texts: tuple[str, ...]
    version: int = 0

    @property
    def text(self) -> str:
        return self.texts[-1]


class Registry:
    """One registry, for all threads of a process."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, ...], Any] = {}
        self._opener = urllib.request.build_opener(
            _Straight, urllib.request.HTTPSHandler(context=_context(dict(settings.ssl)))
        )

    def by_id(self, id: int) -> Registered | None:
        """The schema of an id; None if the registry has none.

        Raises:
            SchemaRegistryException: the request failed.
        """

        def ask() -> Registered | None:
            said = self._ask("GET", f"/schemas/ids/{id}", unknown=(40403, 40401))
            return None if said is None else self._registered({**said, "id": id})

        return self._once(("id", str(id)), ask)

    def latest(self, subject: str) -> Registered | None:
        """The latest schema of a subject; None if there is no such subject.

        Raises:
            SchemaRegistryException: the request failed.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions/latest"
        said = self._ask("GET", path, unknown=(40401, 40402))
        return None if said is None else self._registered(said)

    def id_of(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema in a subject. The schema is registered if the settings say so; otherwise it must
        exist.

        Raises:
            SchemaRegistryException: the request failed, or the registry does not have the schema or rejects
                it.
        """
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        path = f"/subjects/{quote(subject, safe='')}"

        def ask() -> int:
            if self.settings.register:
                said = self._ask("POST", f"{path}/versions", body)
                assert said is not None
                return int(said["id"])
            said = self._ask("POST", path, body, unknown=(40401, 40403))
            if said is None:
                raise SchemaRegistryException(
                    f"the schema registry at {self._where} does not have this schema in subject '{subject}', "
                    f"and auto.register.schemas is false; register the schema there: {_shown(text)}",
                    error_code=40403,
                )
            return int(said["id"])

        return self._once(("schema", subject, kind, text), ask)

    def serialized(self, id: int) -> str | None:
        """The file descriptor of a Protobuf schema, in base64; None if the registry has no such id.

        Raises:
            SchemaRegistryException: the request failed, or the registry does not support it.
        """

        def ask() -> str | None:
            said = self._ask("GET", f"/schemas/ids/{id}?format=serialized", unknown=(40403, 40401))
            return None if said is None else str(said["schema"])

        return self._once(("serialized", str(id)), ask)

    # --- how -----------------------------------------------------------------------------------------------

    @property
    def _where(self) -> str:
        return ", ".join(self.settings.urls)

    def _once(self, key: tuple[str, ...], ask: Callable[[], V]) -> V:
        with self._lock:
            if key in self._kept:
                kept: V = self._kept[key]
                return kept
        found = ask()
        if found is not None:
            with self._lock:
                self._kept[key] = found
        return found

    def _registered(self, said: dict[str, Any]) -> Registered:
        texts = tuple(self._texts(said, {}))
        kind = said.get("schemaType") or "AVRO"
        return Registered(int(said["id"]), kind, texts, int(said.get("version") or 0))

    def _texts(self, said: dict[str, Any], known: dict[tuple[str, str], list[str] | None]) -> list[str]:
        """A schema's text, preceded by those that it refers to. `known` has the schemas requested so far;
        None for an incomplete one."""
        texts: list[str] = []
        for reference in said.get("references") or ():
            name = str(reference["subject"]), str(reference["version"])
            if name not in known and len(known) < _MOST_REFERENCES:
                known[name] = None
                path = f"/subjects/{quote(name[0], safe='')}/versions/{quote(name[1], safe='')}"
                known[name] = self._texts(self._ask("GET", path) or {}, known)
            found = known.get(name)
            if found is None:
                raise SchemaRegistryException(
                    f"the schema registry at {self._where} has a schema whose references do not end"
                )
            texts += [each for each in found if each not in texts]
        return [*texts, said["schema"]]

    def _ask(
        self, method: str, path: str, body: Any = None, *, unknown: Sequence[int] = ()
    ) -> dict[str, Any] | None:
        """The response; None for one of these error codes, which mean that it does not exist."""
        deadline = time.monotonic() + self.settings.patience_ms / 1000
        attempt = 0
        while True:
            url = self.settings.urls[attempt % len(self.settings.urls)]
            attempt += 1
            left = deadline - time.monotonic()
            try:
                return self._request(method, url + path, body, min(left, self.settings.attempt_ms / 1000))
            except urllib.error.HTTPError as error:
                code, said = _error_of(error)
                if code in unknown:
                    return None
                if error.code < 500 and error.code not in (408, 429):
                    raise SchemaRegistryException(
                        _refused(url, error.code, code, said), error_code=code
                    ) from None
                last = f"it answered with status {error.code}: {said}"
            except (OSError, HTTPException, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                last = f"{type(reason).__name__}: {reason}"
            wait = random.uniform(0.05, 0.1 * 2 ** min(attempt, 5))  # noqa: S311 - jitter
            if deadline - time.monotonic() <= wait:
                raise SchemaRegistryException(
                    f"the schema registry at {self._where} cannot be queried: {last}; tried for "
                    f"{self.settings.patience_ms} ms (schema.registry.timeout.ms)"
                )
            pause(wait)

    def _request(self, method: str, url: str, body: Any, timeout_s: float) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - http or https: the settings accept nothing else
            url,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": _TYPE, "Content-Type": _TYPE, **dict(self.settings.headers)},
        )
        timeout_s = max(0.001, timeout_s)
        until = time.monotonic() + timeout_s
        with self._opener.open(request, timeout=timeout_s) as reply:
            said = json.loads(_body(reply, url, until))
        if not isinstance(said, dict):
            raise ValueError("its answer is not a JSON object")
        return said


class _Straight(urllib.request.HTTPRedirectHandler):
    """Does not follow redirects: the login is only for this address, and the kernel does not follow them
    either."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _body(reply: Any, url: str, until: float) -> bytes:
    """The whole response. The deadline also holds for a response that arrives in small pieces."""
    parts: list[bytes] = []
    size = 0
    while part := reply.read1(65536):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            # Not tried again: the next answer would be as long.
            raise SchemaRegistryException(
                f"the answer of the schema registry to {url} has more than {_MOST_BYTES >> 20} MiB"
            )
        if time.monotonic() > until:
            raise TimeoutError("its answer did not end in time")
    return b"".join(parts)


@cache
def registry_of(settings: RegistrySettings) -> Registry:
    """The shared registry for these settings."""
    return Registry(settings)


def _context(options: dict[str, str]) -> ssl.SSLContext | None:
    if not options:
        return None
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = options.get(f"{store}.type", "PEM" if f"{store}.location" not in options else "JKS").upper()
        if kind != "PEM" and f"{store}.location" in options:
            raise ConfigException(
                f"'schema.registry.{store}.type' is {kind}, but Python reads only PEM, which Java reads too; "
                f"convert the files to PEM, and set schema.registry.{store}.type=PEM"
            )
    trusted = options.get("ssl.truststore.location")
    context = ssl.create_default_context(cafile=trusted, cadata=options.get("ssl.truststore.certificates"))
    if own := options.get("ssl.keystore.location"):
        context.load_cert_chain(own, password=options.get("ssl.key.password"))
    return context


def _error_of(error: urllib.error.HTTPError) -> tuple[int | None, str]:
    try:
        body = json.loads(error.read(100_000))
        return int(body["error_code"]), str(body.get("message", ""))
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None, str(error.reason)


def _refused(url: str, status: int, code: int | None, said: str) -> str:
    where = f"the schema registry at {url}"
    if status in (401, 403):
        return f"{where} denies access ({status}); check user and password in 'basic.auth.user.info'"
    if 300 <= status < 400:
        return f"the server at {url} redirects requests ({status}); set the address of the registry itself"
    if status == 409:
        return (
            f"{where} rejects the schema, because it is incompatible with earlier ones ({said}); change the "
            "schema, or the subject's compatibility"
        )
    if status == 404 and code in (None, 404):
        return f"the server at {url} is not a schema registry: it does not know the path"
    return f"{where} rejects the request ({code or status}): {said}"


def _shown(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:300]}..."
