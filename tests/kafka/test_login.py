"""Kafka's `sasl.*` settings into what each client takes, and where tokens come from."""

from __future__ import annotations

import base64
import json
import threading
import urllib.parse
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka.net.sasl.oauth import SaslMechanismOAuth

from millstream.config import StreamsConfig
from millstream.errors import ConfigException, StreamsException
from millstream.kafka.clients import admin_config, build
from millstream.kafka.login import for_java, for_kafka_python, for_librdkafka, login_of, parse_jaas
from millstream.kafka.tokens import Tokens, claims_of, from_endpoint, from_program, unsecured

OAUTH = "org.apache.kafka.common.security.oauthbearer."
SASL = {"security.protocol": "SASL_SSL"}


def oauth(**jaas: str) -> dict[str, Any]:
    options = "".join(f' {name}="{value}"' for name, value in jaas.items())
    return {
        **SASL,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{OAUTH}OAuthBearerLoginModule required{options};",
    }


# --- for each client -------------------------------------------------------------------------------------


def test_a_user_name_and_a_password_are_javas_login_configuration_and_back() -> None:
    """Either form is accepted, with quotes and backslashes in the password."""
    given = {**SASL, "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "me", "sasl.password": 'a"b\\c;'}
    made = for_java(given)
    assert parse_jaas(made["sasl.jaas.config"]) == (
        "ScramLoginModule",
        {"username": "me", "password": 'a"b\\c;'},
    )
    del given["sasl.username"], given["sasl.password"]
    again = for_librdkafka({**given, "sasl.jaas.config": made["sasl.jaas.config"]})
    assert again == {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "me", "sasl.password": 'a"b\\c;'}


def test_kerberos_is_handed_through() -> None:
    """What a keytab's login configuration says. There is no Kerberos here, only what clients are told."""
    options = {
        **SASL,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.domain.name": "brokers.example",
        "sasl.kerberos.ticket.renew.jitter": "0.05",
        "sasl.jaas.config": (
            "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
            'keyTab="/etc/me.keytab" principal="me@EXAMPLE";'
        ),
    }
    assert for_librdkafka(options) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.principal": "me@EXAMPLE",
        "sasl.kerberos.keytab": "/etc/me.keytab",
    }
    assert for_kafka_python(options) == {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": "brokers.example",
    }
    assert for_java(options) == options
    with pytest.raises(ConfigException, match="--no-binary confluent-kafka"):
        build(
            AdminClient,
            {"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL", **for_librdkafka(options)},
        )


def test_amazons_login_is_a_token_in_this_process_and_amazons_classes_in_java() -> None:
    """Its brokers take both. Tokens by the program's function, or else by Amazon's library."""
    options = {**SASL, "sasl.mechanism": "AWS_MSK_IAM"}
    made = for_java(options)
    assert made["sasl.mechanism"] == "AWS_MSK_IAM"
    assert made["sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    assert (
        made["sasl.client.callback.handler.class"] == "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    )
    own = 'software.amazon.msk.auth.iam.IAMLoginModule required awsRoleArn="arn:x";'
    assert for_java({**options, "sasl.jaas.config": own})["sasl.jaas.config"] == own
    with pytest.raises(ConfigException, match="aws-msk-iam-sasl-signer-python"):
        for_librdkafka(options)
    provided = {**options, "sasl.oauthbearer.token.provider": lambda: ("signed", 4e9)}
    librdkafka = for_librdkafka(provided)
    assert librdkafka["sasl.mechanism"] == "OAUTHBEARER"
    assert librdkafka["oauth_cb"]("") == ("signed", 4e9, "", {})
    member = for_kafka_python(provided)
    assert member["sasl_mechanism"] == "OAUTHBEARER"
    assert SaslMechanismOAuth(**member).auth_bytes() == b"n,,\x01auth=Bearer signed\x01\x01"


def test_client_credentials_need_javas_handler_named_only_once() -> None:
    """Kafka's own one follows from the address; settings of KIP-1139 become a login configuration."""
    options = {
        **oauth(clientId="me", clientSecret="s", scope="kafka"),
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
    }
    made = for_java(options)
    assert made["sasl.login.callback.handler.class"] == f"{OAUTH}OAuthBearerLoginCallbackHandler"
    assert made["sasl.jaas.config"] == options["sasl.jaas.config"]
    newer = {
        **SASL,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "s",
        "sasl.oauthbearer.scope": "kafka",
    }
    assert parse_jaas(for_java(newer)["sasl.jaas.config"])[1] == {
        "clientId": "me",
        "clientSecret": "s",
        "scope": "kafka",
    }
    assert login_of(newer).tokens is login_of(options).tokens, "one source for all clients that log in alike"


def test_certificates_as_texts_are_pem_to_java() -> None:
    """Whose default is JKS."""
    texts = {
        "ssl.truststore.certificates": "c",
        "ssl.keystore.key": "k",
        "ssl.keystore.certificate.chain": "c",
    }
    made = for_java({"security.protocol": "SSL", **texts})
    assert (made["ssl.truststore.type"], made["ssl.keystore.type"]) == ("PEM", "PEM")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (oauth(), "the clients in this process have no source of tokens"),
        (
            {**oauth(), "sasl.login.callback.handler.class": "com.example.Vault"},
            "com.example.Vault, which they",
        ),
        (
            {**oauth(), "sasl.oauthbearer.token.endpoint.url": "https://a/t"},
            "no clientId and clientSecret",
        ),
        (
            {**oauth(clientId="a", clientSecret="hush"), "sasl.oauthbearer.token.endpoint.url": "file:///a"},
            "http or https",
        ),
        ({**oauth(), "sasl.oauthbearer.token.provider": "a-token"}, "it is a str"),
    ],
)
def test_tokens_that_cannot_be_had_are_told_before_anything_runs(options: dict[str, Any], told: str) -> None:
    """The error says what to set."""
    with pytest.raises(ConfigException, match=told) as refused:
        for_librdkafka(options)
    assert "hush" not in str(refused.value)


def test_a_function_of_the_programs_does_not_serve_java() -> None:
    """Spark's side needs a class of its own, and is told so; with one it is handed through."""
    options = {**SASL, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.provider": lambda: "t"}
    with pytest.raises(ConfigException, match=r"sasl\.login\.callback\.handler\.class"):
        for_java(options)
    made = for_java({**options, "sasl.login.callback.handler.class": "com.example.Vault"})
    assert made["sasl.login.callback.handler.class"] == "com.example.Vault"
    assert made["sasl.jaas.config"] == f"{OAUTH}OAuthBearerLoginModule required;"
    assert "sasl.oauthbearer.token.provider" not in made


def test_the_login_of_one_client_can_be_another() -> None:
    """The client's prefix selects it; the others keep theirs. No secret is shown."""
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "a:1",
            **SASL,
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": 'x.PlainLoginModule required username="me" password="hush";',
            "admin.sasl.jaas.config": 'x.PlainLoginModule required username="root" password="hush";',
        }
    )
    assert admin_config(config)["sasl.username"] == "root"
    assert for_librdkafka(config.security("consumer."))["sasl.username"] == "me"
    assert "hush" not in repr(config) + repr(login_of(config.security()))


# --- tokens ----------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_once_while_it_is_valid() -> None:
    """It is used until a fifth of its life is left. A source that raises is asked again at the next call."""
    now = [1000.0]
    made: list[str] = []

    def provider() -> tuple[str, float]:
        made.append("x")
        if len(made) == 3:
            raise OSError("sealed")
        return f"t{len(made)}", now[0] + 100

    tokens = from_program(provider, clock=lambda: now[0])
    asked = []
    for at in (1000, 1079, 1081, 1160):
        now[0] = at
        asked.append(tokens.get().text)
    assert asked == ["t1", "t1", "t2", "t2"]
    now[0] = 1300
    with pytest.raises(StreamsException, match="sealed"):
        tokens.get()
    assert tokens.get().text == "t4"
    assert "t4" not in repr(tokens.get())


def test_how_long_a_token_is_valid_is_read_in_it_if_nobody_says() -> None:
    """A JSON web token has it; for another it is a few minutes."""
    made = unsecured(
        {"unsecuredLoginStringClaim_sub": "me", "unsecuredLoginLifetimeSeconds": "60"}, lambda: 1000
    )
    token = made.get()
    assert claims_of(token.text) == {"iat": 1000, "exp": 1060, "sub": "me"}
    read = from_program(lambda: token.text, clock=lambda: 1000).get()
    assert (read.expires_at, read.principal) == (1060, "me")
    assert from_program(lambda: "opaque", clock=lambda: 1000).get().expires_at == 1300
    for garbage in ("a.b.c", "..", "a.e30.c", "", "a.W10.c", "a.eyJleHAiOiJ4In0.c"):
        assert claims_of(garbage) == {}
    with pytest.raises(StreamsException, match="returned a NoneType instead of a token"):
        from_program(lambda: None).get()


class Endpoint:
    """An identity provider on this machine: what it was asked, and its next answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        self.answers: list[tuple[int, bytes]] = []
        self.followed: list[str] = []
        """Who came by a redirection, and with what."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                endpoint.asked.append((self.headers["Authorization"], urllib.parse.parse_qs(form)))
                status, content = endpoint.answers.pop(0)
                if status == 0:
                    self.wfile.write(content)
                    return
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", endpoint.url)
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                endpoint.followed.append(self.headers["Authorization"])
                self.send_response(500)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/token"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.server.serve_forever)
    thread.start()
    yield endpoint
    endpoint.server.shutdown()
    thread.join()
    endpoint.server.server_close()


def test_client_credentials_give_tokens(endpoint: Endpoint) -> None:
    """As Java's client asks for them; what is no token is told without the secret, and no redirection is
    followed, which would show the secret to another server."""
    tokens: Tokens = from_endpoint(endpoint.url, "me", "hush", "kafka", clock=lambda: 1000)
    endpoint.answers = [
        (401, b"{}"),
        (200, b"<html>"),
        (200, b"[]"),
        (302, b""),
        (0, b"this is no HTTP\r\n\r\n"),
        (200, json.dumps({"access_token": "t", "expires_in": 60}).encode()),
    ]
    for _ in range(5):
        with pytest.raises(StreamsException, match="returned no token for client 'me'") as refused:
            tokens.get()
        assert "hush" not in str(refused.value)
    token = tokens.get()
    assert (token.text, token.expires_at) == ("t", 1060)
    login, form = endpoint.asked[-1]
    assert base64.b64decode(login.removeprefix("Basic ")) == b"me:hush"
    assert form == {"grant_type": ["client_credentials"], "scope": ["kafka"]}
    assert tokens.get() is token
    assert endpoint.followed == []
