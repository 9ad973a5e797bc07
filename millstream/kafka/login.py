"""How clients log in: Kafka's `sasl.*` settings, translated for each of the three clients that read them.

Spark's Java client takes them unchanged, with derived settings added. librdkafka (stores, topics) and
kafka-python (the group's member) cannot run the Java classes that the settings may name, so the effect of
these classes is derived here where it is known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.config import TOKEN_PROVIDER
from millstream.errors import ConfigException
from millstream.kafka.tokens import Tokens, amazons, from_endpoint, from_program, unsecured

__all__ = ["Login", "for_java", "for_kafka_python", "for_librdkafka", "is_asked_for", "login_of"]

_PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_PASSWORDS, "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
_SECURITY = "org.apache.kafka.common.security."
_LOGIN_HANDLER = "sasl.login.callback.handler.class"
_CLIENT_HANDLER = "sasl.client.callback.handler.class"
_ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
_KAFKAS_HANDLER = f"{_SECURITY}oauthbearer.OAuthBearerLoginCallbackHandler"
_AMAZONS = "software.amazon.msk.auth.iam."
_LIBRDKAFKAS = frozenset(("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"))
"""Further settings that librdkafka reads. Its kinit.cmd is a template, Java's is a path."""


@dataclass(frozen=True, slots=True)
class Login:
    """A client's credentials, by Kafka's names."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    tokens: Tokens | None = None
    service: str = ""
    principal: str = ""
    keytab: str = ""


def is_asked_for(options: Mapping[str, Any]) -> bool:
    """Whether these settings configure a login at all."""
    protocol = str(options.get("security.protocol", "")).upper()
    return protocol.startswith("SASL_") or "sasl.mechanism" in options or "sasl.jaas.config" in options


def login_of(options: Mapping[str, Any]) -> Login:
    """The login that `sasl.*` settings describe, for the clients in this process.

    Raises:
        ConfigException: something is missing, or only Java supports it.
    """
    mechanism = _mechanism(options)
    module, jaas = parse_jaas(options.get("sasl.jaas.config", ""))
    if mechanism in _PASSWORDS:
        username = jaas.get("username", str(options.get("sasl.username", "")))
        password = jaas.get("password", str(options.get("sasl.password", "")))
        if not username or not password:
            raise ConfigException(_no_password(options, mechanism, module, jaas))
        return Login(mechanism, username, password)
    if mechanism == "GSSAPI":
        return Login(
            mechanism,
            service=str(options.get("sasl.kerberos.service.name", jaas.get("serviceName", "kafka"))),
            principal=str(options.get("sasl.kerberos.principal", jaas.get("principal", ""))),
            keytab=str(options.get("sasl.kerberos.keytab", jaas.get("keyTab", ""))),
        )
    # Amazon's brokers accept the same signature in a token; only Java's library has the other way.
    return Login("OAUTHBEARER", tokens=_tokens(options, mechanism, jaas))


def _mechanism(options: Mapping[str, Any]) -> str:
    mechanism = str(options.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism not in _MECHANISMS:
        raise ConfigException(f"'sasl.mechanism' is '{mechanism}'; it can be {', '.join(_MECHANISMS)}")
    return mechanism


def _no_password(options: Mapping[str, Any], mechanism: str, module: str, jaas: Mapping[str, str]) -> str:
    handler = options.get(_LOGIN_HANDLER) or options.get(_CLIENT_HANDLER)
    if handler:
        return (
            f"'{_LOGIN_HANDLER}' names a Java class, {handler}, which the clients in this process cannot "
            "run; also give a user name and a password in 'sasl.jaas.config'"
        )
    if not module:
        return f"'sasl.mechanism' is {mechanism}, but there is no user name; set 'sasl.jaas.config'"
    missing = sorted({"username", "password"} - jaas.keys())
    return (
        f"'sasl.jaas.config' has no {' and no '.join(missing)}; for {mechanism} it looks like "
        '\'PlainLoginModule required username="..." password="...";\' '
        "(scram.ScramLoginModule for SCRAM)"
    )


_made: dict[tuple[Any, ...], Tokens] = {}
"""One for all clients with the same login, so that a token is requested once."""


def _tokens(options: Mapping[str, Any], mechanism: str, jaas: Mapping[str, str]) -> Tokens:
    provider, url = options.get(TOKEN_PROVIDER), str(options.get(_ENDPOINT, ""))
    client_id = _first(options, jaas, "clientId", "client.id")
    secret = _first(options, jaas, "clientSecret", "client.secret")
    scope = jaas.get("scope", str(options.get("sasl.oauthbearer.scope", "")))
    claims = {name: value for name, value in jaas.items() if name.startswith("unsecuredLogin")}
    make: Callable[[], Tokens]
    key: tuple[Any, ...]
    if provider is not None:
        key, make = (id(provider), provider), lambda: from_program(provider)
    elif mechanism == "AWS_MSK_IAM":
        key, make = ("amazon",), amazons
    elif url and client_id and secret:
        key, make = (url, client_id, secret, scope), lambda: from_endpoint(url, client_id, secret, scope)
    elif claims and not options.get(_LOGIN_HANDLER):
        key, make = tuple(sorted(claims.items())), lambda: unsecured(claims)
    elif url:
        raise ConfigException(
            f"'{_ENDPOINT}' is '{url}', but 'sasl.jaas.config' has no clientId and clientSecret for it"
        )
    else:
        raise ConfigException(
            f"'sasl.mechanism' is {mechanism}, but the clients in this process have no source of tokens"
            f"{_and_java(options)}: set '{TOKEN_PROVIDER}', a function that returns one, or '{_ENDPOINT}' "
            "with clientId and clientSecret in 'sasl.jaas.config'"
        )
    try:
        return _made.setdefault(key, make()) if key not in _made else _made[key]
    except TypeError:  # an unhashable provider
        return make()


def _and_java(options: Mapping[str, Any]) -> str:
    handler = options.get(_LOGIN_HANDLER)
    return f" ('{_LOGIN_HANDLER}' names a Java class, {handler}, which they cannot run)" if handler else ""


def _first(options: Mapping[str, Any], jaas: Mapping[str, str], in_jaas: str, name: str) -> str:
    """A client credential: from the login configuration, or, since KIP-1139, from its own setting."""
    for given in (f"sasl.oauthbearer.client.credentials.{name}", f"sasl.oauthbearer.{name}"):
        if given in options:
            return str(options[given])
    return jaas.get(in_jaas, "")


# --- for each client -------------------------------------------------------------------------------------


def for_librdkafka(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `sasl.*` settings for librdkafka.

    Raises:
        ConfigException: as for `login_of`.
    """
    if not is_asked_for(options):
        return {}
    login = login_of(options)
    made: dict[str, Any] = {"sasl.mechanism": login.mechanism}
    if login.tokens is not None:
        return {**made, "oauth_cb": _callback(login.tokens)}
    if login.mechanism == "GSSAPI":
        kerberos = {"service.name": login.service, "principal": login.principal, "keytab": login.keytab}
        made |= {f"sasl.kerberos.{name}": value for name, value in kerberos.items() if value}
        return made | {name: options[name] for name in _LIBRDKAFKAS & options.keys()}
    return {**made, "sasl.username": login.username, "sasl.password": login.password}


def _callback(tokens: Tokens) -> Callable[[str], tuple[str, float, str, dict[str, str]]]:
    def callback(_: str) -> tuple[str, float, str, dict[str, str]]:
        token = tokens.get()
        return token.text, token.expires_at, token.principal, dict(token.extensions)

    return callback


def for_kafka_python(options: Mapping[str, Any]) -> dict[str, Any]:
    """The `sasl_*` settings for kafka-python.

    Raises:
        ConfigException: as for `login_of`.
    """
    login = login_of(options)
    made: dict[str, Any] = {"sasl_mechanism": login.mechanism}
    if login.tokens is not None:
        return {**made, "sasl_oauth_token_provider": _provider(login.tokens)}
    if login.mechanism == "GSSAPI":
        made["sasl_kerberos_service_name"] = login.service
        if "sasl.kerberos.domain.name" in options:
            made["sasl_kerberos_domain_name"] = options["sasl.kerberos.domain.name"]
        return made
    return {**made, "sasl_plain_username": login.username, "sasl_plain_password": login.password}


def _provider(tokens: Tokens) -> Any:
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return tokens.get().text

        def extensions(self) -> dict[str, str]:
            return dict(tokens.get().extensions)

    return Provider()


def for_java(options: Mapping[str, Any]) -> dict[str, str]:
    """The `sasl.*` and `ssl.*` settings for Spark's Java client: the given ones, and derived ones.

    Raises:
        ConfigException: only Python can provide the tokens.
    """
    made = {name: str(value) for name, value in options.items() if name != TOKEN_PROVIDER}
    for store, texts in (("truststore", ("certificates",)), ("keystore", ("key", "certificate.chain"))):
        if any(f"ssl.{store}.{text}" in made for text in texts):
            made.setdefault(f"ssl.{store}.type", "PEM")
    if not is_asked_for(options):
        return made
    mechanism = _mechanism(options)
    _, jaas = parse_jaas(made.get("sasl.jaas.config", ""))
    if mechanism in _PASSWORDS and "sasl.jaas.config" not in made and _LOGIN_HANDLER not in made:
        login = login_of(options)
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        made["sasl.jaas.config"] = _jaas(module, username=login.username, password=login.password)
    if mechanism == "AWS_MSK_IAM":
        made.setdefault("sasl.jaas.config", f"{_AMAZONS}IAMLoginModule required;")
        made.setdefault(_CLIENT_HANDLER, f"{_AMAZONS}IAMClientCallbackHandler")
    if mechanism == "OAUTHBEARER":
        made |= _oauth_for_java(options, made, jaas)
    return made


def _oauth_for_java(
    options: Mapping[str, Any], made: Mapping[str, str], jaas: Mapping[str, str]
) -> dict[str, str]:
    module = "oauthbearer.OAuthBearerLoginModule"
    unsecured_claims = any(name.startswith("unsecuredLogin") for name in jaas)
    if _LOGIN_HANDLER in made or unsecured_claims:
        return {} if "sasl.jaas.config" in made else {"sasl.jaas.config": _jaas(module)}
    if _ENDPOINT not in made:
        raise ConfigException(
            f"'sasl.mechanism' is OAUTHBEARER: '{TOKEN_PROVIDER}' serves the clients in this process, but "
            f"Spark uses its own Java client. Set '{_LOGIN_HANDLER}', a Java class "
            f"on Spark's class path (spark.jars, spark.jars.packages), or '{_ENDPOINT}' with clientId and "
            "clientSecret in 'sasl.jaas.config'"
        )
    login = {
        "clientId": _first(options, jaas, "clientId", "client.id"),
        "clientSecret": _first(options, jaas, "clientSecret", "client.secret"),
        "scope": jaas.get("scope", made.get("sasl.oauthbearer.scope", "")),
    }
    given = {name: value for name, value in login.items() if value}
    return {
        _LOGIN_HANDLER: _KAFKAS_HANDLER,
        "sasl.jaas.config": made.get("sasl.jaas.config") or _jaas(module, **given),
    }


# --- Java's login configuration --------------------------------------------------------------------------

_JAAS_OPTION = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s;\"']+))")


def parse_jaas(value: str) -> tuple[str, dict[str, str]]:
    """The name of the login module, without its package, and its options."""
    module = value.split()[0].rpartition(".")[2] if value.split() else ""
    options = {
        name: re.sub(r"\\(.)", r"\1", double or single or bare)
        for name, double, single, bare in _JAAS_OPTION.findall(value)
    }
    return module, options


def _jaas(module: str, **options: str) -> str:
    escaped = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in options.items()}
    return (
        " ".join([f"{_SECURITY}{module} required", *(f'{name}="{value}"' for name, value in escaped.items())])
        + ";"
    )
