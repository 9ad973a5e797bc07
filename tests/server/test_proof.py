"""Proofs between query servers: what proves, what does not, and what is taken once only."""

from __future__ import annotations

import json
import random

import pytest

from millstream.remote.proof import (
    MOST_REMEMBERED,
    WINDOW_MS,
    Answerer,
    Proven,
    ReplayGuard,
    Seal,
    fresh_nonce,
    proven,
    secret_of,
)

SECRET, OTHER = secret_of("the-token", "orders"), secret_of("another-token", "orders")
NAME = "orders-1:8080"


def introduced(answerer: Answerer, name: str = NAME, secret: bytes = SECRET) -> Proven | None:
    nonce = fresh_nonce()
    return proven(secret, name, nonce, json.dumps(answerer.proof(nonce)).encode())


def test_an_endpoint_proves_the_token_and_its_name_to_who_asks_now() -> None:
    """Another token, another name, or the proof of an earlier nonce prove nothing."""
    assert introduced(Answerer(SECRET, NAME)) is not None
    assert introduced(Answerer(OTHER, NAME)) is None
    assert introduced(Answerer(SECRET, "orders-2:8080")) is None, "somebody passes on what another one proves"
    earlier = json.dumps(Answerer(SECRET, NAME).proof(fresh_nonce())).encode()
    assert proven(SECRET, NAME, fresh_nonce(), earlier) is None
    assert Answerer(SECRET, NAME).proof("x") is None


def test_two_applications_with_one_token_do_not_believe_each_other() -> None:
    """Endpoints, questions and answers of the other application are refused."""
    theirs = secret_of("the-token", "payments")
    assert introduced(Answerer(theirs, NAME)) is None
    asker = introduced(Answerer(theirs, NAME), secret=theirs)
    assert asker is not None
    shown, question = asker.question("GET", "/v1/x", b"", forwarded=True)
    assert Answerer(theirs, NAME).seal(shown, "GET", "/v1/x", forwarded=True) is not None
    assert Answerer(SECRET, NAME).seal(shown, "GET", "/v1/x", forwarded=True) is None
    ours = Seal(SECRET, question, "", fresh=True).answer(200, None, b"{}")
    assert not asker.believes(question, 200, None, b"{}", ours)
    assert asker.believes(
        question, 200, None, b"{}", Seal(theirs, question, "", fresh=True).answer(200, None, b"{}")
    )


def test_what_is_no_proof_is_none_whatever_it_is() -> None:
    """Garbage, other types, and each single character of a real one changed."""
    nonce = fresh_nonce()
    raw = json.dumps(Answerer(SECRET, NAME).proof(nonce))
    for garbage in (b"", b"[]", b"{}", b"7", b'{"life":7,"time":1,"proof":""}', b"[" * 100_000, b"\xff"):
        assert proven(SECRET, NAME, nonce, garbage) is None
    for at, each in enumerate(raw):
        changed = raw[:at] + ("1" if each != "1" else "2") + raw[at + 1 :]
        assert proven(SECRET, NAME, nonce, changed.encode()) is None, changed


def test_a_question_is_taken_as_it_was_proved_and_once() -> None:
    """Method, target, body, the mark of one that is passed on; by this server, in this life of it."""
    server = Answerer(SECRET, NAME)
    asker = introduced(server)
    assert asker is not None
    shown, mac = asker.question("POST", "/v1/x?a=b", b"body", forwarded=True)
    for method, target, forwarded in (
        ("GET", "/v1/x?a=b", True),
        ("POST", "/v1/x?a=c", True),
        ("POST", "/v1/x?a=b", False),
    ):
        assert server.seal(shown, method, target, forwarded=forwarded) is None
    assert Answerer(OTHER, NAME).seal(shown, "POST", "/v1/x?a=b", forwarded=True) is None
    assert Answerer(SECRET, "orders-2:8080").seal(shown, "POST", "/v1/x?a=b", forwarded=True) is None
    restarted = Answerer(SECRET, NAME).seal(shown, "POST", "/v1/x?a=b", forwarded=True)
    assert restarted is not None
    assert not restarted.fresh
    seal = server.seal(shown, "POST", "/v1/x?a=b", forwarded=True)
    assert seal is not None
    assert seal.fresh
    assert seal.mac == mac
    assert (seal.is_of(b"body"), seal.is_of(b"other")) == (True, False)
    again = server.seal(shown, "POST", "/v1/x?a=b", forwarded=True)
    assert again is not None
    assert not again.fresh


def test_an_answer_is_believed_as_it_was_proved_to_its_own_question() -> None:
    """Status, Retry-After, body: nothing can be changed, nothing kept for another question."""
    server = Answerer(SECRET, NAME)
    asker = introduced(server)
    assert asker is not None
    shown, mac = asker.question("GET", "/v1/x", b"", forwarded=True)
    seal = server.seal(shown, "GET", "/v1/x", forwarded=True)
    assert seal is not None
    signature = seal.answer(503, "1", b"{}")
    assert asker.believes(mac, 503, "1", b"{}", signature)
    _, other = asker.question("GET", "/v1/x", b"", forwarded=True)
    for question, status, retry, body, signed in (
        (mac, 200, "1", b"{}", signature),
        (mac, 503, None, b"{}", signature),
        (mac, 503, "1", b"{ }", signature),
        (other, 503, "1", b"{}", signature),
        (mac, 503, "1", b"{}", None),
        (mac, 503, "1", b"{}", ""),
        (mac, 503, "1", b"{}", "\xff" * 64),
    ):
        assert not asker.believes(question, status, retry, body, signed)


def test_a_question_is_good_for_a_while_by_the_servers_clock() -> None:
    """The client's clock may be wrong. A question that is too old, or from the future, is stale."""
    now = [5_000]
    server = Answerer(SECRET, NAME, lambda: now[0])
    asker = introduced(server)
    assert asker is not None
    began = 0 - asker.ahead_ms
    for late_ms, fresh in ((0, True), (WINDOW_MS - 1, True), (WINDOW_MS + 2_000, False)):
        shown, _ = asker.question("GET", "/", b"", forwarded=True, now_ms=began + WINDOW_MS)
        now[0] = 5_000 + late_ms
        seal = server.seal(shown, "GET", "/", forwarded=True)
        assert seal is not None
        assert seal.fresh is fresh
        now[0] = 5_000
    shown, _ = asker.question("GET", "/", b"", forwarded=True, now_ms=began + 3 * WINDOW_MS)
    seal = server.seal(shown, "GET", "/", forwarded=True)
    assert seal is not None
    assert not seal.fresh


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_taken_twice_and_the_memory_is_bounded(seed: int) -> None:
    """Random times, more of them than are remembered, each tried again at random."""
    chance = random.Random(seed)
    guard = ReplayGuard(window_ms=100, most=50)
    taken: set[str] = set()
    asked: list[tuple[int, str]] = []
    now = 0
    for number in range(3_000):
        now += chance.choice([0, 0, 1, 5])
        at, nonce = (
            chance.choice(asked[-200:])
            if asked and chance.random() < 0.3
            else (now + chance.randrange(-120, 20), str(number))
        )
        asked.append((at, nonce))
        if guard.is_first(at, nonce, now):
            assert nonce not in taken
            taken.add(nonce)
        assert len(guard) <= 50
    assert len(taken) > 300


def test_a_busy_server_takes_new_questions() -> None:
    """Forgetting the oldest shuts out only what is as old."""
    guard = ReplayGuard()
    assert all(guard.is_first(1_000 + number, str(number), 1_000 + number) for number in range(2_000))
    small = ReplayGuard(most=10)
    assert all(small.is_first(1_000 + number, str(number), 1_000 + number) for number in range(500))
    assert not small.is_first(1_010, "10", 1_500)
    assert MOST_REMEMBERED >= 10_000


def test_a_token_is_not_what_is_proved_with() -> None:
    """The key is derived by something slow, so that a proof is no quick way to try tokens."""
    assert secret_of("the-token", "orders") == SECRET
    assert SECRET != OTHER
    assert b"the-token" not in SECRET


def test_the_key_is_not_shown() -> None:
    """The objects that have it do not print it."""
    shown = Proven(SECRET, "a:1", "life", 0), Seal(SECRET, "mac", "body", fresh=True)
    assert not any("secret" in repr(each) or repr(SECRET) in repr(each) for each in shown)
