"""Endpoints that strangers announce: they hear no token and no key, and nothing that they say is believed."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import pytest
from server_world import APPLICATION, Answered, Application, application, call, key_in
from traps import FORGED, Passing, Trap, trap

from millstream.errors import StreamsException
from millstream.query.metadata import HostInfo
from millstream.query.provider import PartRole
from millstream.remote.http_wire import Deadline, Unproven, Wire, base_of
from millstream.remote.proof import PROOF_PATH, fresh_nonce, proven, secret_of
from millstream.server import Limits, QueryServer, RemoteStore
from millstream.server.application import QueryApplication

TOKEN = "s3cret-token-of-all"


def filled() -> Application:
    world = application([0, 1], [2, 3])
    for number in range(40):
        world.put(f"key-{number}", number)
        world.put_window(f"key-{number}", 1000, number)
    return world


def questions(server: QueryServer) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every kind of question about what is not on the first client."""
    key = key_in(2)
    targets = [
        ("GET", f"/v1/stores/counts/keys/{key}", None),
        ("GET", f"/v1/stores/counts/keys/{key}?stale=true", None),
        ("GET", f"/v1/stores/windows/windows/{key}", None),
        ("GET", "/v1/stores/counts/entries", None),
        ("GET", "/v1/stores/counts/count", None),
        ("GET", f"/v1/stores/table/keys/{key}", None),
        ("POST", "/v1/stores/counts/keys", json.dumps({"keys": [key, key_in(0)]})),
    ]
    for method, target, body in targets:
        connection = HTTPConnection(*server.address, timeout=20)
        headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        yield response.status, json.loads(response.read())
        connection.close()


@contextmanager
def asking(world: Application, others: HostInfo, **options: Any) -> Iterator[QueryServer]:
    """The first client's server; the group says that the second one is at `others`."""
    with QueryServer(world.clients[0], token=TOKEN, **options) as server:
        world.agree({0: server.address, 1: others})
        yield server


def held_nothing(made: Trap) -> None:
    assert TOKEN not in made.all_heard
    assert "key-" not in made.all_heard
    assert "authorization" not in made.all_heard.lower()
    assert all(line.split()[1].startswith(PROOF_PATH) for line in made.heard), made.heard


def test_an_endpoint_that_cannot_prove_itself_hears_no_token_and_no_key(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever is asked; its answers are refused with 502 (never 200), and the log says so once."""
    world = filled()
    with trap() as made, asking(world, made.address) as server:
        for status, body in questions(server):
            assert (status, body["error"]) == (502, "BadGateway"), body
            assert "does not prove" in body["message"]
        assert made.heard
        held_nothing(made)
        with RemoteStore(server.url, "counts", token=TOKEN) as counts:
            assert counts.get(key_in(0)) is not None, "what is here is answered"
            with pytest.raises(StreamsException, match="502"):
                counts.get(key_in(2))
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(told) == 1
    assert "is neither queried nor trusted" in told[0].getMessage()
    assert TOKEN not in caplog.text


def test_a_standby_answers_where_the_active_one_is_not_believed() -> None:
    """The reads tolerate stale values, of one key or many."""
    world = application([0, 1], [2, 3], [])
    for number in range(40):
        world.put(f"key-{number}", number)
    for partition in (2, 3):
        world.clients[2].stores["counts", partition] = world.clients[1].stores["counts", partition]
        world.clients[2].roles["counts", partition] = PartRole.STANDBY
    world.clients[2].publish()
    key = key_in(2)
    with (
        trap() as made,
        QueryServer(world.clients[0], token=TOKEN) as server,
        QueryServer(world.clients[2], token=TOKEN) as standby,
    ):
        world.agree({0: server.address, 1: made.address, 2: standby.address}, {2: (2, 3)})
        with RemoteStore(server.url, "counts", token=TOKEN, stale=True) as counts:
            assert counts.get(key) == world.put_keys[key]
            assert counts.multi_get([key, key_in(0)]) == [world.put_keys[key], world.put_keys[key_in(0)]]
            assert dict(counts.all()) == world.put_keys
        held_nothing(made)


def test_an_endpoint_that_has_a_real_client_prove_for_it_is_found_out() -> None:
    """The trap passes everything on to the real one, which proves its own name and no other."""
    world = filled()
    with QueryServer(world.clients[1], token=TOKEN) as real:
        with trap(lambda _: real.address) as made, asking(world, made.address) as server:
            assert {status for status, _ in questions(server)} == {502}
            held_nothing(made)
        # Nor does it help to send the question back to who asks.
        with asking(world, real.address) as server, trap(lambda _: server.address) as mirror:
            world.agree({0: server.address, 1: mirror.address})
            assert {status for status, _ in questions(server)} == {502}
            held_nothing(mirror)


def tampered(path: str, answer: Passing) -> Passing:
    if path.startswith(PROOF_PATH):
        return answer
    return Passing(200, answer.headers, FORGED)


def unsigned(path: str, answer: Passing) -> Passing:
    if path.startswith(PROOF_PATH):
        return answer
    return Passing(answer.status, {}, answer.body)


@pytest.mark.parametrize("changes", [tampered, unsigned])
def test_an_answer_that_is_changed_on_its_way_is_not_believed(
    changes: Callable[[str, Passing], Passing],
) -> None:
    """Somebody on the network between two clients: they read, and can change nothing unseen."""
    world = filled()
    places: list[HostInfo] = []
    with trap(lambda _: places[0], changes) as between:
        real = QueryServer(world.clients[1], token=TOKEN, host=between.address)
        with real, asking(world, between.address) as server:
            places.append(real.address)
            assert {status for status, _ in questions(server)} == {502}
    assert TOKEN not in between.all_heard


def test_a_question_that_is_sent_again_is_refused() -> None:
    """What somebody has overheard is no key to anything; nor is it with another path or body."""
    world = filled()
    places: list[HostInfo] = []
    with trap(lambda _: places[0]) as between:
        real = QueryServer(world.clients[1], token=TOKEN, host=between.address)
        with real, asking(world, between.address) as server:
            places.append(real.address)
            statuses = [status for status, _ in questions(server)]
            assert statuses[0] == 200
            heard = [each for each in between.heard if "Millstream-Proof" in each]
            assert heard
            for each in heard:
                head, _, body = each.partition("\n\n")
                method, target, _ = head.splitlines()[0].split()
                lines = (line.partition(": ")[::2] for line in head.splitlines()[1:])
                headers = {name: value for name, value in lines if name}
                for asked, sent in ((target, body), (target.replace("counts", "prices"), body)):
                    connection = HTTPConnection(*real.address, timeout=10)
                    connection.request(method, asked, sent.strip() or None, headers)
                    answer = connection.getresponse()
                    assert answer.status == 401, (asked, answer.read())
                    connection.close()


def test_only_endpoints_that_are_named_are_asked() -> None:
    """`query.server.peers`: nobody else hears as much as a connection."""
    world = filled()
    with (
        trap() as made,
        QueryServer(world.clients[1], token=TOKEN) as real,
        asking(world, made.address, peers=[f"127.0.0.1:{real.address.port}"]) as server,
    ):
        for status, body in questions(server):
            assert status == 502
            assert "'query.server.peers' does not include it" in body["message"]
        assert made.heard == []
        world.agree({0: server.address, 1: real.address})
        assert [status for status, _ in questions(server)][:5] == [200] * 5


def test_without_a_token_only_this_machine_is_asked() -> None:
    """There is nothing that could be proved; unless peers are named."""
    world = filled()
    with QueryServer(world.clients[0]) as server:
        world.agree({0: server.address, 1: HostInfo("orders-2.invalid", 8080)})
        connection = HTTPConnection(*server.address, timeout=20)
        connection.request("GET", f"/v1/stores/counts/keys/{key_in(2)}")
        response = connection.getresponse()
        body = json.loads(response.read())
        connection.close()
    assert (response.status, body["error"]) == (502, "BadGateway")
    assert "without a token" in body["message"]


def test_remote_store_does_not_show_its_token_to_a_client_that_is_only_named() -> None:
    """It follows a 421 to who proves the token, and to nobody else."""
    world = filled()
    misdirected = {"error": "StateStoreMigratedException", "message": "gone", "retriable": False}
    with QueryServer(world.clients[1], token=TOKEN) as real, trap() as made:
        for host, follows in ((real.address, True), (made.address, False)):
            said = json.dumps({**misdirected, "host": str(host), "application_id": APPLICATION}).encode()
            described = json.dumps(
                {"kind": "key-value", "key_serde": "string", "value_serde": "long", "partitions": 4}
            ).encode()

            def says(path: str, _: Passing, said: bytes = said, described: bytes = described) -> Passing:
                return Passing(421, {}, said) if "/keys/" in path else Passing(200, {}, described)

            with (
                trap(lambda _: real.address, says) as named,
                RemoteStore(f"http://{named.address}", "counts", token=TOKEN) as counts,
            ):
                if follows:
                    assert counts.get(key_in(2)) == world.put_keys[key_in(2)]
                else:
                    with pytest.raises(StreamsException, match="does not prove that it knows the token"):
                        counts.get(key_in(2))
        held_nothing(made)


def test_the_client_of_another_application_with_the_same_token_is_not_believed() -> None:
    """Neither what it answers to clients of this one, or to a RemoteStore, nor what it asks them."""
    world, other = filled(), filled()
    other.clients[1].application_id = "payments"
    target = f"/v1/stores/counts/keys/{key_in(2)}"
    with QueryServer(other.clients[1], token=TOKEN) as theirs:
        with asking(world, theirs.address) as server:
            assert {status for status, _ in questions(server)} == {502}
        with QueryServer(world.clients[1], token=TOKEN) as ours:
            wire = Wire(base_of(ours.url), secret=secret_of(TOKEN, "payments"), name=str(ours.address))
            with pytest.raises(Unproven, match="does not prove that it knows the token"):
                wire.ask("GET", target, deadline=Deadline(10), forwarded=True)
            wire.close()


def test_an_endpoint_that_never_answers_keeps_nobody_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given a moment to prove itself, and is then left alone for a while."""
    monkeypatch.setattr("millstream.remote.http_wire._PROOF_S", 0.2)
    world = filled()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = HostInfo("127.0.0.1", silent.getsockname()[1])
        with asking(world, address, limits=Limits(forwarders=1, deadline_s=5)) as server:
            for _ in range(5):
                assert {status for status, _ in questions(server)} == {503}
            silent.setblocking(False)
            tried = 0
            while True:
                try:
                    silent.accept()[0].close()
                except BlockingIOError:
                    break
                tried += 1
            assert 1 <= tried <= 6


def test_a_proof_that_has_grown_old_is_made_anew() -> None:
    """The asker's machine was asleep, or the server has started anew: whoever asks does not notice."""
    world = filled()
    with QueryServer(world.clients[1], token=TOKEN) as real:
        wire = Wire(base_of(real.url), secret=secret_of(TOKEN, APPLICATION), name=str(real.address))
        target = f"/v1/stores/counts/keys/{key_in(2)}"
        for changes in ({"ahead_ms": -(10**6)}, {"life": "ab" * 32}):
            assert wire.ask("GET", target, deadline=Deadline(10), forwarded=True).status == 200
            (line,) = wire._idle
            assert line.proven is not None
            line.proven = replace(line.proven, **changes)
            assert wire.ask("GET", target, deadline=Deadline(10), forwarded=True).status == 200
        wire.close()


def test_clients_that_are_mounted_below_a_path_prove_what_is_below_it() -> None:
    """The prefix is each side's own affair."""
    world = filled()
    made = QueryApplication(world.clients[1], TOKEN, host=HostInfo("orders-2", 80))

    async def asked(target: str, **headers: str) -> Answered:
        given = [(name.encode(), value.encode()) for name, value in headers.items()]
        return await call(made, "GET", f"/streams{target}".encode(), given, root_path="/streams")

    nonce = fresh_nonce()
    proof = asyncio.run(asked(f"{PROOF_PATH}?nonce={nonce}"))
    known = proven(secret_of(TOKEN, APPLICATION), "orders-2:80", nonce, proof.raw)
    assert known is not None
    target = f"/v1/stores/counts/keys/{key_in(2)}?local=true"
    shown, question = known.question("GET", target, b"", forwarded=False)
    answer = asyncio.run(asked(target, authorization=shown))
    made.close()
    assert answer.body["value"] == world.put_keys[key_in(2)]
    assert known.believes(question, 200, None, answer.raw, answer.headers["millstream-proof"])
