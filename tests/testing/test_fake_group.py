"""`FakeGroup` keeps to the contract of `ports.Membership`, at once and in order."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator, Mapping

import pytest
from fake_group import FakeGroup, FakeMembership
from waiting import wait_until

from millstream.errors import IllegalStateException, StreamsException, TaskAssignmentException
from millstream.model import TopicPartition
from millstream.ports import GroupMember, Membership


class Client:
    """Says its nonce; every assignment holds what everyone said."""

    def __init__(self) -> None:
        self.nonce = 0
        self.told: list[tuple[str, object]] = []
        self.threads: set[str] = set()
        self.membership: Membership | None = None
        self.ask_again = 0

    def user_data(self) -> bytes:
        return json.dumps(self.nonce).encode()

    def lead(self, members: Mapping[str, bytes]) -> Mapping[str, bytes]:
        said = {member: json.loads(data) for member, data in members.items()}
        return dict.fromkeys(members, json.dumps(said).encode())

    def partitions(self, assignment: bytes) -> Iterable[TopicPartition]:
        return ()

    def assigned(self, assignment: bytes, generation: int) -> None:
        self.threads.add(threading.current_thread().name)
        self.told.append(("assigned", json.loads(assignment)))
        if self.ask_again:
            self.ask_again -= 1
            self.nonce += 1
            assert self.membership is not None
            self.membership.rejoin("in a callback")
            assert len(self.threads) == 1

    def lost(self, reason: str) -> None:
        self.told.append(("lost", reason))

    def failed(self, error: StreamsException) -> None:
        self.told.append(("failed", error))

    def tick(self) -> None: ...


@pytest.fixture
def group() -> Iterator[FakeGroup]:
    made = FakeGroup()
    yield made
    made.close()
    assert not made._thread.is_alive()


def started(group: FakeGroup, count: int) -> list[tuple[Client, FakeMembership]]:
    clients: list[GroupMember] = [Client() for _ in range(count)]
    pairs = [(client, group.join(client)) for client in clients]
    for client, membership in pairs:
        assert isinstance(client, Client)
        client.membership = membership
        membership.start()
    assert group.wait_until_quiet()
    return pairs  # type: ignore[return-value]


def test_everyone_is_told_what_everyone_said(group: FakeGroup) -> None:
    """The first member leads; a later rejoin reaches all."""
    pairs = started(group, 3)
    assert group.members == ["member-1", "member-2", "member-3"]
    pairs[2][0].nonce = 7
    pairs[2][1].rejoin("news")
    assert pairs[2][1].wait_for_assignment(5)
    assert group.wait_until_quiet()
    for client, membership in pairs:
        assert client.told[-1] == ("assigned", {"member-1": 0, "member-2": 0, "member-3": 7})
        assert json.loads(group.assignments[membership.member_id])["member-3"] == 7
        assert client.threads == {"FakeGroup"}
    assert group.led_by == "member-1"
    assert pairs[2][1].reasons == ["news"]


def test_a_rejoin_in_a_callback_comes_after_it(group: FakeGroup) -> None:
    """It is never re-entrant, and never lost."""
    client = Client()
    client.ask_again = 3
    client.membership = group.join(client)
    client.membership.start()
    assert group.wait_until_quiet()
    assert [said for _, said in client.told] == [{"member-1": number} for number in range(4)]
    assert group.generation == 4


def test_nothing_is_agreed_while_the_group_is_held(group: FakeGroup) -> None:
    """The broker is away; one rebalance follows."""
    [(client, membership)] = started(group, 1)
    before = group.generation
    group.hold()
    for _ in range(5):
        client.nonce += 1
        membership.rejoin("held")
    assert not membership.wait_for_assignment(0.05)
    assert group.generation == before
    group.release()
    assert membership.wait_for_assignment(5)
    assert group.wait_until_quiet()
    assert group.generation == before + 1
    assert client.told[-1] == ("assigned", {"member-1": 5})


def test_a_member_that_is_kicked_comes_back_unless_it_may_not(group: FakeGroup) -> None:
    """`lost` first, then an assignment; the others are told as well."""
    (one, _), (other, its) = started(group, 2)
    group.kick(its, "gone")
    assert group.wait_until_quiet()
    kinds = [kind for kind, _ in other.told]
    assert ("lost", "gone") in other.told
    assert kinds[-1] == "assigned"
    assert set(group.members) == {"member-1", "member-2"}
    group.kick(its, "for good", again=False)
    assert group.wait_until_quiet()
    assert other.told[-1] == ("lost", "for good")
    assert one.told[-1] == ("assigned", {"member-1": 0})


def test_a_member_that_is_refused_does_not_come_back(group: FakeGroup) -> None:
    """Waiting for it ends, and starting it again is an error."""
    [(client, membership)] = started(group, 1)
    group.refuse(membership, error := TaskAssignmentException("another protocol"))
    assert group.wait_until_quiet()
    assert client.told[-1] == ("failed", error)
    membership.rejoin("in vain")
    assert not membership.wait_for_assignment(5)
    with pytest.raises(IllegalStateException, match="create a new one"):
        membership.start()


def test_closing_leaves(group: FakeGroup) -> None:
    """The others agree without it."""
    (_, its), (other, _) = started(group, 2)
    its.close(1)
    its.close(1)
    wait_until(lambda: other.told[-1] == ("assigned", {"member-2": 0}), "the other is alone", 5)
    assert group.led_by == "member-2"
