"""A group in memory: `ports.Membership` without a broker, in microseconds.

    group = FakeGroup()
    membership = group.join(member)
    membership.start()

One thread, `FakeGroup`, does what the broker, the input/output threads and the members' own threads do: it
asks all members for their user data, has the first one lead, and tells each one its assignment; one at a
time, and never within another callback. So what a member asks for in a callback comes after that callback.

Differs: from `kafka.membership.KafkaMembership`: a callback that does not return holds up all members, and a
rebalance that was asked for twice before it began is one rebalance, as there, but always.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from millstream.errors import IllegalStateException, StreamsException
from millstream.model import TopicPartition
from millstream.ports import GroupMember

__all__ = ["FakeGroup", "FakeMembership"]

log = logging.getLogger(__name__)

_CLOSE_S = 10.0


class FakeGroup:
    """The group, and what tests do to it.

    Attributes:
        generation: the latest one.
        committed: the latest offset of each partition that a member has finished.
        assignments: what each member was told last, by its id.
        led_by: the id of the latest leader.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.committed: dict[TopicPartition, int] = {}
        self.assignments: dict[str, bytes] = {}
        self.led_by = ""
        self._changed = threading.Condition()
        self._members: list[FakeMembership] = []
        self._joined = 0
        self._held = False
        self._closed = False
        self._dirty = False
        self._busy = False
        self._work: deque[Callable[[], None]] = deque()
        self._thread = threading.Thread(target=self._run, name="FakeGroup", daemon=True)
        self._thread.start()

    # --- for tests ---------------------------------------------------------------------------------------

    def join(self, member: GroupMember, member_id: str = "") -> FakeMembership:
        """A membership for this member, which its `start()` begins. Ids count up: `member-1`."""
        with self._changed:
            self._joined += 1
            return FakeMembership(self, member, member_id or f"member-{self._joined}")

    @property
    def members(self) -> list[str]:
        """The ids of those that are in it, the leader first."""
        with self._changed:
            return [one.member_id for one in self._members]

    def kick(
        self, membership: FakeMembership, reason: str = "fenced by a test", *, again: bool = True
    ) -> None:
        """Tell a member that it is lost, and have the others go on; then it joins again, if it may."""
        with self._changed:
            if membership not in self._members:
                return
            self._members.remove(membership)
            self._work.append(lambda: membership.member.lost(reason))
            if again:
                self._work.append(lambda: self._come(membership))
            self._touch()

    def refuse(self, membership: FakeMembership, error: StreamsException) -> None:
        """End a membership for good."""
        with self._changed:
            if membership in self._members:
                self._members.remove(membership)
            membership.over = True
            self._work.append(lambda: membership.member.failed(error))
            self._touch()

    def hold(self) -> None:
        """From now on nothing is agreed, as when the broker is away. Callbacks that were due still come."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """The broker is back."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def rebalance(self) -> None:
        """Have the group agree anew, for no reason."""
        with self._changed:
            self._touch()

    def wait_until_quiet(self, timeout_s: float = 10.0) -> bool:
        """Wait until nothing is left to agree on or to tell."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._work or self._busy or (self._dirty and not self._held)), timeout_s
            )

    def close(self) -> None:
        """End the thread. Idempotent; not from a callback."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_CLOSE_S)

    # --- the memberships ---------------------------------------------------------------------------------

    def _touch(self) -> None:
        self._dirty = True
        self._changed.notify_all()

    def _come(self, membership: FakeMembership) -> None:
        with self._changed:
            if not membership.over and membership not in self._members:
                self._members.append(membership)
                self._touch()

    def _go(self, membership: FakeMembership) -> None:
        with self._changed:
            if membership in self._members:
                self._members.remove(membership)
                self.assignments.pop(membership.member_id, None)
                if self._members:
                    self._touch()
            self._changed.notify_all()

    # --- its thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or self._work or (self._dirty and not self._held))
                if self._closed:
                    return
                self._busy = True
                if self._work:
                    step = self._work.popleft()
                else:
                    self._dirty = False
                    step = self._rebalance
            try:
                step()
            except Exception:
                log.exception("a member of the fake group failed")

    def _rebalance(self) -> None:
        with self._changed:
            present = list(self._members)
            sent = {one.member_id: one.wanted for one in present}
        if not present:
            return
        data = {one.member_id: one.member.user_data() for one in present}
        plan = present[0].member.lead(data)
        with self._changed:
            self.generation += 1
            self.led_by = present[0].member_id
            generation = self.generation
            for one in present:
                if one in self._members:
                    assignment = plan.get(one.member_id, b"")
                    self.assignments[one.member_id] = assignment
                    one.told = sent[one.member_id]
                    self._work.append(one.telling(assignment, generation))
                    self._work.append(one.commit)
            self._changed.notify_all()


class FakeMembership:
    """`ports.Membership` in a `FakeGroup`.

    Attributes:
        reasons: those that `rejoin` was called with.
        closed: whether it was closed.
    """

    def __init__(self, group: FakeGroup, member: GroupMember, member_id: str) -> None:
        self.group = group
        self.member = member
        self.member_id = member_id
        self.reasons: list[str] = []
        self.closed = False
        self.over = False
        self.started = False
        self.wanted = 0
        self.told = -1

    def start(self) -> None:
        """Join; returns at once.

        Raises:
            IllegalStateException: it was started before, or is closed.
        """
        with self.group._changed:
            if self.started or self.over:
                raise IllegalStateException("this membership was started before; make a new one")
            self.started = True
        self.group._come(self)

    def rejoin(self, reason: str) -> None:
        """Have the group agree anew; another time, if it is about to."""
        with self.group._changed:
            self.reasons.append(reason)
            self.wanted += 1
            if self in self.group._members:
                self.group._touch()

    def wait_until_told(self, timeout_s: float) -> bool:
        """Wait until an assignment has come that was made with the user data of the last `rejoin`."""
        with self.group._changed:
            wanted = self.wanted
            self.group._changed.wait_for(lambda: self.told >= wanted or self.over, timeout_s)
            return self.told >= wanted

    def close(self, timeout_s: float) -> None:
        """Commit once more, leave the group. Idempotent; a callback's thread may call it."""
        with self.group._changed:
            if self.closed:
                return
            self.closed = self.over = True
        if self.started:
            self.commit()
        self.group._go(self)

    def commit(self) -> None:
        """What the real one does once a second. Done after each assignment here; a test may do it."""
        offsets = self.member.offsets()
        with self.group._changed:
            self.group.committed.update(offsets)

    def telling(self, assignment: bytes, generation: int) -> Callable[[], None]:
        """What tells the member of an assignment, unless it has left meanwhile."""

        def tell() -> None:
            with self.group._changed:
                void = self not in self.group._members
            if not void:
                self.member.assigned(assignment, generation)

        return tell
