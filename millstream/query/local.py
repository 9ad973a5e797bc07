"""Reads of the stores on this client: a plan says which parts answer, or which exception is raised if none
can.

A reader plans once per `StoreSnapshot` (where each partition is, and which can be read), and keeps the plan
while the runtime returns the same snapshot. So a `get` costs only one comparison more than the store's own,
and every read still sees the current state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.errors import InvalidStateStoreException, InvalidStateStoreTypeException
from millstream.query.provider import LocalStore, Outcome, Presence, ReadScope, StoreView
from millstream.query.read import Read, ResultForm
from millstream.query.read_plan import ReadPlan, make_plan
from millstream.query.reading import joined, of_part
from millstream.query.store_codecs import Codecs
from millstream.stores.store_base import ClosedStoreError

if TYPE_CHECKING:
    from millstream.query.store_tables import OpenTable

__all__ = ["LocalReader"]

R = TypeVar("R")

_ATTEMPTS = 3
"""How often a read is retried if a store was closed during it and the snapshot has changed since."""


class LocalReader:
    """Answers reads of one store from its partitions on this client (handle.Reader). Thread-safe.

    Args:
        of: the settings of all reads: the store, its kind, and optionally a partition, staleness and a time.
        timestamped: whether values come with their timestamps.
        asked_as: the name of the caller in messages.
    """

    deprecates_milliseconds = True

    def __init__(
        self, view: StoreView, of: Read, *, timestamped: bool = False, asked_as: str = "this read"
    ) -> None:
        self.of = of
        self._view = view
        self._snapshot = view.snapshot
        self._timestamped = timestamped
        self._asked_as = asked_as
        self._seen: frozenset[int] = frozenset()
        self._plan: ReadPlan | None = None

    # --- planning ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what a read would raise, unless at least one requested part can be read."""
        plan = self.plan()
        if not plan.parts:
            raise plan.refuse_whole()

    def plan(self) -> ReadPlan:
        """The current plan.

        Raises:
            InvalidStateStoreException: one of its subclasses, if no read can succeed whichever parts are
                here.
        """
        plan = self._plan
        if plan is None or plan.snapshot is not self._snapshot():
            plan = self._replan()
        return plan

    def _replan(self) -> ReadPlan:
        plan = make_plan(
            self._snapshot(), self.of, self._seen, timestamped=self._timestamped, asked_as=self._asked_as
        )
        self._seen |= plan.parts.keys()
        self._plan = plan
        return plan

    @property
    def codecs(self) -> Codecs:
        """Serializes and deserializes keys and values."""
        return self.plan().codecs

    def as_of(self, at_ms: int) -> LocalReader:
        """The same store as of a point in time.

        Raises:
            InvalidStateStoreTypeException: the store keeps no history.
            ValueError: the time is older than the retained history.
        """
        plan = self.plan()
        if plan.declaration.history_ms is None:
            raise InvalidStateStoreTypeException(
                f"store '{self.of.store}' keeps no history, so it cannot be read as of an earlier time",
                store=self.of.store,
                client_state=plan.snapshot.client_state.name,
                next_step="declare it with Materialized.with_history(timedelta(hours=1))",
            )
        reader = LocalReader(
            self._view, replace(self.of, as_of=at_ms), timestamped=self._timestamped, asked_as=self._asked_as
        )
        reader.check()
        reader._reading(lambda plan: [part.store.check_as_of(at_ms) for part in plan.parts.values()])
        return reader

    # --- reading -----------------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """The value of a key of a key-value store; None if there is none here."""
        # The common case, in as few steps as possible; `answer` handles all others.
        plan = self._plan
        if plan is None or plan.snapshot is not self._snapshot():
            plan = self._replan()
        try:
            data = plan.serialize(key)
        except Exception:  # whatever a serde raises is reported below
            data = None
        if data is None or key is None:
            data = plan.codecs.key_bytes(key, "get()")
        partition_of = plan.partition_of
        getter = None if partition_of is None else plan.getters.get(partition_of(data))
        try:
            stored = self._value_of(data) if getter is None else getter(data)
        except ClosedStoreError:
            stored = self._value_of(data)
        if stored is None:
            return None
        try:
            return plan.quick_decode(stored)
        except Exception:  # whatever a serde raises is reported below
            return plan.codecs.decode(stored)

    def _value_of(self, key: bytes) -> bytes | None:
        stored: bytes | None = self.answer(replace(self.of, form=ResultForm.VALUE, key=key))
        return stored

    def answer(self, read: Read) -> Any:
        """The result of a read, as `reading.of_part` documents it, over all of its partitions here.

        Raises:
            InvalidStateStoreException: one of its subclasses.
        """
        if read.form is ResultForm.VALUES:
            return self._reading(lambda plan: self._values(plan, read))
        if read.key is not None:
            return self._reading(lambda plan: self._of_key(plan, read, read.key or b""))
        return self._reading(lambda plan: self._of_all(plan, read))

    def _of_all(self, plan: ReadPlan, read: Read) -> Any:
        self._check_whole(plan)
        return joined(read, _of_each(list(plan.parts.values()), read))

    def _of_key(self, plan: ReadPlan, read: Read, key: bytes) -> Any:
        if plan.partition_of is not None:
            partition = plan.partition_of(key)
            part = plan.parts.get(partition)
            if part is None:
                self._check_absent(plan, partition)
            return joined(read, [] if part is None else [of_part(part.store, read)])
        if read.form is not ResultForm.VALUE:
            return self._of_all(plan, read)
        for part in plan.parts.values():
            stored = of_part(part.store, read)
            if stored is not None:
                return stored
        self._check_whole(plan)
        return None

    def _values(self, plan: ReadPlan, read: Read) -> list[bytes | None]:
        if plan.partition_of is None:
            one = replace(read, form=ResultForm.VALUE, keys=())
            return [self._of_key(plan, replace(one, key=key), key) for key in read.keys]
        places: dict[int, list[int]] = {}
        for place, key in enumerate(read.keys):
            places.setdefault(plan.partition_of(key), []).append(place)
        found: list[bytes | None] = [None] * len(read.keys)
        for partition, indexes in places.items():
            part = plan.parts.get(partition)
            if part is None:
                self._check_absent(plan, partition)
                continue
            some = replace(read, keys=tuple([read.keys[index] for index in indexes]))
            for index, stored in zip(indexes, of_part(part.store, some), strict=True):
                found[index] = stored
        return found

    def table(self) -> OpenTable:
        """The store as it is now, as a table."""
        from millstream.query.store_tables import open_table  # Arrow is imported only when it is needed

        def opened(plan: ReadPlan) -> OpenTable:
            self._check_whole(plan)
            return open_table(plan)

        return self._reading(opened)

    def described(self) -> str:
        """The store, described in words.

        Raises:
            InvalidStateStoreException: it cannot be read now.
        """
        plan = self.plan()
        entries = self.answer(replace(self.of, form=ResultForm.COUNT))
        numbers = ", ".join(map(str, plan.parts))
        codecs = plan.codecs
        return (
            f"({codecs.key_serde.name} -> {codecs.value_serde.name}), partitions {numbers} on client "
            f"'{plan.snapshot.client_id}', about {entries:,} entries"
        )

    def _reading(self, read: Callable[[ReadPlan], R]) -> R:
        """The result of `read`. If a store is closed during it, find the store again, and retry."""
        for attempt in range(1, _ATTEMPTS + 1):
            plan = self.plan()
            try:
                return read(plan)
            except ClosedStoreError as error:
                if attempt == _ATTEMPTS or self._snapshot() is plan.snapshot:
                    plan = self.plan()
                    outcome = plan.decide(Presence.CLOSED, plan.scope)
                    raise plan.refuse(outcome, self.of.partition, "a read") from error
        raise AssertionError("unreachable")

    def _check_absent(self, plan: ReadPlan, partition: int) -> None:
        """Raise, unless a key of this partition, which is not readable here, simply has no value."""
        if not plan.parts:
            raise plan.refuse_whole()
        scope = ReadScope.KEY if self.of.partition is None else ReadScope.PARTITION
        outcome = plan.decide(plan.presence(partition), scope)
        if outcome is not Outcome.NOTHING:
            raise plan.refuse(outcome, partition)

    def _check_whole(self, plan: ReadPlan) -> None:
        """Raise, unless a read over all partitions gives the complete result."""
        if plan.whole() is not Presence.READABLE:
            raise plan.refuse_whole()

    def lost(self, error: ClosedStoreError) -> Exception:
        """The exception of an open iterator whose store was closed: it cannot continue."""
        try:
            plan = self.plan()
        except InvalidStateStoreException as refused:
            return refused
        outcome = plan.decide(Presence.CLOSED, plan.scope, settled=True)
        return plan.refuse(outcome, self.of.partition, "an open iterator")


def _of_each(parts: Sequence[LocalStore], read: Read) -> list[Any]:
    """The results of all parts, or none if one fails."""
    found: list[Any] = []
    try:
        for part in parts:
            found.append(of_part(part.store, read))
    except BaseException:
        if read.form is ResultForm.ENTRIES:
            for iterator in found:
                iterator.close()
        raise
    return found
