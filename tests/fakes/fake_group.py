"""A group in memory: `ports.Membership` without a broker, in microseconds.

    group = FakeGroup()
    membership = group.join(member)
    membership.start()

One thread, `FakeGroup`, does the work of the broker, the input/output threads and the members' own threads.
It requests the user data of all members, lets the first one lead, and gives each one its assignment; one at a
time, and never within another callback. So a member's request in a callback takes effect after that callback.

Differs: from `kafka.membership.KafkaMembership`: a callback that does not return blocks all members, and a
rebalance requested twice before it starts is always one rebalance.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from millstream.errors import IllegalStateException, StreamsException
from millstream.ports import GroupMember

__all__ = ["FakeGroup", "FakeMembership"]

log = logging.getLogger(__name__)

_CLOSE_S = 10.0


class FakeGroup:
    """The group, with methods for tests.

    Attributes:
        generation: the latest generation.
        assignments: the latest assignment of each member, by its id.
        led_by: the id of the latest leader.
    """

    def __init__(self) -> None:
        self.generation = 0
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
        """A membership for this member; call its `start()` to join. Ids count up: `member-1`."""
        with self._changed:
            self._joined += 1
            return FakeMembership(self, member, member_id or f"member-{self._joined}")

    @property
    def members(self) -> list[str]:
        """The ids of the current members, the leader first."""
        with self._changed:
            return [one.member_id for one in self._members]

    def kick(
        self, membership: FakeMembership, reason: str = "fenced by a test", *, again: bool = True
    ) -> None:
        """Tell a member that it is lost, and let the others continue; then it rejoins, if allowed."""
        with self._changed:
            if membership not in self._members:
                return
            self._members.remove(membership)
            self._work.append(lambda: membership.member.lost(reason))
            if again:
                self._work.append(lambda: self._come(membership))
            self._touch()

    def refuse(self, membership: FakeMembership, error: StreamsException) -> None:
        """End a membership permanently."""
        with self._changed:
            if membership in self._members:
                self._members.remove(membership)
            membership.over = True
            self._work.append(lambda: membership.member.failed(error))
            self._touch()

    def hold(self) -> None:
        """Pause all rebalances, as if the broker were unavailable. Pending callbacks still run."""
        with self._changed:
            self._held = True

    def release(self) -> None:
        """Resume after `hold`."""
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def rebalance(self) -> None:
        """Start a rebalance without a reason."""
        with self._changed:
            self._touch()

    def wait_until_quiet(self, timeout_s: float = 10.0) -> bool:
        """Wait until no rebalance or callback is pending."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not (self._work or self._busy or (self._dirty and not self._held)), timeout_s
            )

    def close(self) -> None:
        """Stop the thread. Idempotent; not from a callback."""
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
                    one.answered = sent[one.member_id]
                    self._work.append(one.telling(assignment, generation))
                    self._work.append(one.member.tick)
            self._changed.notify_all()


class FakeMembership:
    """`ports.Membership` in a `FakeGroup`.

    Attributes:
        reasons: the reasons passed to `rejoin`.
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
        self.answered = -1

    def start(self) -> None:
        """Join; returns at once.

        Raises:
            IllegalStateException: it was already started, or is closed.
        """
        with self.group._changed:
            if self.started or self.over:
                raise IllegalStateException("this membership was started before; create a new one")
            self.started = True
        self.group._come(self)

    def rejoin(self, reason: str) -> None:
        """Request a rebalance; a further one if one is already pending."""
        with self.group._changed:
            self.reasons.append(reason)
            self.wanted += 1
            if self in self.group._members:
                self.group._touch()

    def expect_rebalance(self, generation: int) -> None:
        """All hear of it at once."""

    def wait_for_assignment(self, timeout_s: float) -> bool:
        """Wait for an assignment based on the user data of the last `rejoin`."""
        with self.group._changed:
            wanted = self.wanted
            self.group._changed.wait_for(lambda: self.answered >= wanted or self.over, timeout_s)
            return self.answered >= wanted

    def close(self, timeout_s: float) -> None:
        """Leave the group. Idempotent; may be called from a callback's thread."""
        with self.group._changed:
            if self.closed:
                return
            self.closed = self.over = True
        self.group._go(self)

    def telling(self, assignment: bytes, generation: int) -> Callable[[], None]:
        """The function that gives the member an assignment, unless it has left in the meantime."""

        def tell() -> None:
            with self.group._changed:
                void = self not in self.group._members
            if not void:
                self.member.assigned(assignment, generation)

        return tell
