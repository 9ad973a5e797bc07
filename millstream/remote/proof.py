"""Proofs: how clients show each other that they know the token, which is never sent between them.

Anyone who can join the Kafka group can announce an endpoint. So an endpoint has to prove itself on each new
connection before it receives a request, and every request and every answer carries a proof:

    asker    GET /v1/proof?nonce=N                    who are you? (nothing secret)
    server   life, time, MAC(proof, name, N, life, time)
    asker    question, MAC(question, name, life, time, nonce, forwarded, method, target, SHA-256 of the body)
    server   answer, MAC(answer, MAC of the question, status, retry-after, SHA-256 of the body)

`name` is the endpoint that the asker was given, and by which the server is known. A man in the middle that
relays all of this to a real client is detected, because the names differ. `life` is a random number that the
server draws when it starts. `time` is the server's own clock; the asker remembers the difference, so the two
clocks need not agree. MAC is HMAC-SHA256 with a key that scrypt derives from the token and the application
id. With a plain hash, a stranger could use a received proof to try many tokens quickly. And without the
application id, clients of two applications that have the same token could pass for each other.

Nothing here is encrypted. No input or output except the clock and the random numbers.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from millstream.errors import ConfigException

__all__ = [
    "FORWARDED",
    "PROOF_PATH",
    "SCHEME",
    "SIGNATURE",
    "STALE",
    "Answerer",
    "Proven",
    "ReplayGuard",
    "Seal",
    "checked_token",
    "fresh_nonce",
    "proven",
    "secret_of",
]

PROOF_PATH = "/v1/proof"
SCHEME = "Millstream-Proof"
"""The scheme in the header Authorization of a proved question; the proof follows it."""
SIGNATURE = "millstream-proof"
"""The header with the proof of an answer."""

FORWARDED = "millstream-forwarded"
"""The header of a forwarded request: its receiver answers it locally or not at all."""

STALE = "StaleProof"
"""The error for a request whose proof is right, but too old or already used."""

WINDOW_MS = 30_000
"""How far a question's time may be from the server's."""
MOST_REMEMBERED = 65_536
"""How many questions are remembered, so that none is accepted twice."""

_SCRYPT = {"n": 1 << 14, "r": 8, "p": 1, "maxmem": 64 << 20}
"""16 MiB and some 50 ms for each token tried."""
_HEX = re.compile("[0-9a-f]{64}")
_QUESTION = re.compile(
    f"{SCHEME} life=([0-9a-f]{{64}}), time=([0-9]{{1,15}}), nonce=([0-9a-f]{{64}}), "
    "body=([0-9a-f]{64}), mac=([0-9a-f]{64})"
)


def checked_token(token: str | None) -> str | None:
    """A token that can be sent in a header; None: there is none.

    Raises:
        ConfigException: it is empty, or contains a space or a character that is not printable ASCII.
    """
    if token is None:
        return None
    if not isinstance(token, str) or not token or not all("!" <= character <= "~" for character in token):
        raise ConfigException("a token must consist of printable ASCII characters without spaces")
    return token


@lru_cache(maxsize=16)
def secret_of(token: str, application_id: str) -> bytes:
    """The key that the proofs of an application's clients use."""
    salt = b"millstream query servers 2 " + application_id.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(token.encode(), salt=salt, dklen=32, **_SCRYPT)


def fresh_nonce() -> str:
    return secrets.token_hex(32)


def _mac(secret: bytes, label: str, *fields: str | bytes) -> str:
    """The MAC of the fields. Each is preceded by its length, so that different lists have different bytes."""
    made = hmac.new(secret, digestmod=hashlib.sha256)
    for each in (label, *fields):
        data = each.encode("utf-8", "surrogatepass") if isinstance(each, str) else each
        made.update(len(data).to_bytes(8, "big") + data)
    return made.hexdigest()


def _hash(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _question(secret: bytes, name: str, life: str, at: str, nonce: str, *rest: str) -> str:
    return _mac(secret, "question", name, life, at, nonce, *rest)


def _answer(secret: bytes, question: str, status: int, retry_after: str | None, body: bytes) -> str:
    return _mac(secret, "answer", question, str(status), retry_after or "", _hash(body))


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


# --- the asker -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Proven:
    """An endpoint that has proved itself, on one connection.

    Attributes:
        name: host:port, as the asker was given it.
        ahead_ms: how far its clock is ahead of this process's monotonic one.
    """

    secret: bytes = field(repr=False)
    name: str
    life: str
    ahead_ms: int

    def question(
        self, method: str, target: str, body: bytes, *, forwarded: bool, now_ms: int | None = None
    ) -> tuple[str, str]:
        """The header Authorization of a question, and the question's MAC, which the answer's proof covers."""
        at = str((_monotonic_ms() if now_ms is None else now_ms) + self.ahead_ms)
        nonce, digest = fresh_nonce(), _hash(body)
        flag = "forwarded" if forwarded else ""
        mac = _question(self.secret, self.name, self.life, at, nonce, flag, method, target, digest)
        shown = f"{SCHEME} life={self.life}, time={at}, nonce={nonce}, body={digest}, mac={mac}"
        return shown, mac

    def believes(
        self, question: str, status: int, retry_after: str | None, body: bytes, signature: str | None
    ) -> bool:
        """Whether an answer's sender knows the token, and answers this very question."""
        expected = _answer(self.secret, question, status, retry_after, body)
        return signature is not None and hmac.compare_digest(expected.encode(), signature.encode())


def proven(secret: bytes, name: str, nonce: str, raw: bytes) -> Proven | None:
    """What an endpoint's answer to `PROOF_PATH` proves; None: nothing. It may be any bytes."""
    try:
        answer = json.loads(raw)
        life, at, proof = answer["life"], answer["time"], answer["proof"]
    except (ValueError, RecursionError, TypeError, KeyError, IndexError):
        return None
    fits = isinstance(life, str) and _HEX.fullmatch(life) and isinstance(proof, str)
    if not fits or not isinstance(at, int) or isinstance(at, bool) or not 0 <= at < 10**15:
        return None
    expected = _mac(secret, "proof", name, nonce, life, str(at))
    if not hmac.compare_digest(expected.encode(), proof.encode("utf-8", "replace")):
        return None
    return Proven(secret, name, life, at - _monotonic_ms())


# --- the server ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Seal:
    """A proved question. `fresh`: it is in time, and was not received before.

    Attributes:
        mac: its MAC, which the answer's proof covers. `body`: the SHA-256 of its body, which is yet to come.
    """

    secret: bytes = field(repr=False)
    mac: str
    body: str
    fresh: bool

    def is_of(self, body: bytes) -> bool:
        """Whether the body is the one that was proved."""
        return hmac.compare_digest(self.body, _hash(body))

    def answer(self, status: int, retry_after: str | None, body: bytes) -> str:
        """The proof of an answer."""
        return _answer(self.secret, self.mac, status, retry_after, body)


class Answerer:
    """Proves this server to others, and checks their questions. Used on one event loop.

    Args:
        name: the endpoint by which other clients know this server, as host:port.
        clock_ms: any clock that only goes forward.
    """

    def __init__(self, secret: bytes, name: str, clock_ms: Callable[[], int] = _monotonic_ms) -> None:
        self._secret = secret
        self._name = name
        self._life = fresh_nonce()
        self._clock_ms = clock_ms
        self._began_ms = clock_ms()
        self._seen = ReplayGuard()

    def _now_ms(self) -> int:
        # It starts at one window, so that a question with the first possible time is not too old.
        return self._clock_ms() - self._began_ms + WINDOW_MS

    def proof(self, nonce: str) -> dict[str, str | int] | None:
        """The proof of this server for the asker that drew `nonce`; None: the nonce is invalid."""
        if not _HEX.fullmatch(nonce):
            return None
        at = self._now_ms()
        proof = _mac(self._secret, "proof", self._name, nonce, self._life, str(at))
        return {"life": self._life, "time": at, "proof": proof}

    def seal(self, shown: str, method: str, target: str, *, forwarded: bool) -> Seal | None:
        """The question that `shown`, its header Authorization, proves; None: the proof is wrong."""
        found = _QUESTION.fullmatch(shown)
        if found is None:
            return None
        life, at, nonce, digest, mac = found.groups()
        flag = "forwarded" if forwarded else ""
        expected = _question(self._secret, self._name, life, at, nonce, flag, method, target, digest)
        if not hmac.compare_digest(expected, mac):
            return None
        fresh = life == self._life and self._seen.is_first(int(at), nonce, self._now_ms())
        return Seal(self._secret, mac, digest, fresh)


class ReplayGuard:
    """Remembers questions for as long as their time is accepted, up to a maximum number.

    When it is full, the oldest is forgotten, and no question of that time or earlier is accepted any more.
    """

    def __init__(self, window_ms: int = WINDOW_MS, most: int = MOST_REMEMBERED) -> None:
        self._window_ms = window_ms
        self._most = most
        self._order: deque[tuple[int, str]] = deque()
        self._known: set[str] = set()
        self._floor_ms = -1

    def __len__(self) -> int:
        return len(self._known)

    def is_first(self, at_ms: int, nonce: str, now_ms: int) -> bool:
        """Whether a question is in time and new; from now on, it is known."""
        while self._order and self._order[0][0] < now_ms - self._window_ms:
            self._known.discard(self._order.popleft()[1])
        if abs(now_ms - at_ms) > self._window_ms or at_ms <= self._floor_ms or nonce in self._known:
            return False
        if len(self._order) >= self._most:
            forgotten, known = self._order.popleft()
            self._known.discard(known)
            self._floor_ms = max(self._floor_ms, forgotten)
        self._order.append((at_ms, nonce))
        self._known.add(nonce)
        return at_ms > self._floor_ms
