"""Which endpoints are asked: `query.server.peers`."""

from __future__ import annotations

import pytest

from millstream.errors import ConfigException
from millstream.query.metadata import HostInfo
from millstream.server.entrance import Allowed

TABLE = [
    # patterns, host, with a token, without one
    ([], HostInfo("orders-1", 80), True, False),
    ([], HostInfo("127.0.0.1", 80), True, True),
    ([], HostInfo("localhost", 80), True, True),
    ([], HostInfo("127.0.0.1.evil.example", 80), True, False),
    (["orders-1"], HostInfo("ORDERS-1", 80), True, True),
    (["orders-1"], HostInfo("orders-12", 80), False, False),
    (["orders-1"], HostInfo("127.0.0.1", 80), False, False),
    (["orders-1:80"], HostInfo("orders-1", 81), False, False),
    (["orders-?:80", "x"], HostInfo("orders-7", 80), True, True),
    (["*.orders.svc"], HostInfo("a.orders.svc", 1), True, True),
    (["*.orders.svc"], HostInfo("a.orders.svc.evil.example", 1), False, False),
    (["10.0.0.0/8"], HostInfo("10.200.3.4", 9), True, True),
    (["10.0.0.0/8"], HostInfo("11.0.0.1", 9), False, False),
    (["10.0.0.0/8"], HostInfo("10.0.0.1.evil.example", 9), False, False),
    (["10.0.0.0/8:8080"], HostInfo("10.0.0.1", 9), False, False),
    (["[fd00::/8]:8080"], HostInfo("fd00::7", 8080), True, True),
    (["::1"], HostInfo("::1", 8080), True, True),
    (["*"], HostInfo("10.0.0.1", 9), True, True),
]


def test_what_may_be_asked() -> None:
    """Names as names, addresses by network; by default all, or this machine where there is no token."""
    for patterns, host, with_token, without in TABLE:
        for has_token, expected in ((True, with_token), (False, without)):
            refusal = Allowed(patterns, has_token=has_token).refusal(host)
            assert (refusal is None) is expected, (patterns, host, has_token)
            assert refusal is None or "query.server.peers" in refusal


@pytest.mark.parametrize(
    "pattern", ["", "a b", "x:0", "x:99999", "http://x", "[", "[::1", "a:b", "10.0.0.0/99"]
)
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    """The error is raised when the configuration is read, and shows an example."""
    with pytest.raises(ConfigException, match="looks like 'orders-1'"):
        Allowed([pattern], has_token=True)
