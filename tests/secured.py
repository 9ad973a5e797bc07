"""A broker with a listener for each kind of login, and the settings of clients that log in there."""

from __future__ import annotations

import socket
import subprocess
import uuid
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from millstream.broker import EmbeddedKafka

_SECURITY = "org.apache.kafka.common.security"
LOGIN = _SECURITY + '.plain.PlainLoginModule required username="{}" password="{}";'
SCRAM = _SECURITY + '.scram.ScramLoginModule required username="{}" password="{}";'
UNSECURED = _SECURITY + '.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="{}";'

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "mutual TLS")


class Secured:
    """A broker with listeners for logins without and with encryption, and for certificates of clients.

    The user `me` may do everything, also as `CN=me`; the user `stranger` may log in.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate, both = self._certificate("localhost", "subjectAltName=IP:127.0.0.1")
        self.own_certificate, _ = self._certificate("me", "subjectAltName=DNS:me")
        sockets = [socket.socket() for _ in range(5)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        plain, self.passwords, self.secure, self.mutual, controller = (
            one.getsockname()[1] for one in sockets
        )
        for one in sockets:
            one.close()
        open_to = (
            f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{self.passwords},"
            f"BOTH://127.0.0.1:{self.secure},MUTUAL://127.0.0.1:{self.mutual}"
        )
        server = (
            LOGIN.format("admin", "admin").rstrip(";")
            + ' user_me="right" user_stranger="right" user_admin="admin";'
        )
        logins = {
            "plain": server,
            "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
            "oauthbearer": UNSECURED.format("broker"),
        }
        self.broker = EmbeddedKafka(
            port=plain,
            settings={
                "listeners": f"{open_to},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": open_to,
                "controller.quorum.voters": f"1@127.0.0.1:{controller}",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,BOTH:SASL_SSL,MUTUAL:SSL"
                ),
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
                **{
                    f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
                    for listener in ("sasl", "both")
                    for mechanism, login in logins.items()
                },
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(both),
                "listener.name.mutual.ssl.client.auth": "required",
                "listener.name.mutual.ssl.truststore.type": "PEM",
                "listener.name.mutual.ssl.truststore.location": str(folder / "me.certificate.pem"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:ANONYMOUS;User:me;User:CN=me",
            },
        )

    def _certificate(self, name: str, alternative: str) -> tuple[str, Path]:
        """Self-signed; its text, and a file with the key and it."""
        key, certificate = self.folder / f"{name}.key.pem", self.folder / f"{name}.certificate.pem"
        made_by = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}"]
        files = ["-addext", alternative, "-keyout", str(key), "-out", str(certificate)]
        subprocess.run([*made_by, *files], check=True, capture_output=True)
        both = self.folder / f"{name}.both.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return certificate.read_text(), both

    def add_scram_users(self) -> None:
        """The user `me`, with the password `right`; the broker keeps these itself."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        for kind in kinds:
            made = UserScramCredentialUpsertion("me", ScramCredentialInfo(kind, 4096), b"right")
            for future in admin.alter_user_scram_credentials([made]).values():
                future.result(30)

    def options(self, user: str, password: str) -> dict[str, object]:
        """Of a client with a password for PLAIN."""
        return {
            "application.id": f"g-{uuid.uuid4().hex[:10]}",
            "bootstrap.servers": f"127.0.0.1:{self.passwords}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": LOGIN.format(user, password),
        }

    def options_of(self, mechanism: str) -> dict[str, object]:
        """Of a client that logs in as `me` by one of the MECHANISMS."""
        options = self.options("me", "right")
        if mechanism == "mutual TLS":
            del options["sasl.mechanism"], options["sasl.jaas.config"]
            key, _, _ = (self.folder / "me.both.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
            return {
                **options,
                "bootstrap.servers": f"127.0.0.1:{self.mutual}",
                "security.protocol": "SSL",
                "ssl.truststore.certificates": self.certificate,
                "ssl.keystore.key": key,
                "ssl.keystore.certificate.chain": self.own_certificate,
            }
        options["sasl.mechanism"] = mechanism
        if mechanism.startswith("SCRAM"):
            options["sasl.jaas.config"] = SCRAM.format("me", "right")
        if mechanism == "OAUTHBEARER":
            options["sasl.jaas.config"] = UNSECURED.format("me")
        return options
