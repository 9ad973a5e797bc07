"""`ports.Membership` on a real broker: joining, agreeing, losing, and coming back."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from group_child import Client
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from waiting import holds_for, wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateException, TaskAssignmentException
from millstream.kafka.coordinator import PROTOCOL
from millstream.kafka.membership import KafkaMembership, Standing

CHILD = Path(__file__).parent / "group_child.py"
SESSION_S = 1.0
SETTINGS = {"group.min.session.timeout.ms": "500", "auto.create.topics.enable": "true"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedKafka]:
    """One that creates topics when asked for them, and lets sessions be short."""
    with EmbeddedKafka(settings=SETTINGS) as started:
        yield started


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:10]}"


def membership(
    broker: EmbeddedKafka, group: str, client: Client, topics: Iterable[str] = ("lines",), **more: object
) -> KafkaMembership:
    options = {
        "application.id": group,
        "bootstrap.servers": broker.bootstrap_servers,
        "consumer.session.timeout.ms": int(SESSION_S * 1000),
        "consumer.heartbeat.interval.ms": 100,
    }
    tag = str(more.pop("process_tag", ""))
    return KafkaMembership(
        StreamsConfig({**options, **more}),
        client,
        list(topics),
        client_id=f"{group}-{client.name}",
        process_tag=tag,
    )


@contextmanager
def joined(
    broker: EmbeddedKafka, group: str, *names: str, topics: Mapping[str, int] | None = None, **more: object
) -> Iterator[list[tuple[Client, KafkaMembership]]]:
    """Members that have agreed with each other."""
    clients = [Client(name, topics) for name in names]
    pairs = [(client, membership(broker, group, client, topics or ("lines",), **more)) for client in clients]
    try:
        for _, one in pairs:
            one.start()
        for client in clients:
            wait_until(lambda client=client: client.knows(*clients), f"{client.name} knows all", 20)  # type: ignore[misc]
        yield pairs
    finally:
        for _, one in pairs:
            one.close(5)


def names_of_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.mark.kafka
def test_user_data_reaches_the_leader_and_assignments_reach_everyone(
    broker: EmbeddedKafka, group: str
) -> None:
    """Three members; what the leader decided for each arrives there, with one generation for all."""
    broker.create_topic(topic := f"t-{group}", 4)
    with joined(broker, group, "a", "b", "c", topics={topic: 4}) as pairs:
        wait_until(lambda: len({client.last["generation"] for client, _ in pairs}) == 1, "one generation")
        parts = [tuple(part) for client, _ in pairs for part in client.last["parts"]]  # type: ignore[attr-defined]
        assert sorted(parts) == [(topic, number) for number in range(4)]
        for client, _ in pairs:
            assert client.threads == {f"{group}-{client.name}-GroupThread"}
            assert client.count("lost") == client.count("failed") == 0
    assert not [name for name in names_of_threads() if group in name]


@pytest.mark.kafka
def test_a_rejoin_from_a_follower_tells_everyone(broker: EmbeddedKafka, group: str) -> None:
    """KIP-671's code, by the shortest way. Prints how long it takes until the last one is assigned."""
    times = []
    with joined(broker, group, "a", "b", "c") as pairs:
        clients = [client for client, _ in pairs]
        follower, its = next((client, one) for client, one in pairs if not client.seen_by_leader)
        for _ in range(30):
            follower.nonce += 1
            follower.code = follower.nonce
            began = time.monotonic()
            its.rejoin("a test")
            assert its.wait_for_assignment(10)
            for client in clients:
                wait_until(lambda client=client: client.knows(*clients), "told", 10)  # type: ignore[misc]
            assert {client.last["code"] for client in clients} == {follower.code}
            times.append(max(client.told[-1][1] for client in clients) - began)
        assert sum(client.count("lost") for client in clients) == 0
    times.sort()
    print(f"rejoin to all assigned: p50 {times[15] * 1000:.0f} ms, max {times[-1] * 1000:.0f} ms")
    assert times[15] < 1.0


@pytest.mark.kafka
def test_a_rejoin_during_a_rejoin_is_not_lost(broker: EmbeddedKafka, group: str) -> None:
    """Asked for at random moments from several threads, the last word always arrives."""
    with joined(broker, group, "a", "b", "c") as pairs:
        clients = [client for client, _ in pairs]

        chance = random.Random(7)

        def nag(client: Client, one: KafkaMembership) -> None:
            for _ in range(40):
                client.nonce += 1
                one.rejoin("again")
                if chance.random() < 0.3:
                    assert one.wait_for_assignment(10)  # else the next word comes while this one is under way

        naggers = [threading.Thread(target=nag, args=pair, daemon=True) for pair in pairs]
        for nagger in naggers:
            nagger.start()
        for nagger in naggers:
            nagger.join(30)
        for _, one in pairs:
            assert one.wait_for_assignment(10)
        for client in clients:
            wait_until(lambda client=client: client.knows(*clients), "the last word", 10)  # type: ignore[misc]


@pytest.mark.kafka
def test_a_slow_callback_delays_nobody_else(broker: EmbeddedKafka, group: str) -> None:
    """While one client is busy with an assignment, the others can agree anew, with it."""
    with joined(broker, group, "a", "b") as pairs:
        (slow, its), (other, others) = pairs
        slow.hold.clear()
        slow.nonce += 1
        its.rejoin("to be slow")
        wait_until(
            lambda: other.knows(slow, other) and slow.knows(slow, other), "the slow one is in its callback"
        )
        other.nonce += 1
        others.rejoin("meanwhile")
        wait_until(lambda: other.knows(slow, other), "agreed without waiting", 5)
        assert not slow.knows(slow, other)
        slow.hold.set()
        wait_until(lambda: slow.knows(slow, other), "the slow one hears of it afterwards", 5)
        assert slow.count("lost") == 0


@pytest.mark.kafka
def test_leaving_has_the_others_rebalance_at_once(broker: EmbeddedKafka, group: str) -> None:
    """They do not wait for the session timeout. A second close() has no effect, and a closed member cannot
    start."""
    with joined(broker, group, "a", "b", **{"consumer.session.timeout.ms": 30_000}) as pairs:
        (a, a_member), (b, _) = pairs
        began = time.monotonic()
        a_member.close(5)
        wait_until(lambda: b.knows(b), "b is alone", 5)
        assert time.monotonic() - began < 3
        a_member.close(5)
        assert a.count("lost") == 0
        with pytest.raises(IllegalStateException, match="create a new one"):
            a_member.start()
        assert not a_member.wait_for_assignment(0) or a.told


@pytest.mark.kafka
def test_kafkas_tools_show_who_has_which_partition(broker: EmbeddedKafka, group: str) -> None:
    """Although nobody fetches anything in the group: tasks have consumers of their own."""
    broker.create_topic(topic := f"t-{group}", 2)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    try:
        with joined(broker, group, "a", "b", topics={topic: 2}):
            shown = admin.describe_groups([group])[group]
            assert shown["protocol_data"] == PROTOCOL
            owners = {
                (part["topic"], number): member["client_id"]
                for member in shown["members"]
                for part in member["member_assignment"]["assigned_partitions"]
                for number in part["partitions"]
            }
            assert owners == {(topic, 0): f"{group}-a", (topic, 1): f"{group}-b"}
    finally:
        admin.close()


@pytest.mark.kafka
def test_a_deleted_topic_stays_away(broker: EmbeddedKafka, group: str) -> None:
    """The broker creates topics that are requested. The missing topic is no reason to leave the group."""
    broker.create_topic(topic := f"t-{group}", 2)
    with joined(broker, group, "a", "b", topics={topic: 2}, **{"metadata.max.age.ms": 200}) as pairs:
        clients = [client for client, _ in pairs]
        broker.delete_topic(topic)
        wait_until(lambda: topic not in broker.topics(), "deleted", 20)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            clients[1].nonce += 1
            pairs[1][1].rejoin("the topic is still assigned")
            assert pairs[1][1].wait_for_assignment(5)
            assert topic not in broker.topics()
        assert sum(client.count("lost") + client.count("failed") for client in clients) == 0


@pytest.mark.kafka
@pytest.mark.parametrize("ours_first", [False, True])
def test_another_protocol_in_the_group_is_refused(
    broker: EmbeddedKafka, group: str, ours_first: bool
) -> None:
    """Whoever comes second: we with a text that says so; a plain consumer with its own error."""
    broker.create_topic(topic := f"t-{group}", 1)

    def plain() -> KafkaConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest"
        )
        # What the broker does not tell of yet is assigned to nobody, and looked for again minutes later.
        wait_until(lambda: consumer.partitions_for_topic(topic), "the topic is known", 20)
        consumer.subscribe([topic])
        return consumer

    client = Client("a")
    ours = membership(broker, group, client)
    try:
        if ours_first:
            ours.start()
            wait_until(lambda: client.knows(client), "ours is in", 20)
            other = plain()
            with pytest.raises(Exception, match=r"(?i)inconsistent|protocol"):
                wait_until(lambda: other.poll(200) or other.assignment(), "refused", 10)
            other.close(autocommit=False)
            assert client.count("failed") == 0
            return
        other = plain()
        wait_until(lambda: other.poll(100) or other.assignment(), "the other is in", 20)
        ours.start()
        wait_until(lambda: client.count("failed"), "refused", 10)
        error = client.told[-1][2]
        assert isinstance(error, TaskAssignmentException)
        assert "INCONSISTENT_GROUP_PROTOCOL" in str(error)
        assert group in str(error)
        assert not ours.wait_for_assignment(5)
        other.close(autocommit=False)
    finally:
        ours.close(5)


@pytest.mark.kafka
def test_a_session_timeout_that_the_broker_does_not_take(kafka: EmbeddedKafka, group: str) -> None:
    """The message names the key and the broker's limits; the thread ends."""
    client = Client("a")
    ours = membership(kafka, group, client, **{"main.consumer.session.timeout.ms": 7_200_000})
    ours.start()
    wait_until(lambda: client.count("failed"), "refused", 20)
    assert "session.timeout.ms 7200000" in str(client.told[-1][2])
    wait_until(lambda: f"{group}-a-GroupThread" not in names_of_threads(), "the thread has ended", 5)
    ours.close(5)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that hangs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.kafka
def test_a_broker_that_hangs(broker: EmbeddedKafka, group: str, caplog: pytest.LogCaptureFixture) -> None:
    """Lost after the session timeout by the client's own clock, once; assigned again when it is back."""
    caplog.set_level(logging.INFO)
    with joined(broker, group, "a", "b") as pairs:
        clients = [client for client, _ in pairs]
        began = time.monotonic()
        with stopped(broker.pid):
            wait_until(lambda: all(client.count("lost") for client in clients), "lost", 10)
            holds_for(
                2 * SESSION_S, lambda: all(client.count("lost") == 1 for client in clients), "lost once"
            )
        back = time.monotonic()
        for client in clients:
            assert client.count("lost") == 1
            lost_at = next(when for kind, when, _ in client.told if kind == "lost")
            assert lost_at - began < SESSION_S + 0.5
            wait_until(lambda client=client: client.knows(*clients), "together again", 20)  # type: ignore[misc]
        print(f"broker back to all assigned: {max(client.told[-1][1] for client in clients) - back:.2f} s")
        holds_for(SESSION_S, lambda: all(client.count("lost") == 1 for client in clients), "lost once")
    noise = [record for record in caplog.records if record.name.startswith("kafka.")]
    assert not [record.getMessage() for record in noise if group in str(record.threadName)]


@pytest.mark.kafka
def test_a_broker_that_restarts(tmp_path: object, group: str, caplog: pytest.LogCaptureFixture) -> None:
    """Connections refused end nothing, and are not logged again and again."""
    caplog.set_level(logging.INFO)
    with EmbeddedKafka(str(tmp_path), settings=SETTINGS) as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        client = Client("a")
        ours = membership(first, group, client)
        ours.start()
        wait_until(lambda: client.knows(client), "in", 20)
    try:
        wait_until(lambda: client.count("lost"), "lost", 10)
        holds_for(2, lambda: client.count("lost") == 1 and not client.count("failed"), "lost, and no more")
        with EmbeddedKafka(str(tmp_path), port=port, settings=SETTINGS):
            up = time.monotonic()
            wait_until(lambda: client.knows(client), "in again", 30)
            print(f"broker up to assigned: {client.told[-1][1] - up:.2f} s")
            assert client.count("lost") == 1
            assert client.count("failed") == 0
            ours.close(5)
    finally:
        ours.close(1)
    loud = [
        r
        for r in caplog.records
        if r.levelno >= logging.WARNING and r.name.startswith(("kafka", "millstream"))
    ]
    assert len(loud) <= 4, [record.getMessage() for record in loud]


@pytest.mark.kafka
def test_no_broker_at_all(broker: EmbeddedKafka, group: str) -> None:
    """Nothing raises, nothing fails, closing is quick."""
    client = Client("a")
    ours = membership(broker, group, client, **{"bootstrap.servers": "127.0.0.1:1"})
    ours.start()
    assert not ours.wait_for_assignment(0.5)
    assert client.told == []
    began = time.monotonic()
    ours.close(3)
    assert time.monotonic() - began < 3.5
    assert not [name for name in names_of_threads() if group in name]


class Child:
    """`group_child.py`, and what it has said."""

    def __init__(self, broker: EmbeddedKafka, group: str, name: str, session_s: float, tag: str = "") -> None:
        options = {
            "application.id": group,
            "bootstrap.servers": broker.bootstrap_servers,
            "consumer.session.timeout.ms": int(session_s * 1000),
        }
        self.name, self.nonce = name, 0
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), json.dumps(options), name, tag],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, name=f"reads-{name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.said.append(json.loads(line))

    def knows(self, *names: str) -> bool:
        return bool(self.said) and set(self.said[-1]["detail"]["nonces"]) == set(names)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
        self._reader.join(5)
        if self.process.stdout is not None:
            self.process.stdout.close()


def session(session_s: float) -> dict[str, object]:
    return {"consumer.session.timeout.ms": int(session_s * 1000)}


@pytest.mark.cluster
@pytest.mark.parametrize("session_s", [1.0, 6.0])
def test_a_killed_member_is_replaced_after_the_session_timeout(
    broker: EmbeddedKafka, group: str, session_s: float
) -> None:
    """Prints how long that takes."""
    child = Child(broker, group, "k", session_s)
    ours = Client("a")
    member = membership(broker, group, ours, **session(session_s))
    try:
        member.start()
        wait_until(lambda: set(ours.last.get("nonces", ())) == {"a", "k"}, "both are in", 30)  # type: ignore[call-overload]
        killed = time.monotonic()
        child.kill()
        wait_until(lambda: ours.knows(ours), "ours is alone", 20)
        took = ours.told[-1][1] - killed
        print(f"kill -9 to assigned, session {session_s:g} s: {took:.2f} s")
        assert took < session_s + 2
        assert ours.count("lost") == 0
    finally:
        member.close(5)
        child.close()


@pytest.mark.cluster
def test_what_a_killed_process_left_behind_holds_up_nobody(broker: EmbeddedKafka, group: str) -> None:
    """Started again with the same state directory, it removes its own old member: no session has to end."""
    with joined(broker, group, "a", **session(30)) as [(ours, _)]:
        child = Child(broker, group, "k", 30, tag="one-directory")
        wait_until(lambda: child.said and child.knows("a", "k"), "both are in", 30)
        child.kill()
        again = Child(broker, group, "k", 30, tag="one-directory")
        try:
            began = time.monotonic()
            wait_until(lambda: again.said and again.knows("a", "k"), "both are in again", 25)
            took = again.said[-1]["at"] - began
            print(f"kill -9 and start to assigned, session 30 s: {took:.2f} s, with Python's start")
            assert ours.count("lost") == 0
        finally:
            again.close()


@pytest.mark.cluster
def test_a_stopped_process_hears_first_that_it_is_lost(broker: EmbeddedKafka, group: str) -> None:
    """The others take over after the session timeout; when it wakes, `lost` comes before anything else."""
    child = Child(broker, group, "k", SESSION_S)
    try:
        with joined(broker, group, "a", **session(5)) as [(ours, _)]:
            wait_until(lambda: child.said and child.knows("a", "k"), "both are in", 30)
            before = len(child.said)
            with stopped(child.process.pid):
                began = time.monotonic()
                wait_until(lambda: ours.knows(ours), "ours is alone", 10)
                print(f"SIGSTOP to reassigned, session {SESSION_S:g} s: {time.monotonic() - began:.2f} s")
                holds_for(1, lambda: ours.knows(ours), "ours has everything, and goes on")
            woken = time.monotonic()
            wait_until(lambda: len(child.said) > before, "it is told", 10)
            assert child.said[before]["what"] == "lost"
            assert child.said[before]["at"] - woken < 0.5
            wait_until(lambda: child.said[-1]["what"] == "assigned" and child.knows("a", "k"), "in again", 10)
            lost_s, in_s = (child.said[number]["at"] - woken for number in (before, -1))
            print(f"woken: lost after {lost_s:.3f} s, in after {in_s:.3f} s")
            assert [one["what"] for one in child.said[before:]].count("lost") == 1
    finally:
        child.close()


@pytest.mark.cluster
def test_leaving_while_a_join_waits_for_others(broker: EmbeddedKafka, group: str) -> None:
    """A join is held until all members have come; a leave behind it, on its connection, would be held too."""
    child = Child(broker, group, "k", 10)
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    ours = Client("a")
    member = membership(broker, group, ours, **session(10))

    def members() -> set[str]:
        return {str(one["client_id"]) for one in admin.describe_groups([group])[group]["members"]}

    try:
        wait_until(lambda: child.said and child.knows("k"), "the child is in", 30)
        with stopped(child.process.pid):
            member.start()
            wait_until(lambda: members() == {f"{group}-a", f"{group}-k"}, "ours waits", 5)
            began = time.monotonic()
            member.close(4)
            assert time.monotonic() - began < 3
            assert members() == {f"{group}-k"}
            assert ours.told == []
    finally:
        member.close(5)
        child.close()
        admin.close()


def test_a_process_that_was_stopped_is_lost_before_it_hears_anything() -> None:
    """Whether the clock is looked at first, or an answer comes first."""
    standing = Standing(session_timeout_s=1.0)
    assert not standing.is_silent(100.0)
    standing.join()
    assert not standing.answer(9.9, 10.0)
    assert not standing.agree()
    assert standing.is_answered
    assert not standing.is_silent(10.8)
    assert standing.is_silent(11.0)
    assert standing.answer(11.0, 11.0)
    assert standing.leave()
    assert not standing.leave()
    assert not standing.is_silent(99.0)


def test_a_rejoin_wanted_during_a_join_asks_for_another() -> None:
    """What is asked for after user data was read is not in the assignment that comes."""
    standing = Standing(session_timeout_s=1.0)
    standing.join()
    standing.want()
    assert standing.agree()
    assert not standing.is_answered
    standing.join()
    assert not standing.agree()
    assert standing.is_answered
