"""The one owner of a client's state: it has the value, applies events to it, and runs the instructions.

    owner.post(event)     # from any thread: what has happened
    owner.call(event)     # the same, and wait until what follows from it at once has been done
    owner.state           # the value now

The step from one value to the next is pure (reactions.py) and made under the only lock. Instructions are
carried out afterwards, without the lock, in order, one at a time, by the first thread that finds no other
doing it. Each is quick: anything that takes time (opening, closing, asking the handler) has a thread of its
own, which posts the result as an event. So nothing here blocks, and handlers and listeners, which are called
without any lock held, may call the client.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime

from millstream.clock import Clock
from millstream.coroutines import Changes, Until
from millstream.errors import StreamsException
from millstream.machine import Announcer
from millstream.runtime.state.client_state import ClientState, Moment
from millstream.runtime.state.events import Broken, Event, Instruction, Moved
from millstream.runtime.state.failure import Failure
from millstream.runtime.state.reactions import react
from millstream.states import State

__all__ = ["Owner"]


@dataclass(frozen=True, eq=False)
class _Performing:
    """Marks a thread that is carrying out instructions, in one call of `_work_off`."""

    thread: int


class Owner:
    """The owner of one client's state.

    Args:
        state: the initial value.
        perform: carries out an instruction; quickly.
        at_change: called inside a change that the user sees, before anyone who waits for it wakes up.
        announcer: announces the changes.
        watch: called inside each step with the value before, the event, the value after, and the time. Quick.
    """

    def __init__(
        self,
        state: ClientState,
        perform: Callable[[Instruction], None],
        *,
        at_change: Callable[[], None],
        announcer: Announcer[State],
        clock: Clock,
        log: logging.Logger,
        watch: Callable[[ClientState, Event, ClientState, Moment], None] = lambda old, event, new, moment: (
            None
        ),
    ) -> None:
        self._watch = watch
        self._state = state
        self._perform = perform
        self._at_change = at_change
        self._announcer = announcer
        self._clock = clock
        self._log = log
        # Ctrl-C may arrive after any call of a Python function. Where it must not leave the lock held, the
        # lock is taken directly, not through the condition, whose `__enter__` is such a function.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._changes = Changes()
        self._to_do: deque[tuple[int, Instruction]] = deque()  # pending, numbered from 1
        self._given = 0
        self._performer: _Performing | None = None

    @property
    def state(self) -> ClientState:
        """The current value."""
        return self._state

    def post(self, event: Event) -> tuple[Instruction, ...]:
        """Apply an event. Returns the resulting instructions."""
        instructions, _ = self._step(event)
        self._work_off()
        self._announcer.deliver()
        return instructions

    def call(self, event: Event) -> tuple[Instruction, ...]:
        """As `post`, but the instructions have been carried out when this returns."""
        instructions, until = self._step(event)
        self._work_off()
        performer = self._performer
        if performer is None or performer.thread != threading.get_ident():
            with self._lock:
                self._changed.wait_for(lambda: not self._to_do or self._to_do[0][0] > until)
        self._announcer.deliver()
        return instructions

    def wait_for(self, fits: Callable[[ClientState], bool], timeout_s: float | None = None) -> bool:
        """Wait until the value fits. Returns whether it does. `fits` is called with the lock held.

        None waits without limit; Ctrl-C still interrupts it.
        """
        with self._changed:
            return self._changed.wait_for(lambda: fits(self._state), timeout_s)

    def wait_until(self, states: Collection[State], timeout_s: float | None = None) -> bool:
        """Wait until the client is in one of `states`. Returns whether it is."""
        return self.wait_for(lambda value: value.state in states, timeout_s)

    def until(self, fits: Callable[[ClientState], bool], timeout_s: float | None) -> Until:
        """For waiting until the value fits, on a thread or in a coroutine."""
        return Until(
            lambda: fits(self._state), timeout_s, lambda: self.wait_for(fits, timeout_s), self._changes
        )

    def _step(self, event: Event) -> tuple[tuple[Instruction, ...], int]:
        with self._lock:
            epoch_s = self._clock.epoch_ms() / 1000
            moment = Moment(self._clock.now(), datetime.fromtimestamp(epoch_s, UTC), random.random())  # noqa: S311 - of a pause
            state, instructions = react(self._state, event, moment)
            numbered = tuple(enumerate(instructions, self._given + 1))
            try:  # both or neither, even on Ctrl-C
                self._to_do.extend(numbered)
            finally:
                before, self._state, self._given = self._state, state, self._given + len(numbered)
            self._watch(before, event, state, moment)
            for instruction in instructions:
                if isinstance(instruction, Moved):
                    self._at_change()
                    self._announcer.announce(instruction.new, instruction.old)
            self._changed.notify_all()
            self._changes.notify()
            return instructions, self._given

    def _work_off(self) -> None:
        """Carry out the pending instructions, unless another thread is doing so."""
        mine = _Performing(threading.get_ident())
        interrupted: BaseException | None = None
        while True:
            number, instruction = 0, None
            error: Exception | None = None
            begun = disturbed = False
            try:
                number, instruction = self._next(mine)
                if instruction is not None:
                    begun = True
                    self._perform(instruction)
            except Exception as problem:
                error = problem
            except BaseException as problem:  # Ctrl-C on the user's thread: raised there once this is done
                interrupted, disturbed = problem, True
            # No other thread continues before this is complete, so it is retried until it is.
            through = False
            while not through:
                try:
                    with self._lock:
                        if begun and self._to_do and self._to_do[0][0] == number:
                            self._to_do.popleft()
                        if self._performer is mine:
                            self._performer = None
                        self._changed.notify_all()
                        through = True
                except BaseException as problem:
                    interrupted = problem
            if instruction is None and not disturbed:
                break
            if error is not None and instruction is not None:
                self._log.error(
                    "%s could not carry out %r", self._announcer.owner, instruction, exc_info=error
                )
                self.post(
                    Broken(Failure(threading.current_thread().name, _not_carried_out(instruction, error)))
                )
        if interrupted is not None:
            raise interrupted

    def _next(self, mine: _Performing) -> tuple[int, Instruction | None]:
        """This thread's next instruction and its number; None: there is none, or another thread is
        working."""
        with self._lock:
            if self._performer is not None or not self._to_do:
                return 0, None
            self._performer = mine
            return self._to_do[0]


def _not_carried_out(instruction: Instruction, error: Exception) -> StreamsException:
    problem = StreamsException(
        f"the client could not carry out {type(instruction).__name__}, so it closes: {error}"
    )
    problem.__cause__ = error
    return problem
