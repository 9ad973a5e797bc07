"""Certificates of localhost that tests make for a query server, with openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from millstream.remote.http_wire import Tls

__all__ = ["PASSWORD", "Files", "made_in"]

PASSWORD = "s3cr3t-of-the-key"


@dataclass(frozen=True)
class Files:
    """A certificate of localhost, which is its own authority, its key, and another one like it."""

    certificate: str
    key: str
    other: str

    @property
    def tls(self) -> Tls:
        return Tls(self.certificate, self.key, PASSWORD, self.certificate)

    @property
    def config(self) -> dict[str, str]:
        """What switches them on for a client's query server."""
        return {
            "query.server.ssl.certificate.location": self.certificate,
            "query.server.ssl.key.location": self.key,
            "query.server.ssl.key.password": PASSWORD,
        }


def made_in(folder: Path, names: str = "DNS:localhost") -> Files:
    """New ones in a folder, for these names."""
    for name in ("own", "other"):
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost"]
        with_names = ["-addext", f"subjectAltName={names}", "-passout", f"pass:{PASSWORD}"]
        out = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.pem")]
        subprocess.run([*made, *with_names, *out], check=True, capture_output=True)
    return Files(str(folder / "own.pem"), str(folder / "own.key"), str(folder / "other.pem"))
