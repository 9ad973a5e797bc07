"""A state machine whose rules are a table.

Two rules hold here. Only a `Rules` table decides about transitions; there are no other conditions. And only
the owner of a state changes it: a `Machine` or, for the client, the one pure function of
`runtime/state/reactions.py`, which uses the same tables.

All transitions are logged here (`Announcer`), in the words that operators grep for:
`State transition from RUNNING to REBALANCING`, at INFO, after the owner's prefix.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from millstream.clock import Clock, SystemClock
from millstream.errors import IllegalStateException

__all__ = ["Announcer", "Machine", "Rules"]

S = TypeVar("S", bound=Enum)
STORY_LENGTH = 10
"""How many of the last events the error of an illegal transition shows."""


@dataclass(frozen=True)
class Rules(Generic[S]):
    """The possible transitions.

    Attributes:
        allowed: for each state, the states that may follow it. Every state has a row.
        ignored: requests that change nothing and are not mistakes, each with the reason. Anything in neither
            table is our bug.
        causes: for each cause, the state that it leads to from each state. In a state that is not in its row,
            a cause changes nothing.
    """

    allowed: Mapping[S, tuple[S, ...]]
    ignored: Mapping[tuple[S, S], str] = field(default_factory=dict)
    causes: Mapping[Enum, Mapping[S, S]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        states = set(type(next(iter(self.allowed))))
        missing = states - set(self.allowed)
        if missing:
            raise ValueError(f"no row for {sorted(state.name for state in missing)}")
        for old, new in self.ignored:
            if new in self.allowed[old]:
                raise ValueError(f"{old.name} -> {new.name} is both allowed and ignored")
        for cause, row in self.causes.items():
            for old, new in row.items():
                if not self.allows(old, new):
                    raise ValueError(f"{cause.name}: {old.name} -> {new.name} is not allowed")

    def allows(self, old: S, new: S) -> bool:
        """Whether `new` may follow `old`."""
        return new in self.allowed[old]

    def after(self, state: S, cause: Enum) -> S:
        """The state that `cause` leads to: the same state if the cause has no effect there."""
        return self.causes[cause].get(state, state)

    @property
    def terminal(self) -> frozenset[S]:
        """The states that nothing follows."""
        return frozenset(state for state, following in self.allowed.items() if not following)


class Announcer(Generic[S]):
    """Announces the transitions of one owner: to the log, to listeners, and to the history for bug reports.

    Listeners are called one at a time, in the order of the transitions: on the delivering thread or, while
    another transition's listeners are still being called, on that one's thread. What a listener raises is
    logged and changes nothing.

    Args:
        owner: the owner, as a log prefix: `stream-client [orders-1]`.
        log: the logger of the owner's module.
    """

    def __init__(self, *, owner: str, log: logging.Logger, clock: Clock | None = None) -> None:
        self.owner = owner
        self._log = log
        self._clock = clock or SystemClock()
        self._born = self._clock.now()
        self._lock = threading.Lock()
        self._listeners: list[Callable[[S, S], object]] = []
        self._undelivered: deque[tuple[S, S]] = deque()
        self._deliverer: int | None = None
        self._story: deque[str] = deque(maxlen=STORY_LENGTH)

    def announce(self, new: S, old: S) -> None:
        """Record a transition, to be announced by the next `deliver`."""
        with self._lock:
            self._note(f"{old.name} -> {new.name}")
            self._undelivered.append((new, old))

    def log_transition(self, new: S, old: S) -> None:
        """Log a transition in the words of Kafka Streams."""
        self._log.info("%s State transition from %s to %s", self.owner, old.name, new.name)

    def note(self, event: str) -> None:
        """Record an event that is not a transition, for the history in bug reports."""
        with self._lock:
            self._note(event)

    def story(self) -> tuple[str, ...]:
        """The last events, oldest first."""
        with self._lock:
            return tuple(self._story)

    def add_listener(self, listener: Callable[[S, S], object]) -> None:
        """Call `listener(new, old)` after each transition from now on."""
        with self._lock:
            self._listeners.append(listener)

    def in_listener(self) -> bool:
        """Whether this thread is inside a listener's call, where waiting could last forever."""
        return self._deliverer == threading.get_ident()

    def deliver(self) -> None:
        """Call the listeners for all announced transitions, without any lock that a listener may need."""
        # A thread that finds no other one delivering delivers everything pending. So the calls keep the order
        # of the transitions, and a transition made by a listener does not nest its calls in the current one.
        with self._lock:
            if self._deliverer is not None or not self._undelivered:
                return
            self._deliverer = threading.get_ident()
        while True:
            with self._lock:
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
                        "%s a state listener failed on %s -> %s; the state is unaffected",
                        self.owner,
                        old.name,
                        new.name,
                    )

    def _note(self, event: str) -> None:
        thread = threading.current_thread().name
        self._story.append(f"+{self._clock.now() - self._born:.3f}s {event} [{thread}]")


class Machine(Generic[S]):
    """The state of one owner, and the only way to change it.

    Args:
        rules: the table.
        initial: the initial state.
        owner, log: see Announcer.
        at_change: called with (new, old) inside the change, before any thread that waits for the state wakes
            up. For values that must never be older than the state. It is quick and never raises.
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
        self._announcer: Announcer[S] = Announcer(owner=owner, log=log, clock=clock)
        self._at_change = at_change
        self._changed = threading.Condition(threading.Lock())

    @property
    def state(self) -> S:
        return self._state

    @property
    def owner(self) -> str:
        return self._announcer.owner

    def to(self, new: S) -> bool:
        """Move to `new`. Returns whether that happened.

        Raises:
            IllegalStateException: the table does not have this transition. Nothing has changed.
        """
        with self._changed:
            moved = self._move(new)
        self._announcer.deliver()
        return moved

    def because(self, cause: Enum) -> bool:
        """Move to the state that `cause` leads to by the table. Returns whether there is one."""
        with self._changed:
            new = self._rules.after(self._state, cause)
            if new is self._state:
                self._announcer.note(f"{cause.name} is not expected in {self._state.name}")
                return False
            moved = self._move(new)
        self._announcer.deliver()
        return moved

    def _move(self, new: S) -> bool:
        old = self._state
        if (old, new) in self._rules.ignored:
            self._announcer.note(f"{old.name} -> {new.name} ignored: {self._rules.ignored[old, new]}")
            return False
        if not self._rules.allows(old, new):
            story = "".join(f"\n  {event}" for event in self.story()) or "\n  (none)"
            self._announcer.note(f"{old.name} -> {new.name} refused")
            raise IllegalStateException(
                f"{self.owner}: {old.name} -> {new.name} is not a transition; this is a bug, "
                f"please report it with the last events:{story}"
            )
        self._state = new
        self._at_change(new, old)
        self._announcer.announce(new, old)
        self._changed.notify_all()
        self._announcer.log_transition(new, old)
        return True

    def note(self, event: str) -> None:
        """Record an event that is not a transition, for the history in bug reports."""
        self._announcer.note(event)

    def story(self) -> tuple[str, ...]:
        """The last events, oldest first."""
        return self._announcer.story()

    def add_listener(self, listener: Callable[[S, S], object]) -> None:
        """Call `listener(new, old)` after each transition from now on."""
        self._announcer.add_listener(listener)

    def in_listener(self) -> bool:
        """Whether this thread is inside a listener's call, where waiting could last forever."""
        return self._announcer.in_listener()

    def wait_until(self, states: Collection[S], timeout_s: float | None) -> bool:
        """Wait until the state is one of `states`. Returns whether it was in time.

        None waits without limit; Ctrl-C still interrupts it.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._state in states, timeout_s)
