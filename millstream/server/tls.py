"""TLS of the query server: its certificate, and by which authority those of the other clients are checked.

Files are read when the server starts; whoever renews a certificate starts the client anew. A key's password
reaches no log and no message.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field

from millstream.errors import ConfigException

__all__ = ["Tls", "trusting"]


@dataclass(frozen=True, slots=True)
class Tls:
    """How connections are encrypted. All files are PEM.

    Attributes:
        certificate: the server's certificate, and those between it and its authority.
        key: its key; None: it is in the same file. `password`: what opens the key.
        ca: the authorities of the other clients' certificates; None: those that the machine trusts.
    """

    certificate: str
    key: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None

    def serving(self) -> ssl.SSLContext:
        """For who is connected to.

        Raises:
            ConfigException: the files are not there, do not fit each other, or the password is another.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # Always given, so that nobody is asked at a terminal.
            context.load_cert_chain(self.certificate, self.key, lambda: self.password or "")
        except (OSError, ValueError) as error:
            raise ConfigException(
                f"the query server's certificate '{self.certificate}', with its key in "
                f"'{self.key or self.certificate}', cannot be used ({_why(error)}); both are PEM files, "
                "which fit each other, and a key that has a password needs 'query.server.ssl.key.password'"
            ) from None
        return context

    def asking(self) -> ssl.SSLContext:
        """For who connects to other clients.

        Raises:
            ConfigException: the file of authorities cannot be read.
        """
        return trusting(self.ca)


def trusting(ca: str | None) -> ssl.SSLContext:
    """Believes servers whose certificate is of these authorities, and has the name that they are called by.

    Raises:
        ConfigException: the file cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ValueError) as error:
        raise ConfigException(
            f"'{ca}' cannot be read as certificates of authorities, in PEM: {_why(error)}"
        ) from None


def _why(error: Exception) -> str:
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
