"""`ports.Membership`: the fake group and Kafka's group protocol keep one contract."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from fake_group import FakeGroup
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.errors import IllegalStateException, StreamsException
from millstream.model import TopicPartition
from millstream.ports import GroupMember, Membership

TOPIC = "lines"


class Client:
    """A member that says a number; every assignment holds what all have said, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said = 0
        self.ticks = 0
        self.told: list[tuple[str, object]] = []
        self.threads: set[str] = set()
        self.ask_again: Callable[[], None] | None = None
        self.inside = 0
        self.most_inside = 0

    def user_data(self) -> bytes:
        return json.dumps({self.name: self.said}).encode()

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        said: dict[str, int] = {}
        for data in members.values():
            said |= json.loads(data)
        return dict.fromkeys(members, json.dumps(said).encode())

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return ()

    def assigned(self, assignment: bytes, generation: int) -> None:
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.threads.add(threading.current_thread().name)
        self.told.append(("assigned", (json.loads(assignment), generation)))
        if self.ask_again is not None:
            self.ask_again()
        self.inside -= 1

    def lost(self, reason: str) -> None:
        self.told.append(("lost", reason))

    def failed(self, error: StreamsException) -> None:
        self.told.append(("failed", error))

    def tick(self) -> None:
        self.ticks += 1

    @property
    def last(self) -> object:
        """What all have said, by the latest assignment."""
        kind, what = self.told[-1] if self.told else ("", None)
        return what[0] if kind == "assigned" and isinstance(what, tuple) else None


@dataclass
class Group:
    """Makes memberships of one group."""

    join: Callable[[GroupMember], Membership]
    made: list[Membership] = field(default_factory=list)

    def started(self, *names: str) -> list[tuple[Client, Membership]]:
        """Members that have agreed with each other."""
        pairs = [self.new(name) for name in names]
        for _, membership in pairs:
            membership.start()
        agreed(*(client for client, _ in pairs))
        return pairs

    def new(self, name: str) -> tuple[Client, Membership]:
        client = Client(name)
        self.made.append(self.join(client))
        return client, self.made[-1]


def agreed(*clients: Client) -> None:
    """Wait until each was told what all of them say, and nobody else."""
    wanted = {client.name: client.said for client in clients}
    for client in clients:
        wait_until(lambda client=client: client.last == wanted, f"{client.name} knows {wanted}", 30)  # type: ignore[misc]


def fake() -> Iterator[Group]:
    group = FakeGroup()
    yield Group(group.join)
    group.close()


def real(kafka: EmbeddedKafka) -> Iterator[Group]:
    from millstream.config import StreamsConfig
    from millstream.kafka.membership import KafkaMembership

    name = f"contract-{uuid.uuid4().hex[:10]}"
    config = StreamsConfig({"application.id": name, "bootstrap.servers": kafka.bootstrap_servers})
    if TOPIC not in kafka.topics():
        kafka.create_topic(TOPIC, 1)

    def join(member: GroupMember) -> Membership:
        return KafkaMembership(config, member, [TOPIC], client_id=f"{name}-{uuid.uuid4().hex[:6]}")

    group = Group(join)
    yield group
    for membership in group.made:
        membership.close(5)


@pytest.fixture(params=["fake", pytest.param("kafka", marks=pytest.mark.kafka)])
def group(request: pytest.FixtureRequest) -> Iterator[Group]:
    yield from fake() if request.param == "fake" else real(request.getfixturevalue("kafka"))


def test_everyone_is_told_what_everyone_says_in_one_generation(group: Group) -> None:
    """A change by one member reaches all members in a later generation."""
    (one, its), (two, _), (three, _) = group.started("one", "two", "three")
    before = {client.told[-1][1][1] for client in (one, two, three)}  # type: ignore[index]
    assert len(before) == 1
    one.said = 7
    its.rejoin("news")
    assert its.wait_for_assignment(20)
    agreed(one, two, three)
    after = {client.told[-1][1][1] for client in (one, two, three)}  # type: ignore[index]
    assert len(after) == 1
    assert after > before or min(after) > max(before)


def test_a_client_is_told_one_thing_at_a_time_on_one_thread(group: Group) -> None:
    """It is another thread than that of the caller, so a callback may call rejoin(), and the call has its
    effect."""
    (client, membership), (other, _) = group.started("one", "two")

    def ask_again() -> None:
        if client.said < 4:
            client.said += 1
            membership.rejoin("in a callback")

    client.ask_again = ask_again
    client.said = 1
    membership.rejoin("from outside")
    wait_until(lambda: client.said == 4, "it has asked four times", 30)
    agreed(client, other)
    assert client.most_inside == 1
    assert len(client.threads) == 1
    assert threading.current_thread().name not in client.threads
    assert {kind for kind, _ in client.told} == {"assigned"}


def test_no_rejoin_is_lost(group: Group) -> None:
    """Of many rejoins by several threads while another one is under way, the last one has its effect."""
    pairs = group.started("one", "two")

    def nag(client: Client, membership: Membership) -> None:
        for _ in range(20):
            client.said += 1
            membership.rejoin("again")

    naggers = [threading.Thread(target=nag, args=pair, daemon=True) for pair in pairs]
    for nagger in naggers:
        nagger.start()
    for nagger in naggers:
        nagger.join(20)
    for _, membership in pairs:
        assert membership.wait_for_assignment(20)
    agreed(*(client for client, _ in pairs))


def test_whoever_closes_leaves_and_is_told_nothing_more(group: Group) -> None:
    """The others agree without it, soon; closing again does nothing, and neither does asking."""
    (one, its), (two, _) = group.started("one", "two")
    its.close(10)
    its.close(10)
    agreed(two)
    told = len(one.told)
    its.rejoin("in vain")
    assert not its.wait_for_assignment(0.2)
    assert len(one.told) == told
    with pytest.raises(IllegalStateException):
        its.start()


def test_a_client_hears_of_time_that_passes(group: Group) -> None:
    """About once a second, on the thread that tells it everything."""
    [(client, _)] = group.started("one")
    wait_until(lambda: client.ticks > 0, "it is told", 30)


def test_one_that_never_started_is_closed(group: Group) -> None:
    """The client's callbacks are not called."""
    client, membership = group.new("never")
    membership.close(5)
    assert client.told == []


def test_a_membership_is_started_once(group: Group) -> None:
    """The next one needs an object of its own."""
    [(_, membership)] = group.started("one")
    with pytest.raises(IllegalStateException):
        membership.start()
