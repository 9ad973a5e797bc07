"""What the handles on stores of every kind have in common: planning, reading, and which exception when.

A handle plans its reads once per `StoreSnapshot` (which partition is where, which may be read) and keeps
the plan while the runtime shows the same snapshot. So a `get` costs one comparison more than the store's
own, and every read still meets the state as it is now.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.errors import InvalidStateStoreException, SetupException
from millstream.query.codec import unfit_key
from millstream.query.iterators import EntryViews
from millstream.query.parameters import StoreQueryParameters
from millstream.query.plan import Plan, make_plan
from millstream.query.provider import Outcome, Presence, Scope, StoreView
from millstream.stores.api import ClosedStoreError

if TYPE_CHECKING:
    import pyarrow

    from millstream.query.tables import OpenTable

__all__ = ["StoreHandle", "in_one_order"]

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often a read looks again when a store was closed under it and the snapshot has changed since."""


class StoreHandle(EntryViews[K, V]):
    """One store over the partitions that are on this client. `K` is what its iterators have for keys.

    Raises, from every read:
        StreamsRebalancingException: what it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: what it read before has left this client; ask for a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the partition it is for is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: what is on disk is damaged, or cannot be read.
    """

    def __init__(self, view: StoreView, parameters: StoreQueryParameters[Any]) -> None:
        self._view = view
        self._snapshot = view.snapshot
        self._parameters = parameters
        self._name = parameters.store_name
        self._seen: frozenset[int] = frozenset()
        self._plan: Plan | None = None

    # --- what every store answers ------------------------------------------------------------------------

    def approximate_num_entries(self) -> int:
        """About how many entries there are here; too high while updates are not compacted yet."""

        def count(plan: Plan) -> int:
            self._check_whole(plan)
            return sum(part.store.approximate_num_entries() for part in plan.parts.values())

        return self._reading(count)

    def to_arrow(self) -> pyarrow.Table:
        """Every entry as an Arrow table with the columns `key`, `value` (and `timestamp`); of windows and
        sessions also `window_start` and `window_end`.

        Types follow the serdes; values that are dicts become structs, or JSON text where they have no
        common shape.
        """
        from millstream.query.tables import to_table

        table, columns = self._table()
        try:
            return to_table(table, columns)
        except ClosedStoreError as error:
            raise self._iterator_lost(error) from error
        finally:
            table.close()

    def to_pandas(self) -> Any:
        """Every entry as a pandas DataFrame, with the columns of `to_arrow()`.

        Raises:
            SetupException: pandas is not installed.
        """
        if find_spec("pandas") is None:
            raise SetupException(
                "to_pandas() needs pandas: pip install 'millstream[pandas]'; to_arrow() does not"
            )
        return self.to_arrow().to_pandas()

    def to_arrow_batches(self, rows: int = 65_536) -> pyarrow.RecordBatchReader:
        """The columns of `to_arrow()` in batches of up to so many rows, in memory one at a time.

        A snapshot, like an iterator: read it to its end, or drop it (its `close()` releases nothing). A type
        that no serde tells is that of the first batch; values of later ones that do not fit it raise
        SerializationException.

        Raises:
            ValueError: `rows` is not 1 or more.
        """
        from millstream.query.tables import record_batches

        if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
            raise ValueError(f"a batch has 1 row or more, not {rows!r}")
        table, columns = self._table()
        try:
            return record_batches(table, columns, rows, self._iterator_lost)
        except BaseException:
            table.close()
            raise

    def to_spark(self, session: Any) -> Any:
        """Every entry as a Spark DataFrame, with the columns of `to_arrow()`.

        Args:
            session: a SparkSession. It gets a copy: what the store is given later is not in it.

        Raises:
            TypeError: it is no SparkSession.
        """
        create = getattr(session, "createDataFrame", None)
        if create is None:
            raise TypeError(f"to_spark() takes a SparkSession, not {session!r}")
        return create(self.to_arrow())

    def _table(self) -> tuple[OpenTable, list[str]]:
        """This store as it is now, opened, and the columns that its type has."""
        from millstream.query.tables import columns_of, open_table

        def opened(plan: Plan) -> OpenTable:
            self._check_whole(plan)
            return open_table(plan)

        kind = self._parameters.queryable_store_type
        columns = [name for name in columns_of(kind.kind) if name != "timestamp" or kind.timestamped]
        return self._reading(opened), columns

    def __repr__(self) -> str:
        head = f"{type(self).__name__} '{self._name}'"
        try:
            plan = self._current()
            entries = self.approximate_num_entries()
        except InvalidStateStoreException as error:
            return f"<{head}, not readable now: {type(error).__name__}>"
        numbers = ", ".join(map(str, plan.parts))
        return (
            f"<{head} ({plan.key_serde.name} -> {plan.value_serde.name}), partitions {numbers} on client "
            f"'{plan.snapshot.client_id}', about {entries:,} entries>"
        )

    # --- planning ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what a read would raise, unless a part of what was asked for can be read."""
        plan = self._current()
        if not plan.parts:
            raise plan.refuse_whole()

    def _current(self) -> Plan:
        plan = self._plan
        if plan is None or plan.snapshot is not self._snapshot():
            plan = self._replan()
        return plan

    def _replan(self) -> Plan:
        plan = make_plan(self._snapshot(), self._parameters, self._seen)
        self._seen |= plan.parts.keys()
        self._plan = plan
        return plan

    def _reading(self, read: Callable[[Plan], R]) -> R:
        """What `read` gives; if a store is closed under it, look where the store is now, and read again."""
        for attempt in range(1, _ATTEMPTS + 1):
            plan = self._current()
            try:
                return read(plan)
            except ClosedStoreError as error:
                if attempt == _ATTEMPTS or self._snapshot() is plan.snapshot:
                    plan = self._current()
                    outcome = plan.decide(Presence.CLOSED, plan.scope)
                    raise plan.refuse(outcome, self._parameters.partition, "a read") from error
        raise AssertionError("unreachable")

    def _check_absent(self, plan: Plan, partition: int) -> None:
        """Raise, unless a key of this partition, which cannot be read here, simply has no value here."""
        if not plan.parts:
            raise plan.refuse_whole()
        scope = Scope.KEY if self._parameters.partition is None else Scope.PARTITION
        outcome = plan.decide(plan.presence(partition), scope)
        if outcome is not Outcome.NOTHING:
            raise plan.refuse(outcome, partition)

    def _check_whole(self, plan: Plan) -> None:
        """Raise, unless a read over all partitions gives the whole answer."""
        if plan.whole() is not Presence.READABLE:
            raise plan.refuse_whole()

    # --- reading by a plan -------------------------------------------------------------------------------

    def _lookup(self, plan: Plan, data: bytes, read: Callable[[Any], bytes | None]) -> bytes | None:
        """What `read` finds in the part that has the key with these bytes; None: nothing is there."""
        if plan.partition_of is None:
            for part in plan.parts.values():
                stored = read(part.store)
                if stored is not None:
                    return stored
            self._check_whole(plan)
            return None
        partition = plan.partition_of(data)
        if partition in plan.parts:
            return read(plan.parts[partition].store)
        self._check_absent(plan, partition)
        return None

    def _open_all(self, open_one: Callable[[Any], Any]) -> list[Any]:
        """An iterator of each part, all made by one plan."""

        def open_each(plan: Plan) -> list[Any]:
            self._check_whole(plan)
            return _open_each([part.store for part in plan.parts.values()], open_one)

        return self._reading(open_each)

    def _open_of(self, data: bytes, open_one: Callable[[Any], Any]) -> list[Any]:
        """An iterator of the part that has the key with these bytes; of each, where that is not known."""

        def open_each(plan: Plan) -> list[Any]:
            if plan.partition_of is None:
                self._check_whole(plan)
                return _open_each([part.store for part in plan.parts.values()], open_one)
            partition = plan.partition_of(data)
            part = plan.parts.get(partition)
            if part is None:
                self._check_absent(plan, partition)
                return []
            return [open_one(part.store)]

        return self._reading(open_each)

    def _iterator_lost(self, error: ClosedStoreError) -> Exception:
        """What an open iterator raises when its store has been closed: it cannot go on, whatever comes."""
        try:
            plan = self._current()
        except InvalidStateStoreException as refused:
            return refused
        outcome = plan.decide(Presence.CLOSED, plan.scope, settled=True)
        return plan.refuse(outcome, self._parameters.partition, "an open iterator")

    # --- keys --------------------------------------------------------------------------------------------

    def _key_bytes(
        self, plan: Plan, key: Any, method: str, write: Callable[[Any], bytes | None] | None = None
    ) -> bytes:
        if key is None:
            raise TypeError(f"{method}() of store '{self._name}': the key must not be None")
        try:
            data = (write or plan.serialize)(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise unfit_key(self._name, plan.key_serde, f"{method}()", error) from error
        if data is None:
            raise unfit_key(self._name, plan.key_serde, f"{method}()")
        return data

    def _key_range(self, from_: Any, to: Any, method: str) -> tuple[bytes | None, bytes | None, bool]:
        """The bytes of both ends, None where it is open; whether anything can be between them."""
        plan = self._current()
        start = None if from_ is None else self._key_bytes(plan, from_, method)
        end = None if to is None else self._key_bytes(plan, to, method)
        if start is None or end is None or start <= end:
            return start, end, True
        _log.warning(
            "store '%s': %s() from a key that is after the one it goes to, in the order of their bytes, "
            "is empty; negative numbers come after positive ones in that order",
            self._name,
            method,
        )
        return start, end, False


def in_one_order(sources: Sequence[Any], order: Callable[[Any], Any], *, reverse: bool) -> Iterator[Any]:
    """The entries of several iterators in one order, over all of them."""
    if len(sources) == 1:
        only: Iterator[Any] = sources[0]
        return only
    return heapq.merge(*sources, key=order, reverse=reverse)


def _open_each(stores: Sequence[Any], open_one: Callable[[Any], Any]) -> list[Any]:
    """All of them, or none."""
    opened: list[Any] = []
    try:
        for store in stores:
            opened.append(open_one(store))
    except BaseException:
        for iterator in opened:
            iterator.close()
        raise
    return opened
