"""`process`, `process_values` and stores in the DSL: what becomes of them in nodes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from millstream import (
    Consumed,
    FixedKeyProcessor,
    Materialized,
    Processor,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    processor,
)
from millstream.dsl.kstream import KStream
from millstream.errors import TopologyException
from millstream.model import StoreKind
from millstream.topology.nodes import Process, Sink

DAY = timedelta(days=1)
STRINGS = (Serdes.string(), Serdes.string())


class Nothing(Processor):
    def process(self, record: Any) -> None:
        pass


class Values(FixedKeyProcessor):
    def process(self, record: Any) -> None:
        pass


def counts(name: str = "counts") -> StoreBuilder:
    supplier = Stores.persistent_key_value_store(name)
    return Stores.key_value_store_builder(supplier, Serdes.string(), Serdes.long())


def of_kind(builder: StreamsBuilder, kind: type) -> list[Any]:
    return [node for node in builder.build().nodes if isinstance(node, kind)]


def test_a_processors_serdes_are_those_of_what_comes_in_unless_it_says_others() -> None:
    """Its key's too, unless they are fixed."""
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(*STRINGS))
    stream.process(Nothing).to("a")
    stream.process(Nothing, key_serde=Serdes.long(), value_serde=Serdes.double()).to("b")
    stream.process_values(Values, value_serde=Serdes.double()).to("c")
    assert [(sink.key_serde, sink.value_serde) for sink in of_kind(builder, Sink)] == [
        STRINGS,
        (Serdes.long(), Serdes.double()),
        (Serdes.string(), Serdes.double()),
    ]


def test_stores_are_named_or_given_or_brought() -> None:
    """Equal builders are one store."""
    builder = StreamsBuilder().add_state_store(counts())
    stream = builder.stream("in")

    @processor(stores=[counts("brought"), "counts"])
    def by_function(record: Any, brought: Any, named: Any) -> None:
        pass

    stream.process(Nothing, "counts", counts("given"))
    stream.process_values(by_function, counts("given"))
    one, other = of_kind(builder, Process)
    assert [store.name for store in one.connected] == ["counts", "given"]
    assert [store.name for store in other.connected] == ["brought", "given", "counts"]
    assert list(builder.build().stores) == ["counts", "given", "brought"]


def test_a_builder_says_how_the_store_is_kept_and_logged() -> None:
    """Builders are frozen: each method gives another one."""
    plain = counts()
    assert plain.name == "counts"
    assert plain.declared.timestamped is False
    assert plain.declared.queryable is True
    unlogged = plain.with_logging_disabled()
    assert (plain.logging_enabled, unlogged.logging_enabled) == (True, False)
    assert (unlogged.declared.logged, unlogged.declared.queryable) == (False, False)
    logged = unlogged.with_logging_enabled({"retention.ms": 5}).declared
    assert (logged.logged, logged.topic_config) == (True, {"retention.ms": "5"})
    assert plain.with_caching_enabled().with_caching_disabled() == plain
    sessions = Stores.session_store_builder(Stores.in_memory_session_store("s", DAY), *STRINGS).declared
    assert (sessions.kind, sessions.retention_ms, sessions.persistent) == (
        StoreKind.SESSION,
        86_400_000,
        False,
    )
    windows = Stores.persistent_window_store("w", DAY, timedelta(hours=1), True)
    declared = Stores.timestamped_window_store_builder(windows, *STRINGS).declared
    assert (declared.window_size_ms, declared.duplicates, declared.timestamped) == (3_600_000, True, True)
    assert declared.queryable is True
    versions = Stores.persistent_versioned_key_value_store("v", DAY)
    assert Stores.versioned_key_value_store_builder(versions, *STRINGS).declared.history_ms == 86_400_000


def same(instance: Any) -> Callable[[], Any]:
    return lambda: instance


def returns_nothing() -> None:
    pass


def needs(argument: int) -> Any:
    raise AssertionError(argument)


def generator(record: Any) -> Any:
    yield record


class Brings(Nothing):
    @staticmethod
    def stores() -> Any:
        return "counts"


class NoProcess(Processor):
    pass


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (r"got a processor, Nothing\(…\).*Nothing itself", lambda s: s.process(Nothing())),
        (
            r"test_process.py:\d+ <lambda> generates single reference",
            lambda s: s.process(same(Nothing())),
        ),
        ("made a NoneType without process.*did you forget a `return`", lambda s: s.process(returns_nothing)),
        (r"which failed when it was called without arguments \(TypeError", lambda s: s.process(needs)),
        (r"which failed when it was called without arguments", lambda s: s.process(generator)),
        ("takes a class that inherits Processor", lambda s: s.process("counts")),
        ("the class NoProcess, which has no process", lambda s: s.process(NoProcess)),
        ("takes a Processor, .*use process_values", lambda s: s.process(Values)),
        (r"takes a FixedKeyProcessor, .*use process\(\)", lambda s: s.process_values(Nothing)),
        (
            "StateStore count is not added yet: .*Did you mean 'counts'",
            lambda s: s.process(Nothing, counts(), "count"),
        ),
        ("takes a store builder", lambda s: s.process(Nothing, 5)),
        ("stores.. of .*Brings returns store builders", lambda s: s.process(Brings)),
        ("requests the store 'table', which belongs to a table", lambda s: s.process(Nothing, "table")),
        (
            "Global StateStore global can be used by a Processor without being specified",
            lambda s: s.process(Nothing, "global"),
        ),
        (
            "A different StateStore has already been added with the name table",
            lambda s: s.process(Nothing, counts("table")),
        ),
        ("a node named 'taken' already exists", lambda s: s.process(Nothing, named="taken")),
    ],
)
def test_a_mistake_gets_a_sentence(told: str, written: Callable[[KStream], object]) -> None:
    """At the line that makes it, and nothing is left of it."""
    builder = StreamsBuilder()
    builder.table("t", Materialized.as_("table"))
    builder.global_table("g", Materialized.as_("global"))
    stream = builder.stream("in")
    stream.filter(lambda value: value, named="taken")
    before = len(builder.build().nodes)
    with pytest.raises(TopologyException, match=told):
        written(stream)
    assert len(builder.build().nodes) == before


@pytest.mark.parametrize(
    ("told", "written"),
    [
        (
            "takes another supplier, such as Stores.persistent_window_store",
            lambda: Stores.window_store_builder(Stores.persistent_key_value_store("s")),
        ),
        (
            "takes another supplier, such as Stores.persistent_key_value_store",
            lambda: Stores.key_value_store_builder(Stores.persistent_versioned_key_value_store("s", DAY)),
        ),
        ("takes a supplier, such as", lambda: Stores.session_store_builder("s")),
        (
            "the key serde of store 's' is a serde",
            lambda: Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), str),
        ),
        (
            "Versioned stores do not support caching",
            lambda: Stores.versioned_key_value_store_builder(
                Stores.persistent_versioned_key_value_store("s", DAY)
            ).with_caching_enabled(),
        ),
    ],
)
def test_a_builder_that_does_not_go_together_is_refused(told: str, written: Callable[[], object]) -> None:
    """In one sentence."""
    with pytest.raises(TopologyException, match=told):
        written()


def test_nothing_of_sparks_can_be_between_processors_that_run_together() -> None:
    """Records would have to leave them and to come back. Behind a topic they come as any others."""
    builder = StreamsBuilder().add_state_store(counts())
    stream = builder.stream("in").process(Nothing, "counts", named="first")
    stream.filter(lambda value: value, named="between").process(Nothing, "counts", named="second")
    with pytest.raises(TopologyException, match=r"second runs together with first, .* between them is not"):
        builder.build()
    builder = StreamsBuilder().add_state_store(counts())
    stream = builder.stream("in").process(Nothing, "counts")
    stream.filter(lambda value: value).repartition().process(Nothing, "counts").to("out")
    assert len(builder.build().pipelines) == 1
