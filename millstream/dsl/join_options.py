"""The option objects of joins. See options.py for what all options have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from millstream.clock import milliseconds
from millstream.dsl.options import Named, WithSerdesAndName
from millstream.errors import TopologyException
from millstream.serdes.serde import Serde
from millstream.topology.names import validate_name

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Joined", "StreamJoined", "TableJoined"]


@dataclass(frozen=True)
class _WithOtherSerde(WithSerdesAndName):
    """A key serde, a serde for the values of each side, and a name. `value_serde` is the left side's."""

    other_value_serde: Serde | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.other_value_serde is not None and not isinstance(self.other_value_serde, Serde):
            raise TopologyException(
                f"other_value_serde of {type(self).__name__} is a serde such as Serdes.string(), got "
                f"{self.other_value_serde!r}"
            )

    def with_other_value_serde(self, other_value_serde: Serde | None) -> Self:
        """The same with another serde for the right side's values."""
        return replace(self, other_value_serde=other_value_serde)


@dataclass(frozen=True)
class Joined(_WithOtherSerde):
    """How a stream is joined with a table. The name is the join's, and its repartition topic's.

    With a grace period, a click gets the price as of its own time, even if the price arrives up to a minute
    of stream time later:

        prices = builder.table("prices", Materialized.as_("prices").with_history(timedelta(hours=1)))
        clicks.join(prices, pay, Joined().with_grace_period(timedelta(minutes=1)))

    Attributes:
        grace_period: how long a record waits, in stream time, for updates of the table that are older than
            it. It is then joined with the row as of its own time. None: it does not wait.

    Source: org.apache.kafka.streams.kstream.Joined, KIP-923.
    """

    grace_period: timedelta | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (
            self.grace_period is not None
            and milliseconds(self.grace_period, "the grace period of Joined") < 0
        ):
            raise TopologyException(f"Grace period must not be negative, got {self.grace_period}")

    @classmethod
    def with_(
        cls,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
        name: str | None = None,
        grace_period: timedelta | None = None,
    ) -> Joined:
        """Join with these serdes: for the keys, the stream's values, and the table's values."""
        return cls(key_serde, value_serde, name, other_value_serde, grace_period)

    def with_grace_period(self, grace_period: timedelta | None) -> Joined:
        """The same with another grace period; the table then needs a history that is at least as long."""
        return replace(self, grace_period=grace_period)


@dataclass(frozen=True)
class StreamJoined(_WithOtherSerde):
    """How two streams are joined. The name is the prefix of the names of the join's steps.

    `ads.join(clicks, joiner, windows, StreamJoined.as_("kept").with_name("ads-with-clicks"))`

    Attributes:
        store_name: the prefix of the names of both sides' stores.
        logging_enabled: whether they have changelogs.
        topic_config: configs of the changelog topics, on top of the defaults.

    Source: org.apache.kafka.streams.kstream.StreamJoined.
    Differs: no store suppliers; the records are kept in the query's state, so memory does not limit them.
    """

    store_name: str | None = None
    logging_enabled: bool = True
    topic_config: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.store_name is not None:
            validate_name(self.store_name, "store name")

    @classmethod
    def as_(cls, store_name: str) -> StreamJoined:
        """Stores with this name prefix; `with_name` names the steps."""
        return cls(store_name=validate_name(store_name, "store name"))

    @classmethod
    def with_(
        cls,
        key_serde: Serde | None = None,
        value_serde: Serde | None = None,
        other_value_serde: Serde | None = None,
    ) -> StreamJoined:
        """Join with these serdes: for the keys, the left stream's values, and the right stream's."""
        return cls(key_serde, value_serde, None, other_value_serde)

    def with_store_name(self, store_name: str) -> StreamJoined:
        """The same with another name prefix for the stores."""
        return replace(self, store_name=validate_name(store_name, "store name"))

    def with_logging_enabled(self, config: Mapping[str, str] | None = None) -> StreamJoined:
        """The same with changelogs, whose topics get these configs on top of the defaults."""
        for key, value in (config or {}).items():
            if not isinstance(key, str) or not isinstance(value, str):
                raise TopologyException(
                    f"configs of a changelog topic map text to text, got {key!r}: {value!r}"
                )
        return replace(self, logging_enabled=True, topic_config=dict(config or {}))

    def with_logging_disabled(self) -> StreamJoined:
        """The same without changelogs."""
        return replace(self, logging_enabled=False, topic_config={})


@dataclass(frozen=True)
class TableJoined(Named):
    """How two tables are joined by a foreign key: the name prefix of the join's steps and topics.

    `orders.join(users, lambda order: order.user, joiner, TableJoined.as_("orders-by-user"))`

    Source: org.apache.kafka.streams.kstream.TableJoined.
    Differs: no partitioners; internal topics are partitioned by the key alone.
    """
