"""Who is let in: what a request's head may have, by which names the server is called, and tokens and proofs.

It decides from the head alone, before a body is read. Neither tokens nor proofs reach a log.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from millstream.errors import ConfigException
from millstream.query.metadata import HostInfo
from millstream.server.answers import Answer, Refused
from millstream.server.limits import Limits
from millstream.server.proof import SCHEME, SIGNATURE, Answerer, Seal, secret_of

__all__ = ["FORWARDED", "STALE", "Entrance", "Headers", "checked_token", "headers_of"]

Headers = Mapping[bytes, list[bytes]]

FORWARDED = "millstream-forwarded"
"""The header of a question that a query server passes on: answer it yourself, or not at all."""

STALE = "StaleProof"
"""The error of a question whose proof is right, but too old, or was used before."""

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^\[\]:]+))(?::[0-9]{1,5})?")


def checked_token(token: str | None) -> str | None:
    """A token that can stand in a header; None: there is none.

    Raises:
        ConfigException: it is empty, or has other characters than printable ASCII, or spaces.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise ConfigException("a token is a text of printable ASCII characters without spaces")
    return token


def headers_of(scope: Mapping[str, Any]) -> dict[bytes, list[bytes]]:
    """A request's headers by their names in lower case."""
    headers: dict[bytes, list[bytes]] = {}
    for name, value in scope.get("headers", []):
        headers.setdefault(bytes(name).lower(), []).append(bytes(value))
    return headers


class Entrance:
    """Lets requests in, or says why not. Used on one event loop.

    Args:
        token: what requests have to show, or to prove; None: nothing.
        name: the endpoint that this server goes by among the clients; None: it has none, and proves nothing.
        hosts: the names by which it may be called in the header Host; None: any.
    """

    def __init__(
        self, token: str | None, name: HostInfo | None, hosts: Iterable[str] | None, limits: Limits
    ) -> None:
        self._token = checked_token(token)
        self._answerer = (
            None if self._token is None or name is None else Answerer(secret_of(self._token), str(name))
        )
        self._hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self._limits = limits

    def seal(self, headers: Headers, method: str, target: str) -> Seal | None:
        """The proof that a request shows, if it is one; it may be stale."""
        given = headers.get(b"authorization", [])
        if self._answerer is None or len(given) != 1 or not given[0].startswith(SCHEME.encode()):
            return None
        forwarded = FORWARDED.encode() in headers
        return self._answerer.seal(given[0].decode("latin-1"), method, target, forwarded=forwarded)

    def check_head(self, scope: Mapping[str, Any], headers: Headers) -> None:
        """Hold that a head is not too large, and is for this server.

        Raises:
            Refused: it is not.
        """
        fields = scope.get("headers", [])
        size = sum(len(name) + len(value) for name, value in fields)
        if len(fields) > self._limits.headers or size > self._limits.header_bytes:
            most = f"{self._limits.headers} headers and {self._limits.header_bytes} bytes of them"
            raise Refused(431, "TooLarge", f"a request has at most {most}", close=True)
        if self._hosts is None:
            return
        named = headers.get(b"host", [])
        found = _HOST.fullmatch(named[0].decode("latin-1").lower()) if len(named) == 1 else None
        if found is None or (found[1] or found[2]) not in self._hosts:
            raise Refused(403, "Forbidden", "this server does not go by the name in the header Host")

    def admit(self, headers: Headers, seal: Seal | None, *, acts: bool = False) -> None:
        """Let in who shows the token, or a fresh proof of it.

        Args:
            acts: the request changes the client: then there has to be a token.

        Raises:
            Refused: there is neither.
        """
        if self._token is None:
            if acts:
                raise Refused(
                    403,
                    "Forbidden",
                    "a server without a token takes no commands, from this machine neither; set "
                    "'query.server.token'",
                )
            return
        if seal is not None:
            if not seal.fresh:
                raise Refused(401, STALE, "this proof is too old, or was used before; prove it once more")
            return
        given = headers.get(b"authorization", [])
        scheme, _, shown = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        # In constant time, whatever was given: how long it takes tells nothing of the token.
        if not hmac.compare_digest(shown.strip(), self._token.encode()) or scheme.lower() != b"bearer":
            raise Refused(
                401,
                "Unauthorized",
                "this server wants its token: Authorization: Bearer <token>",
                headers={"www-authenticate": "Bearer"},
            )

    def proof(self, nonce: str) -> Answer:
        """This server's own proof, for who is about to ask it something.

        Raises:
            Refused: it has none, or the nonce is none.
        """
        if self._answerer is None:
            raise Refused(404, "NotFound", "this server has no token to prove, or no endpoint of its own")
        proof = self._answerer.proof(nonce)
        if proof is None:
            raise Refused(400, "BadRequest", "a nonce is 64 hexadecimal digits")
        return Answer(200, proof)

    @staticmethod
    def signed(answer: Answer, seal: Seal) -> Answer:
        """An answer with its proof; its body is as it will be sent."""
        encoded = answer.encoded()
        retry_after = encoded.headers.get("retry-after")
        signature = seal.answer(encoded.status, retry_after, encoded.raw or b"")
        return replace(encoded, headers={**encoded.headers, SIGNATURE: signature})
