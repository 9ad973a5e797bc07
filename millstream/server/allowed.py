"""Which endpoints of other clients this client asks: `query.server.peers`, and what holds without it. Pure.

The group tells the endpoints, and whoever can join the group can tell any. With a token each has to prove
that it knows it (proof.py), and this only keeps connections from going where they have no business. Without a
token there is nothing to prove, so only this machine is asked, or who is named.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from millstream.errors import ConfigException
from millstream.query.metadata import HostInfo

__all__ = ["Allowed", "is_loopback"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NAME = re.compile(r"[A-Za-z0-9*?._-]+")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class _Pattern:
    """One of `query.server.peers`: a network or names, at any port or one."""

    network: Network | None
    names: str
    port: int | None

    def fits(self, host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
        if self.network is not None:
            return address is not None and address in self.network
        return fnmatchcase(host, self.names)


class Allowed:
    """Which endpoints may be asked.

    Args:
        patterns: each a host name (`*` and `?` stand for any characters), an address, or a network such as
            10.0.0.0/8; each with `:port` after it, or for any port. None at all: see `refusal`.
        has_token: whether endpoints have to prove themselves.

    Raises:
        ConfigException: one of the patterns is none.
    """

    def __init__(self, patterns: Iterable[str] = (), *, has_token: bool) -> None:
        self._patterns = tuple(_parsed(pattern) for pattern in patterns)
        self._has_token = has_token

    def refusal(self, host: HostInfo) -> str | None:
        """Why an endpoint is not asked; None: it may be.

        A name is compared as a name, and never looked up: it fits a network only where it is an address.
        """
        if self._patterns:
            if self._names(host):
                return None
            return "'query.server.peers' does not name it"
        if self._has_token or is_loopback(host.host):
            return None
        return (
            "it is on another machine, and without a token nothing proves who answers there; set "
            "'query.server.token', or name it in 'query.server.peers'"
        )

    def _names(self, host: HostInfo) -> bool:
        name = host.host.lower()
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            address = None
        return any(
            pattern.port in (None, host.port) and pattern.fits(name, address) for pattern in self._patterns
        )


def _parsed(pattern: str) -> _Pattern:
    text = pattern.strip() if isinstance(pattern, str) else ""
    for place, port in ((text, None), text.rpartition(":")[::2]):
        number = None
        if port is not None:
            if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
                break
            number = int(port)
        place = place[1:-1] if place.startswith("[") and place.endswith("]") else place
        try:
            return _Pattern(ipaddress.ip_network(place, strict=False), "", number)
        except ValueError:
            pass
        if _NAME.fullmatch(place):
            return _Pattern(None, place.lower(), number)
    raise ConfigException(
        f"'query.server.peers': '{pattern}' is no endpoint; one looks like 'orders-1', 'orders-*:8080', "
        "'10.0.0.0/8' or '[fd00::/8]:8080'"
    )
