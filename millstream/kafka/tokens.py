"""Tokens for OAUTHBEARER: where they come from, and how each is requested only once while it is valid.

A token comes from the program (`sasl.oauthbearer.token.provider`), from an identity provider by OAuth's
client credentials, or from Amazon's signer; or it is an unsecured one, created here, as in Kafka for
development.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import os
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.errors import ConfigException, StreamsException

__all__ = ["Token", "Tokens", "amazons", "from_endpoint", "from_program", "unsecured"]

log = logging.getLogger(__name__)

_SHARE = 0.8
"""A token is replaced when this share of its life is over, as Java's clients and librdkafka do it."""
_UNKNOWN_S = 300.0
"""How long a token is used that does not say how long it is valid."""
_ENDPOINT_S = 10.0
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and until when it is valid (seconds since 1970). Its text is not shown."""

    text: str = field(repr=False)
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Tokens:
    """Gives a valid token; any thread. A source that fails is asked again at the next call."""

    def __init__(self, source: Callable[[], Token], clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._replace_at = 0.0

    def get(self) -> Token:
        """Raises:
        StreamsException: there is none to be had.
        """
        with self._lock:
            now = self._clock()
            if self._token is None or now >= self._replace_at:
                try:
                    self._token = self._source()
                except Exception as error:
                    log.warning("no token for sasl.mechanism OAUTHBEARER: %s", error)
                    if isinstance(error, StreamsException):
                        raise
                    raise StreamsException(f"'sasl.oauthbearer.token.provider' raised: {error}") from error
                self._replace_at = now + _SHARE * max(0.0, self._token.expires_at - now)
            return self._token


def from_program(provider: Any, clock: Callable[[], float] = time.time) -> Tokens:
    """Tokens of a function of the program's, or an object with a method `token()`.

    Raises:
        ConfigException: it is neither.
    """
    ask = getattr(provider, "token", provider)
    if not callable(ask):
        raise ConfigException(
            f"'sasl.oauthbearer.token.provider' must be a function that returns a token or an object with a "
            f"method token(); it is a {type(provider).__name__}"
        )

    def source() -> Token:
        given = ask()
        text, expires_at = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        if not isinstance(text, str) or not text:
            raise StreamsException(
                f"'sasl.oauthbearer.token.provider' returned a {type(text).__name__} instead of a token; it "
                f"must return a string, or (string, seconds since 1970)"
            )
        extensions = getattr(provider, "extensions", dict)
        claims = claims_of(text)
        return Token(
            text,
            float(expires_at if expires_at is not None else claims.get("exp", clock() + _UNKNOWN_S)),
            principal=str(claims.get("sub", "")),
            extensions=dict(extensions()),
        )

    return Tokens(source, clock)


def claims_of(token: str) -> dict[str, Any]:
    """What a JSON web token says of itself, unchecked; nothing of a token that is none."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        float(claims.get("exp", 0))
    except (IndexError, ValueError, TypeError, AttributeError):
        return {}
    return dict(claims)


class _Staying(urllib.request.HTTPRedirectHandler):
    """Follows no redirection: urllib would show the client's secret to whoever it names."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_Staying)


def from_endpoint(
    url: str, client_id: str, client_secret: str, scope: str, clock: Callable[[], float] = time.time
) -> Tokens:
    """Tokens of an identity provider, by OAuth's client credentials (RFC 6749, 4.4), as KIP-768 has it."""
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigException(
            f"'sasl.oauthbearer.token.endpoint.url' is '{url}'; Python's clients need an http or https URL. "
            f"For tokens from elsewhere set 'sasl.oauthbearer.token.provider', a function that returns one"
        )
    form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
    login = base64.b64encode(f"{client_id}:{client_secret}".encode()).decode()
    request = urllib.request.Request(  # noqa: S310  # checked above
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": f"Basic {login}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )

    def source() -> Token:
        try:
            with _OPENER.open(request, timeout=_ENDPOINT_S) as answer:
                found = json.loads(answer.read(_MOST_BYTES))
            text = str(found["access_token"])
            lives_s = float(found.get("expires_in", claims_of(text).get("exp", 0) - clock()))
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            raise StreamsException(
                f"'{url}' returned no token for client '{client_id}': {type(error).__name__}: {error}; check "
                "sasl.oauthbearer.token.endpoint.url, and the client id and secret"
            ) from error
        return Token(
            text, clock() + (lives_s if lives_s > 0 else _UNKNOWN_S), str(claims_of(text).get("sub", ""))
        )

    return Tokens(source, clock)


def unsecured(options: Mapping[str, str], clock: Callable[[], float] = time.time) -> Tokens:
    """Tokens without a signature, of the options in Java's login configuration.

    Source: OAuthBearerUnsecuredLoginCallbackHandler.
    """
    principal = options.get("unsecuredLoginPrincipalClaimName", "sub")
    kinds: tuple[tuple[str, Callable[[str], Any]], ...] = (
        ("unsecuredLoginStringClaim_", str),
        ("unsecuredLoginNumberClaim_", float),
        ("unsecuredLoginListClaim_", lambda text: text[1:].split(text[:1])),
    )
    given = {
        name.removeprefix(kind): read(value)
        for kind, read in kinds
        for name, value in options.items()
        if name.startswith(kind)
    }
    lives_s = float(options.get("unsecuredLoginLifetimeSeconds", 3600))

    def source() -> Token:
        now = clock()
        claims = {"iat": round(now, 3), "exp": round(now + lives_s, 3), **given}
        text = f"{_part({'alg': 'none'})}.{_part(claims)}."
        return Token(text, now + lives_s, str(claims.get(principal, "")))

    return Tokens(source, clock)


def _part(what: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(what).encode()).decode().rstrip("=")


def amazons(clock: Callable[[], float] = time.time) -> Tokens:
    """Tokens for Amazon MSK, which takes its IAM logins as OAUTHBEARER too; by Amazon's own library.

    Raises:
        ConfigException: it is not installed, or the region is not known.
    """
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # type: ignore[import-not-found]
    except ImportError as error:
        raise ConfigException(
            "'sasl.mechanism' is AWS_MSK_IAM: pip install aws-msk-iam-sasl-signer-python, or give "
            "'sasl.oauthbearer.token.provider', a function that returns a token"
        ) from error
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if not region:
        raise ConfigException(
            "'sasl.mechanism' is AWS_MSK_IAM, but neither AWS_REGION nor AWS_DEFAULT_REGION is set"
        )

    def source() -> Token:
        text, expires_at_ms = MSKAuthTokenProvider.generate_auth_token(region)
        return Token(text, expires_at_ms / 1000)

    return Tokens(source, clock)
