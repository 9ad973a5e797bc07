"""A state machine whose rules are a table.

Two rules hold here. Whatever decides about a transition is in a `Rules` table; there is no other
condition anywhere. And nothing but a `Machine` changes a state: who owns one asks it to move.

Everything that moves also logs here, in the words operators grep for:
`State transition from RUNNING to REBALANCING`, at INFO, behind the owner's prefix.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import IllegalStateException

__all__ = ["Machine", "Rules"]

S = TypeVar("S", bound=Enum)
STORY_LENGTH = 10
"""How many of the last events an illegal transition shows."""


@dataclass(frozen=True)
class Rules(Generic[S]):
    """Which transitions there are.

    Attributes:
        allowed: for each state, those that may follow it. Every state has its row.
        ignored: requests that change nothing and are no mistake, each with the reason.
            All that is in neither is a bug of ours.
    """

    allowed: Mapping[S, tuple[S, ...]]
    ignored: Mapping[tuple[S, S], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = set(type(next(iter(self.allowed))))
        missing = states - set(self.allowed)
        if missing:
            raise ValueError(f"no row for {sorted(state.name for state in missing)}")
        for old, new in self.ignored:
            if new in self.allowed[old]:
                raise ValueError(f"{old.name} -> {new.name} is both allowed and ignored")

    def allows(self, old: S, new: S) -> bool:
        """Whether `new` may follow `old`."""
        return new in self.allowed[old]

    @property
    def terminal(self) -> frozenset[S]:
        """The states that nothing follows."""
        return frozenset(state for state, following in self.allowed.items() if not following)


class Machine(Generic[S]):
    """The state of one owner, and its only way to change.

    Listeners are called after the change, outside the lock, one call at a time and in the order of the
    transitions: on the thread that made the transition, or, while another transition's listeners are still
    being called, on that one's thread. What a listener raises is logged and changes nothing.

    Args:
        rules: the table.
        initial: the state to begin with.
        owner: who it belongs to, as a log prefix: `stream-client [orders-1]`.
        log: the logger of the owner's module.
        at_change: called with (new, old) inside the change, before anybody who waits for the state wakes up.
            For what must never look older than the state; quick, and it never raises.
    """

    def __init__(
        self,
        rules: Rules[S],
        initial: S,
        *,
        owner: str,
        log: logging.Logger,
        clock: Clock | None = None,
        at_change: Callable[[S, S], None] = lambda new, old: None,
    ) -> None:
        self._rules = rules
        self._state = initial
        self._owner = owner
        self._log = log
        self._clock = clock or SystemClock()
        self._at_change = at_change
        self._born = self._clock.now()
        self._changed = threading.Condition(threading.Lock())
        self._listeners: list[Callable[[S, S], None]] = []
        self._undelivered: deque[tuple[S, S]] = deque()
        self._deliverer: int | None = None
        self._deferring: dict[int, int] = {}
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    @property
    def state(self) -> S:
        return self._state

    @property
    def owner(self) -> str:
        return self._owner

    def to(self, new: S, *, only_from: Collection[S] | None = None) -> bool:
        """Move to `new`; whether that happened.

        With `only_from`, nothing happens in any other state: checked and changed in one step.

        Raises:
            IllegalStateException: the table does not know this transition. Nothing has changed.
        """
        with self._changed:
            old = self._state
            if only_from is not None and old not in only_from:
                self._note(f"{old.name} -> {new.name} not asked for in this state")
                return False
            if (old, new) in self._rules.ignored:
                self._note(f"{old.name} -> {new.name} ignored: {self._rules.ignored[old, new]}")
                return False
            if not self._rules.allows(old, new):
                story = "".join(f"\n  {event}" for event in self._story) or "\n  (none)"
                self._note(f"{old.name} -> {new.name} refused")
                raise IllegalStateException(
                    f"{self._owner}: {old.name} -> {new.name} is not a transition; this is a bug, "
                    f"please report it with the last events:{story}"
                )
            self._state = new
            self._note(f"{old.name} -> {new.name}")
            self._at_change(new, old)
            self._undelivered.append((new, old))
            self._changed.notify_all()
            self._log.info("%s State transition from %s to %s", self._owner, old.name, new.name)
        self._deliver()
        return True

    def note(self, event: str) -> None:
        """Remember an event that is no transition, for the story that a bug report shows."""
        with self._changed:
            self._note(event)

    def story(self) -> tuple[str, ...]:
        """The last events, oldest first."""
        with self._changed:
            return tuple(self._story)

    def add_listener(self, listener: Callable[[S, S], None]) -> None:
        """Call `listener(new, old)` after each transition from now on."""
        with self._changed:
            self._listeners.append(listener)

    @contextmanager
    def deferring(self) -> Iterator[None]:
        """Transitions of this thread within tell their listeners when it is left: for who holds a lock that a
        listener may need. May be nested."""
        me = threading.get_ident()
        with self._changed:
            self._deferring[me] = self._deferring.get(me, 0) + 1
        try:
            yield
        finally:
            with self._changed:
                self._deferring[me] -= 1
                done = not self._deferring[me]
                if done:
                    del self._deferring[me]
            if done:
                self._deliver()

    def in_listener(self) -> bool:
        """Whether this very thread is inside a listener's call, so that waiting here could be for ever."""
        return self._deliverer == threading.get_ident()

    def wait_until(self, states: Collection[S], timeout_s: float | None) -> bool:
        """Wait until the state is one of `states`; whether it was before the time was over.

        None waits as long as it takes; Ctrl-C still interrupts it.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._state in states, timeout_s)

    def _note(self, event: str) -> None:
        thread = threading.current_thread().name
        self._story.append(f"+{self._clock.now() - self._born:.3f}s {event} [{thread}]")

    def _deliver(self) -> None:
        # Whoever finds nobody delivering does it for all that is there. So the calls keep the order of the
        # transitions, and a transition made by a listener does not nest its calls in the one still going on.
        with self._changed:
            if self._deliverer is not None or threading.get_ident() in self._deferring:
                return
            self._deliverer = threading.get_ident()
        while True:
            with self._changed:
                if not self._undelivered:
                    self._deliverer = None
                    return
                new, old = self._undelivered.popleft()
                listeners = tuple(self._listeners)
            for listener in listeners:
                try:
                    listener(new, old)
                except Exception:
                    self._log.exception(
                        "%s a state listener failed on %s -> %s; the state is not affected",
                        self._owner,
                        old.name,
                        new.name,
                    )
