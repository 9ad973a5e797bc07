"""`KTable.transform_values` in one task: what transformers are called with, what goes on, what is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from processors.homes import MemoryHome, fed, plan_of, task_of

from millstream import (
    Consumed,
    Materialized,
    Produced,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    StreamsException,
    TopologyException,
    ValueTransformerWithKey,
)
from millstream.processors.changes import Change, reading, writing

COUNTS = Stores.key_value_store_builder(
    Stores.persistent_key_value_store("counts"), Serdes.string(), Serdes.long()
)
STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
SOME: list[tuple[str | None, str | None, int]] = [("a", "x", 1), ("a", None, 2), ("b", None, 3)]


class Shout(ValueTransformerWithKey):
    """Counts its calls in a store."""

    def init(self, context: Any) -> None:
        self.counts = context.get_state_store("counts")

    def transform(self, key: Any, value: Any) -> Any:
        self.counts.put(key, (self.counts.get(key) or 0) + 1)
        return f"{key}{value}{self.counts.get(key)}"


class Bringing:
    def get(self) -> Shout:
        return Shout()

    def stores(self) -> list[StoreBuilder]:
        return [COUNTS]


def counted(key: Any, value: Any, counts: Any) -> str:
    counts.put(key, (counts.get(key) or 0) + 1)
    return f"{key}{value}{counts.get(key)}"


def by_other_names(key: Any, value: Any, context: Any, totals: Any) -> str:
    assert context.application_id == "calls"
    return counted(key, value, totals)


@pytest.mark.parametrize(
    ("supplier", "stores", "is_there"),
    [
        (Shout, (COUNTS,), False),
        (lambda: Shout(), ("counts",), True),
        (Bringing(), (), False),
        (counted, (), True),
        (by_other_names, (COUNTS,), False),
    ],
)
def test_a_transformer_is_asked_for_each_change(supplier: Any, stores: Any, is_there: bool) -> None:
    """Deletions are changes, too. Its results are forwarded."""
    builder = StreamsBuilder()
    if is_there:
        builder.add_state_store(COUNTS)
    builder.table("in", STRINGS).transform_values(supplier, *stores).to_stream().to("out")
    home = MemoryHome()
    fed(task_of(plan_of(builder.build()), home), SOME)
    assert [(to, each.key, each.value, each.timestamp) for to, each in home.left] == [
        (0, b"a", b"ax1", 1),
        (0, b"a", b"aNone2", 2),
        (0, b"b", b"bNone1", 3),
    ]


def test_the_rows_of_a_store_are_in_its_changelog() -> None:
    """Nothing is told of a deletion where nothing was, unless it has no cache."""
    for made, told in ((Materialized.as_("rows"), 2), (Materialized.as_("rows").with_caching_disabled(), 3)):
        builder = StreamsBuilder()
        table = builder.table("in", STRINGS).transform_values(lambda key, value: value, materialized=made)
        table.to_stream().to("out")
        assert table.queryable_store_name == "rows"
        home = MemoryHome()
        fed(task_of(plan_of(builder.build()), home), SOME)
        changes = [(0, b"a", b"x", 1), (0, b"a", None, 2), (0, b"b", None, 3)]
        assert home.changes == changes[:told]
        assert [each.value for _, each in home.left] == [b"x", None, None][:told]
        assert not home.stores[0].content


def test_values_have_the_serde_of_the_topic_or_their_own() -> None:
    """The topic's serde applies if they go nowhere else."""
    longs = Produced.with_(Serdes.string(), Serdes.long())
    for own, to in ((None, longs), (Serdes.long(), longs), (Serdes.long(), None)):
        builder = StreamsBuilder()
        table = builder.table("in", STRINGS).transform_values(lambda key, value: 7, value_serde=own)
        table.to_stream().to("out", to)
        home = MemoryHome()
        fed(task_of(plan_of(builder.build()), home), SOME[:1])
        assert [each.value for _, each in home.left] == [bytes(7) + b"\7"]


def test_a_transformer_cannot_forward() -> None:
    """What it returns goes on."""

    def forwarding(key: Any, value: Any, context: Any) -> None:
        context.forward(value)

    builder = StreamsBuilder()
    builder.table("in", STRINGS).transform_values(forwarding).to_stream().to("out")
    with pytest.raises(StreamsException, match=r"forward\(\) is not supported"):
        fed(task_of(plan_of(builder.build()), MemoryHome()), SOME)


def test_a_value_stands_beside_the_one_before() -> None:
    """In bytes, null differs from an absent value."""
    write = writing(Serdes.string().serialize, True)
    for change in (Change("new", "old"), Change("", None), Change(None, ""), Change(None, None)):
        data = write(change)
        assert reading(Serdes.string().deserialize, True, True)(data) == change
        assert reading(Serdes.string().deserialize, True, False)(data) == change.new
    assert write(Change("é", "o")) == b"\0\0\0\3\xc3\xa9\1o"
    assert write(Change(None, None)) == bytes(5)


class Abstract(ValueTransformerWithKey):
    pass


SHARED = Shout()


@pytest.mark.parametrize(
    ("supplier", "told"),
    [
        (SHARED, "each task needs its own"),
        ("x", "takes a function of key and value"),
        (Abstract, "has no transform"),
        (lambda: SHARED, "generates single reference"),
        (lambda: 1, "made a int without transform"),
        (lambda: 1 / 0, "failed when it was called"),
        (lambda value: value, "takes key and value"),
        (counted, "StateStore counts is not added yet"),
    ],
)
def test_a_mistake_is_told_at_its_line(supplier: Callable[..., Any], told: str) -> None:
    """What is no supplier of transformers, and stores that are not there."""
    with pytest.raises(TopologyException, match=told):
        StreamsBuilder().table("in", STRINGS).transform_values(supplier)
