"""The option objects of the DSL: an operation's arguments other than its functions.

Each is frozen: a `with_…` method returns a changed copy. Create them by `with_` (serdes first) or, where
    Kafka
Streams names things, by `as_` (the name first). Their attributes can be read.

Differs: Kafka's `Grouped.keySerde(serde)` and its like would hide the attributes; write
    `Grouped.with_(key_serde=serde)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from millstream.clock import milliseconds
from millstream.dsl.store_builders import StoreSupplier
from millstream.dsl.timestamps import Extractor, extractor
from millstream.errors import TopologyException
from millstream.serdes.serde import Serde
from millstream.topology.columns import Partitioner
from millstream.topology.functions import accepts, arity, describe_function
from millstream.topology.names import validate_name
from millstream.topology.nodes import OffsetReset, OffsetResetByDuration, OffsetResetPolicy

if TYPE_CHECKING:
    from typing import Self

    from millstream.dsl.kstream import KStream

__all__ = [
    "AutoOffsetReset",
    "Branched",
    "Consumed",
    "Grouped",
    "Materialized",
    "Named",
    "Produced",
    "Repartitioned",
    "StoreType",
    "name_of",
    "option",
]

O = TypeVar("O")  # noqa: E741


@dataclass(frozen=True)
class Named:
    """The name of an operation, in place of `KSTREAM-FILTER-0000000003`.

    Raises:
        TopologyException: it is not valid in a topic's name.

    Source: org.apache.kafka.streams.kstream.Named.
    """

    name: str

    def __post_init__(self) -> None:
        validate_name(self.name)

    @classmethod
    def as_(cls, name: str) -> Self:
        """An operation of this name."""
        return cls(name)

    def with_name(self, name: str) -> Self:
        """The same with another name."""
        return replace(self, name=name)


@dataclass(frozen=True)
class _WithSerdes:
    """The base of options with a key serde and a value serde."""

    key_serde: Serde | None = None
    value_serde: Serde | None = None

    def __post_init__(self) -> None:
        for word, serde in (("key_serde", self.key_serde), ("value_serde", self.value_serde)):
            if serde is not None and not isinstance(serde, Serde):
                raise TopologyException(
                    f"{word} of {type(self).__name__} is a serde such as Serdes.string(), got {serde!r}"
                )

    def with_key_serde(self, key_serde: Serde | None) -> Self:
        """The same with another key serde."""
        return replace(self, key_serde=key_serde)

    def with_value_serde(self, value_serde: Serde | None) -> Self:
        """The same with another value serde."""
        return replace(self, value_serde=value_serde)


@dataclass(frozen=True)
class WithSerdesAndName(_WithSerdes):
    """The same, and a name."""

    name: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name is not None:
            validate_name(self.name)

    @classmethod
    def as_(cls, name: str) -> Self:
        """An option with this name and nothing else."""
        return cls(name=validate_name(name))

    def with_name(self, name: str) -> Self:
        """The same with another name."""
        return replace(self, name=validate_name(name))


class AutoOffsetReset:
    """Where a source starts where the application has committed nothing yet.

    Source: org.apache.kafka.streams.AutoOffsetReset (KIP-1106).
    Differs: it applies at the beginning only. If an offset is lost later, that is an error with every policy.
    """

    EARLIEST: ClassVar = OffsetReset.EARLIEST
    LATEST: ClassVar = OffsetReset.LATEST

    @staticmethod
    def earliest() -> OffsetReset:
        """With the first record still available."""
        return OffsetReset.EARLIEST

    @staticmethod
    def latest() -> OffsetReset:
        """With records that arrive after the start."""
        return OffsetReset.LATEST

    @staticmethod
    def none() -> OffsetReset:
        """Nowhere: without committed offsets, or a reset that says where to start, the pipeline ends."""
        return OffsetReset.NONE

    @staticmethod
    def by_duration(duration: timedelta) -> OffsetResetByDuration:
        """With each partition's first record that is no older than this; if there is none, with the next one.

        Raises:
            TopologyException: `duration` is not a timedelta, or is negative.
        """
        duration_ms = milliseconds(duration, "the duration of AutoOffsetReset.by_duration()")
        if duration_ms < 0:
            raise TopologyException("Duration cannot be negative")
        return OffsetResetByDuration(duration_ms)


@dataclass(frozen=True)
class Consumed(WithSerdesAndName):
    """How a topic is read.

    Source: org.apache.kafka.streams.kstream.Consumed.
    """

    offset_reset_policy: OffsetResetPolicy | None = None
    timestamp_extractor: Extractor | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        own = extractor(self.timestamp_extractor, "timestamp_extractor of Consumed")
        object.__setattr__(self, "timestamp_extractor", own)
        if self.offset_reset_policy is not None and not isinstance(
            self.offset_reset_policy, OffsetResetPolicy
        ):
            raise TopologyException(
                "offset_reset_policy of Consumed is AutoOffsetReset.earliest() or AutoOffsetReset.latest(), "
                f"none() or by_duration(); got {self.offset_reset_policy!r}"
            )

    @classmethod
    def with_(
        cls,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        offset_reset_policy: OffsetResetPolicy | None = None,
        timestamp_extractor: Extractor | None = None,
    ) -> Consumed:
        """Read with these serdes; None means the configured default."""
        return cls(key_serde, value_serde, None, offset_reset_policy, timestamp_extractor)

    def with_offset_reset_policy(self, offset_reset_policy: OffsetResetPolicy | None) -> Consumed:
        """The same with another start; None means the configured `auto.offset.reset`."""
        return replace(self, offset_reset_policy=offset_reset_policy)

    def with_timestamp_extractor(self, timestamp_extractor: Extractor | None) -> Consumed:
        """The same with another time for each record: a ready-made extractor, or a function of the record.

            consumed.with_timestamp_extractor(lambda value: value.ordered_at)

        A function gets Columns and returns one, a timestamp or milliseconds since 1970. A record for which
        that is negative is dropped and counted; one for which it is NULL ends the pipeline. None means the
        configured `default.timestamp.extractor`.
        """
        return replace(self, timestamp_extractor=timestamp_extractor)


@dataclass(frozen=True)
class Produced(WithSerdesAndName):
    """How a topic is written.

    Attributes:
        partitioner: `lambda key, value: …` to the Column of partition numbers; None: as Kafka's producers do.

    Source: org.apache.kafka.streams.kstream.Produced.
    """

    partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_partitioner("Produced", self.partitioner)

    @classmethod
    def with_(
        cls,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        partitioner: Partitioner | None = None,
    ) -> Produced:
        """Write with these serdes; None means the stream's, else the configured default."""
        return cls(key_serde, value_serde, None, partitioner)

    def with_stream_partitioner(self, partitioner: Partitioner | None) -> Produced:
        """The same with another partitioner."""
        return replace(self, partitioner=partitioner)


@dataclass(frozen=True)
class Grouped(WithSerdesAndName):
    """How records are grouped. The name is used for the repartition topic: `<name>-repartition`.

    Source: org.apache.kafka.streams.kstream.Grouped.
    """

    @classmethod
    def with_(
        cls, key_serde: Serde | None = None, value_serde: Serde | None = None, name: str | None = None
    ) -> Grouped:
        """Group with these serdes.

        Differs: the name comes last here, first in Kafka Streams.
        """
        return cls(key_serde, value_serde, name)


@dataclass(frozen=True)
class Repartitioned(WithSerdesAndName):
    """How a repartition topic is created. The name is used for the topic: `<name>-repartition`.

    Attributes:
        number_of_partitions: of the topic; None: as many as the topics before it.
        partitioner: `lambda key, value: …` to the Column of partition numbers; None, or if the result is
            NULL: by the key, as Kafka's producers do.

    Source: org.apache.kafka.streams.kstream.Repartitioned.
    Differs: a later aggregation or join still works by key: one key is one row, in whichever partitions its
        records are.
    """

    number_of_partitions: int | None = None
    partitioner: Partitioner | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        count = self.number_of_partitions
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise TopologyException(f"number_of_partitions of Repartitioned is 1 or more, got {count!r}")
        _check_partitioner("Repartitioned", self.partitioner)

    @classmethod
    def with_(
        cls,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        number_of_partitions: int | None = None,
        partitioner: Partitioner | None = None,
    ) -> Repartitioned:
        """A topic with these serdes; without a number, as many partitions as those before it."""
        return cls(key_serde, value_serde, None, number_of_partitions, partitioner)

    def with_stream_partitioner(self, partitioner: Partitioner | None) -> Repartitioned:
        """The same with another partitioner."""
        return replace(self, partitioner=partitioner)

    def with_number_of_partitions(self, number_of_partitions: int | None) -> Repartitioned:
        """The same with another number of partitions."""
        return replace(self, number_of_partitions=number_of_partitions)


class StoreType(Enum):
    """Where a client keeps a store's data.

    Source: org.apache.kafka.streams.kstream.Materialized.StoreType.
    """

    ROCKS_DB = "rocksDB"
    IN_MEMORY = "in_memory"


@dataclass(frozen=True)
class Materialized(_WithSerdes):
    """A table's store: its name, serdes and storage. Only a store with a name can be queried.

    Attributes:
        logging_enabled: whether there is a changelog. A store is a view of its changelog, so a store without
            one cannot be queried.
        topic_config: configs of the changelog topic, on top of the defaults.
        caching_enabled: with a cache, each key's last value is emitted when the task commits. Without one,
            each value is, as soon as it is there.
        store_type: None means the configured default.
        retention: for the store of a windowed aggregation: how long a window can be queried, counted from
            its start (a session: its end). None: as long as it can still get records.
        history: for a table's store: how far back it can be read as of an earlier time. None: current values
            only.
        supplier: the store as described by `Stores`; the attributes above follow it.

    Source: org.apache.kafka.streams.kstream.Materialized.
    """

    store_name: str | None = None
    logging_enabled: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict, hash=False)
    caching_enabled: bool = True
    store_type: StoreType | None = None
    retention: timedelta | None = None
    history: timedelta | None = None
    supplier: StoreSupplier | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.history is not None and (
            not isinstance(self.history, timedelta) or self.history < timedelta(0)
        ):
            raise TopologyException(
                "the history of Materialized is a timedelta that is not negative, such as "
                f"timedelta(hours=1); got {self.history!r}"
            )
        if self.retention is not None:
            if not isinstance(self.retention, timedelta):
                raise TopologyException(
                    f"the retention of Materialized is a timedelta, such as timedelta(days=1); got "
                    f"{self.retention!r}"
                )
            if self.retention < timedelta(0):
                raise TopologyException(f"Retention must not be negative, got {self.retention}")
        if self.store_name is not None:
            validate_name(self.store_name, "store name")
        if self.store_type is not None and not isinstance(self.store_type, StoreType):
            raise TopologyException(
                "the store type of Materialized is StoreType.ROCKS_DB or StoreType.IN_MEMORY, "
                f"got {self.store_type!r}"
            )

    @classmethod
    def as_(cls, store_name: str | StoreType | StoreSupplier) -> Materialized:
        """A store of this name, which can be queried by it; one that `Stores` describes; or an unnamed store
        of this type."""
        if isinstance(store_name, StoreType):
            return cls(store_type=store_name)
        if isinstance(store_name, StoreSupplier):
            type = StoreType.ROCKS_DB if store_name.persistent else StoreType.IN_MEMORY
            return cls(
                store_name=store_name.name,
                store_type=type,
                retention=store_name.retention,
                history=store_name.history,
                supplier=store_name,
            )
        return cls(store_name=validate_name(store_name, "store name"))

    @classmethod
    def with_(cls, key_serde: Serde | None = None, value_serde: Serde | None = None) -> Materialized:
        """An unnamed store with these serdes."""
        return cls(key_serde, value_serde)

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> Materialized:
        """The same with a changelog, whose topic gets these configs on top of the defaults."""
        for key, value in (config or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TopologyException(
                    f"configs of a changelog topic map text to text, got {key!r}: {value!r}"
                )
        return replace(self, logging_enabled=True, topic_config=dict(config or {}))

    def with_logging_disabled(self) -> Materialized:
        """The same without a changelog: the store can then not be queried."""
        return replace(self, logging_enabled=False, topic_config={})

    def with_caching_enabled(self) -> Materialized:
        """The same with a cache: emit each key's last value when the task commits. This is the default."""
        return replace(self, caching_enabled=True)

    def with_caching_disabled(self) -> Materialized:
        """The same without a cache: emit each value of a key, one for each record."""
        return replace(self, caching_enabled=False)

    def with_retention(self, retention: timedelta) -> Materialized:
        """The same, keeping windows for this long; only for stores of windowed aggregations."""
        self._check_no_supplier("retention")
        return replace(self, retention=retention)

    def with_history(self, history: timedelta) -> Materialized:
        """The same with a history: `store.as_of(timestamp)` reads the store as of a time within it.

        Joins use the records' times: a stream's record finds the row as of its own time, and an update older
        than its key's last one does not change joins with other tables.

        The history is counted back from the newest record timestamp of each partition.

        Source: KIP-889 (Stores.persistentVersionedKeyValueStore).
        """
        self._check_no_supplier("history")
        return replace(self, history=history)

    def with_store_type(self, store_type: StoreType) -> Materialized:
        """The same in another kind of store."""
        self._check_no_supplier("store type")
        return replace(self, store_type=store_type)

    def _check_no_supplier(self, what: str) -> None:
        if self.supplier is not None:
            raise TopologyException(
                f"Cannot set {what} when store supplier is pre-configured: {self.supplier} has it"
            )


@dataclass(frozen=True)
class Branched:
    """How one branch of a split is named and used.

        Attributes:
            name: the branch's key in the dict is the splitter's name and this; without one, the branch's
                number.
            chain_function: `lambda stream: stream`: its result goes into the dict, unless it is None.
            chain_consumer: `lambda stream: None`: consumes the branch, which is then not in the dict.

    Source: org.apache.kafka.streams.kstream.Branched.
    """

    name: str | None = None
    chain_function: Callable[[KStream], KStream | None] | None = None
    chain_consumer: Callable[[KStream], None] | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            validate_name(self.name, "name of a branch")
        for chain in (self.chain_function, self.chain_consumer):
            if chain is not None and (not callable(chain) or not accepts(chain, 1)):
                raise TopologyException(
                    f"a branch takes a function of one stream, got {describe_function(chain)}"
                )

    @classmethod
    def as_(cls, name: str) -> Branched:
        """A branch of this name."""
        return cls(name=validate_name(name, "name of a branch"))

    @classmethod
    def with_function(cls, chain: Callable[[KStream], KStream | None], name: str | None = None) -> Branched:
        """A branch that goes through a function."""
        return cls(name=name, chain_function=chain)

    @classmethod
    def with_consumer(cls, chain: Callable[[KStream], None], name: str | None = None) -> Branched:
        """A branch that a function consumes."""
        return cls(name=name, chain_consumer=chain)

    def with_name(self, name: str) -> Branched:
        """The same with another name."""
        return replace(self, name=validate_name(name, "name of a branch"))


def _check_partitioner(option: str, partitioner: Any) -> None:
    if partitioner is not None and (not callable(partitioner) or not arity(partitioner)):
        raise TopologyException(
            f"the partitioner of {option} is a function of (value), (key, value) or (key, value, record), "
            f"got {describe_function(partitioner)}"
        )


def option(given: Any, kind: type[O], operation: str) -> O:
    """`given`, if it is the option that `operation` takes; its default when it is None.

    Raises:
        TopologyException: it is something else.
    """
    if given is None:
        return kind()
    if not isinstance(given, kind):
        if isinstance(given, str | Named):
            hint = "; pass a name as named="
        elif callable(given):
            hint = f"; {describe_function(given)} is one function too many"
        else:
            hint = ""
        raise TopologyException(f"{operation}() takes a {kind.__name__} here, got {given!r}{hint}")
    return given


def name_of(named: str | Named | None) -> str | None:
    """The name in `named`, checked.

    Raises:
        TopologyException: it is neither a name nor a Named, or not valid in a topic's name.
    """
    if named is None or isinstance(named, str):
        return None if named is None else validate_name(named)
    if not isinstance(named, Named):
        raise TopologyException(f"named= takes a str or a Named, got {named!r}")
    return named.name
