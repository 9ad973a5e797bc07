"""The handle that `KafkaStreams.store()` returns: one store over the partitions that are on this client.

A handle plans its reads once per `StoreSnapshot` (which partition is where, which may be read) and keeps
the plan while the runtime shows the same snapshot. So a `get` costs one comparison more than the store's
own, and every read still meets the state as it is now.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from millstream.errors import InvalidStateStoreException, SerializationException, SetupException
from millstream.query.iterators import KeyValueIterator
from millstream.query.parameters import StoreQueryParameters
from millstream.query.plan import Plan, make_plan
from millstream.query.provider import Outcome, Presence, Scope, Serde, StoreView
from millstream.stores.api import ClosedStoreError

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ReadOnlyKeyValueStore", "open_store"]

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

_log = logging.getLogger(__name__)

_ATTEMPTS = 3
"""How often a read looks again when a store was closed under it and the snapshot has changed since."""


def open_store(view: StoreView, parameters: StoreQueryParameters[Any]) -> ReadOnlyKeyValueStore[Any, Any]:
    """A handle on a store; what `KafkaStreams.store` is.

    Raises:
        TypeError: `parameters` are not StoreQueryParameters.
        InvalidStateStoreException: one of its leaves: the store cannot be read at all now.

    Source: KafkaStreams.store(StoreQueryParameters).
    Differs: type and partition are checked here already, not only at the first read.
    """
    if not isinstance(parameters, StoreQueryParameters):
        raise TypeError(
            f"store() takes StoreQueryParameters.from_name_and_type(name, "
            f"QueryableStoreTypes.key_value_store()), not {parameters!r}"
        )
    store: ReadOnlyKeyValueStore[Any, Any] = ReadOnlyKeyValueStore(view, parameters)
    store.check()
    return store


class ReadOnlyKeyValueStore(Generic[K, V]):
    """A key-value store, read-only, over its partitions on this client. Any number of threads may use it.

    Besides Kafka Streams' methods: `key in store`, `store[key]` (KeyError if there is none), iteration
    over the keys, `keys()`, `values()`, `items()`, `to_arrow()`, `to_pandas()`.

    Raises, from every read:
        StreamsRebalancingException: what it needs cannot be read now; retry with the same handle.
        StateStoreMigratedException: what it read before has left this client; ask for a new handle.
        StateStoreNotAvailableException: the client is stopping or has stopped.
        InvalidStateStorePartitionException: the partition it is for is not on this client.
        SerializationException: a key or value does not fit the store's serde.
        ProcessorStateException: what is on disk is damaged, or cannot be read.

    Source: org.apache.kafka.streams.state.ReadOnlyKeyValueStore; KIP-216.
    Differs: ranges over several partitions are in the order of the keys' bytes (Kafka: one partition after
        the other). A key whose partition was never here has no value (None), as with Kafka; one whose
        partition has left raises StateStoreMigratedException.
    """

    def __init__(self, view: StoreView, parameters: StoreQueryParameters[Any]) -> None:
        self._snapshot = view.snapshot
        self._parameters = parameters
        self._name = parameters.store_name
        self._seen: frozenset[int] = frozenset()
        self._plan: Plan | None = None

    # --- reads of Kafka Streams --------------------------------------------------------------------------

    def get(self, key: K) -> V | None:
        """The value of a key; None if it has none here.

        Raises:
            TypeError: the key is None.
        """
        # The common case in as few steps as possible; `_find` has all the others.
        plan = self._plan
        if plan is None or plan.snapshot is not self._snapshot():
            plan = self._replan()
        data = self._key_bytes(plan, key, "get")
        partition_of = plan.partition_of
        reader = None if partition_of is None else plan.readers.get(partition_of(data))
        try:
            stored = self._find(data) if reader is None else reader(data)
        except ClosedStoreError:
            stored = self._find(data)
        return None if stored is None else plan.decode(stored)

    def multi_get(self, keys: Sequence[K]) -> list[V | None]:
        """The values of many keys, in their order; None for each that has none here."""
        plan = self._current()
        data = [self._key_bytes(plan, key, "multi_get") for key in keys]
        return [
            None if stored is None else plan.decode(stored)
            for stored in self._reading(lambda plan: self._lookup_many(plan, data))
        ]

    def range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The entries from `from_` to `to`, both included; None: open on that side."""
        return self._between(from_, to, "range", reverse=False)

    def reverse_range(self, from_: K | None, to: K | None) -> KeyValueIterator[K, V]:
        """The same entries as `range(from_, to)`, last key first."""
        return self._between(from_, to, "reverse_range", reverse=True)

    def all(self) -> KeyValueIterator[K, V]:
        """Every entry."""
        return self._between(None, None, "all", reverse=False)

    def reverse_all(self) -> KeyValueIterator[K, V]:
        """Every entry, last key first."""
        return self._between(None, None, "reverse_all", reverse=True)

    def prefix_scan(self, prefix: Any, prefix_serializer: Serde | None = None) -> KeyValueIterator[K, V]:
        """The entries whose key's bytes begin with those of `prefix`.

        `prefix_serializer` writes the prefix; the key's serde does if it is left out.

        Raises:
            TypeError: the prefix is None.
        """
        plan = self._current()
        write = plan.serialize if prefix_serializer is None else prefix_serializer.serialize
        start = self._key_bytes(plan, prefix, "prefix_scan", write)
        return self._scan(plan, start, _after_prefix(start), reverse=False, end_inclusive=False)

    def approximate_num_entries(self) -> int:
        """About how many entries there are here; too high while updates are not compacted yet."""

        def count(plan: Plan) -> int:
            self._check_whole(plan)
            return sum(part.store.approximate_num_entries() for part in plan.parts.values())

        return self._reading(count)

    # --- reads that Python users expect ------------------------------------------------------------------

    def __contains__(self, key: Any) -> bool:
        data = self._key_bytes(self._current(), key, "__contains__")
        return self._find(data) is not None

    def __getitem__(self, key: K) -> V:
        plan = self._current()
        data = self._key_bytes(plan, key, "__getitem__")
        stored = self._find(data)
        if stored is None:
            raise KeyError(key)
        value: V = plan.decode(stored)
        return value

    def __iter__(self) -> Iterator[K]:
        return self.keys()

    def keys(self) -> Iterator[K]:
        """Every key, in order."""
        with self.all() as entries:
            for key, _ in entries:
                yield key

    def values(self) -> Iterator[V]:
        """Every value, in the order of the keys."""
        with self.all() as entries:
            for _, value in entries:
                yield value

    def items(self) -> KeyValueIterator[K, V]:
        """Every entry; the same as `all()`."""
        return self.all()

    def to_arrow(self) -> pyarrow.Table:
        """Every entry as an Arrow table with the columns `key`, `value` (and `timestamp`).

        Types follow the serdes; values that are dicts become structs, or JSON text where they have no
        common shape.
        """
        from millstream.query.arrow import to_table

        plan = self._current()
        with self.all() as entries:
            timestamped = self._parameters.queryable_store_type.timestamped
            return to_table(entries, plan.key_serde.name, plan.value_serde.name, timestamped=timestamped)

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

    def __repr__(self) -> str:
        head = f"ReadOnlyKeyValueStore '{self._name}'"
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

    # --- reading by a plan -------------------------------------------------------------------------------

    def _find(self, data: bytes) -> bytes | None:
        return self._reading(lambda plan: self._lookup(plan, data))

    def _lookup(self, plan: Plan, data: bytes) -> bytes | None:
        if plan.partition_of is None:
            for reader in plan.readers.values():
                stored = reader(data)
                if stored is not None:
                    return stored
            self._check_whole(plan)
            return None
        partition = plan.partition_of(data)
        if partition in plan.readers:
            return plan.readers[partition](data)
        self._check_absent(plan, partition)
        return None

    def _lookup_many(self, plan: Plan, keys: Sequence[bytes]) -> list[bytes | None]:
        if plan.partition_of is None:
            return [self._lookup(plan, key) for key in keys]
        places: dict[int, list[int]] = {}
        for place, key in enumerate(keys):
            places.setdefault(plan.partition_of(key), []).append(place)
        found: list[bytes | None] = [None] * len(keys)
        for partition, indexes in places.items():
            part = plan.parts.get(partition)
            if part is None:
                self._check_absent(plan, partition)
                continue
            for index, stored in zip(indexes, part.store.multi_get([keys[i] for i in indexes]), strict=True):
                found[index] = stored
        return found

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

    def _between(
        self, from_: K | None, to: K | None, method: str, *, reverse: bool
    ) -> KeyValueIterator[K, V]:
        plan = self._current()
        start = None if from_ is None else self._key_bytes(plan, from_, method)
        end = None if to is None else self._key_bytes(plan, to, method)
        if start is not None and end is not None and start > end:
            _log.warning(
                "store '%s': %s() from a key that is after the one it goes to, in the order of their bytes, "
                "is empty; negative numbers come after positive ones in that order",
                self._name,
                method,
            )
            return self._scan(plan, start, start, reverse=reverse, end_inclusive=False)
        return self._scan(plan, start, end, reverse=reverse, end_inclusive=True)

    def _scan(
        self, plan: Plan, start: bytes | None, end: bytes | None, *, reverse: bool, end_inclusive: bool
    ) -> KeyValueIterator[K, V]:
        def open_all(plan: Plan) -> list[Any]:
            self._check_whole(plan)
            opened: list[Any] = []
            try:
                for part in plan.parts.values():
                    opened.append(part.store.range(start, end, reverse=reverse, end_inclusive=end_inclusive))
            except BaseException:
                for iterator in opened:
                    iterator.close()
                raise
            return opened

        sources = self._reading(open_all)
        entries = sources[0] if len(sources) == 1 else heapq.merge(*sources, key=_key_of, reverse=reverse)
        return KeyValueIterator(
            self._name,
            entries,
            sources,
            plan.decode_key,
            plan.decode,
            self._iterator_lost,
        )

    def _iterator_lost(self, error: ClosedStoreError) -> Exception:
        """What an open iterator raises when its store has been closed: it cannot go on, whatever comes."""
        try:
            plan = self._current()
        except InvalidStateStoreException as refused:
            return refused
        outcome = plan.decide(Presence.CLOSED, plan.scope, settled=True)
        return plan.refuse(outcome, self._parameters.partition, "an open iterator")

    def _key_bytes(
        self, plan: Plan, key: Any, method: str, write: Callable[[Any], bytes | None] | None = None
    ) -> bytes:
        if key is None:
            raise TypeError(f"{method}() of store '{self._name}': the key must not be None")
        try:
            data = (write or plan.serialize)(key)
        except Exception as error:  # whatever a serde raises, users look for one exception
            raise SerializationException(
                f"{method}() of store '{self._name}' (keys of serde '{plan.key_serde.name}'): {error}"
            ) from error
        if data is None:
            raise SerializationException(
                f"{method}() of store '{self._name}': serde '{plan.key_serde.name}' has no bytes for this key"
            )
        return data


_key_of: Callable[[tuple[bytes, bytes]], bytes] = itemgetter(0)


def _after_prefix(prefix: bytes) -> bytes | None:
    """The least key that is greater than every key with this prefix; None: there is none."""
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else None
