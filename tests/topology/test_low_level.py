"""Topologies written node by node; their texts are compared in test_describe_snapshots.py."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from millstream import Processor, Serdes, StoreBuilder, Stores, StreamsBuilder, Topology, processor
from millstream.errors import TopologyException
from millstream.topology.nodes import OffsetReset, Process, Sink, Source


class Nothing(Processor):
    def process(self, record: Any) -> None:
        pass


def store(name: str) -> StoreBuilder:
    supplier = Stores.persistent_key_value_store(name)
    return Stores.key_value_store_builder(supplier, Serdes.string(), Serdes.long())


def written() -> Topology:
    return (
        Topology()
        .add_source("source", "in", key_serde=Serdes.string(), offset_reset=OffsetReset.LATEST)
        .add_processor("one", Nothing, "source")
        .add_state_store(store("counts"), "one")
        .add_processor("two", Nothing, "one")
        .add_sink("sink", "out", "two", value_serde=Serdes.long())
    )


def test_what_was_told_is_in_the_nodes() -> None:
    """Serdes, stores, and where a source begins."""
    source, one, two, sink = written().nodes
    assert isinstance(source, Source)
    assert source.offset_reset is OffsetReset.LATEST
    assert source.key_serde == Serdes.string()
    assert isinstance(one, Process)
    assert isinstance(two, Process)
    assert one.connected == (store("counts").declared,)
    assert two.parents == (one,)
    assert isinstance(sink, Sink)
    assert (sink.topic, sink.value_serde, sink.parents) == ("out", Serdes.long(), (two,))


def test_a_store_that_is_connected_later_reaches_every_node_behind() -> None:
    """Nodes are frozen: those behind a changed one are made anew, and what followed is worked out again."""
    topology = written()
    before = topology.subtopologies
    topology.add_source("other", "more").add_processor("three", Nothing, "other")
    assert len(topology.subtopologies) == 2
    topology.connect_processor_and_state_stores("three", "counts")
    assert len(topology.subtopologies) == 1
    assert len(before) == 1
    topology.add_state_store(store("more"), "one", "two")
    one, two, sink = topology.nodes[1:4]
    assert (two.parents, sink.parents) == ((one,), (two,))
    assert [each.name for each in one.stores] == ["counts", "more"]
    assert list(topology.stores) == ["counts", "more"]
    assert [each.name for each in topology.pipelines[0].stores] == ["counts", "more"]


def test_what_the_dsl_built_can_be_gone_on_with() -> None:
    """Kafka Streams allows the same: nodes of the DSL are parents by name, and its stores exist."""
    builder = StreamsBuilder()
    builder.add_state_store(store("counts"))
    builder.stream("in").process(Nothing, "counts", named="one")
    topology = builder.build().add_processor("two", Nothing, "one")
    topology.connect_processor_and_state_stores("two", "counts")
    assert [each.name for each in topology.stores.values()] == ["counts"]
    assert len(topology.subtopologies) == 1


def test_a_global_store_has_a_processor_and_no_tasks() -> None:
    """Its topic is its changelog."""
    topology = written().add_global_store(
        store("global").with_logging_disabled(), "global-source", "g", "global-processor", Nothing
    )
    assert topology.global_topics == ("g",)
    declared = topology.global_stores["global"]
    assert (declared.source_topic, declared.logged, declared.queryable) == ("g", False, True)
    assert len(topology.subtopologies) == 1


def test_a_read_only_store_has_no_changelog_but_its_topic() -> None:
    """KIP-813."""
    topology = written().add_read_only_state_store(store("read"), "ro", "r", "fill", Nothing)
    topology.connect_processor_and_state_stores("two", "read")
    declared = topology.stores["read"]
    assert (declared.source_topic, declared.logged) == ("r", False)
    assert "r" in topology.source_topics


def test_a_function_brings_the_stores_that_it_names() -> None:
    """Those that it builds are added; those that it names have to be there."""

    @processor
    def count(record: Any, counts: Any) -> None:
        pass

    topology = written().add_processor("by-name", count, "source")
    assert [each.name for each in topology.nodes[-1].stores] == ["counts"]
    with pytest.raises(TopologyException, match="StateStore counts is not added yet"):
        Topology().add_source("source", "in").add_processor("p", count, "source")


def connect(*names: str) -> Callable[[Topology], object]:
    return lambda topology: topology.connect_processor_and_state_stores(*names)


USERS = "users"


class ByConstant(Processor):
    def process(self, record: Any) -> None:
        print(USERS)


class Inherits(ByConstant):
    pass


def by_default(name: str = "users") -> Processor:
    return Nothing()


def users_of(record: Any, users: Any) -> None:
    pass


class WithField(Nothing):
    def __init__(self, names: list[str]) -> None:
        self.names = names


@pytest.mark.parametrize(
    "supplier",
    [
        ByConstant,
        Inherits,
        lambda: Inherits(),
        by_default,
        processor(users_of),
        lambda: WithField(["a", "users"]),
    ],
)
def test_a_global_store_is_found_by_its_name_in_the_code(supplier: Any) -> None:
    """The name may be in a method, a variable, inherited code, a field or a parameter."""
    topology = Topology().add_source("in", "in")
    topology.add_global_store(store("users").with_logging_disabled(), "read", "u", "fill", Nothing)
    topology.add_global_store(store("others").with_logging_disabled(), "r", "o", "f", Nothing)
    topology.add_processor("it", supplier, "in")
    assert [node.name for node in topology.pipelines[0].inputs] == ["in", "fill"]


@pytest.mark.parametrize(
    ("told", "told_by"),
    [
        ("You must provide at least one topic", lambda t: t.add_source("more")),
        ("Processor one is already added", lambda t: t.add_source("one", "more")),
        ("Processor one is already added", lambda t: t.add_processor("one", Nothing, "two")),
        ("Processor one is already added", lambda t: t.add_sink("one", "out", "two")),
        ("Topic in has already been registered by another source", lambda t: t.add_source("more", "in")),
        (
            "Pattern i. will match a topic that has already been registered",
            lambda t: t.add_source("more", re.compile("i.")),
        ),
        (
            "Topic more matches a Pattern already registered",
            lambda t: t.add_source("all", re.compile("m.*")).add_source("one more", "more"),
        ),
        ("takes topics, or one pattern", lambda t: t.add_source("more", re.compile("m.*"), "a")),
        ("Processor p must have at least one parent", lambda t: t.add_processor("p", Nothing)),
        ("Sink s must have at least one parent", lambda t: t.add_sink("s", "out")),
        (
            "Predecessor processor tow is not added yet for p. Did you mean 'two'",
            lambda t: t.add_processor("p", Nothing, "tow"),
        ),
        ("Sink sink cannot be used a parent", lambda t: t.add_processor("p", Nothing, "sink")),
        ("Processor p cannot be a predecessor of itself", lambda t: t.add_processor("p", Nothing, "p")),
        ("StateStore count is not added yet. Did you mean 'counts'", connect("two", "count")),
        ("Processor three is not added yet", connect("three", "counts")),
        ("Must provide at least one state store name", connect("two")),
        ("cannot connect a state store counts to a source node or a sink node", connect("sink", "counts")),
        (
            "A different StateStore has already been added with the name counts",
            lambda t: t.add_state_store(store("counts").with_logging_disabled()),
        ),
        ("takes a store builder", lambda t: t.add_state_store("counts")),
        (
            "StateStore g for global table must not have logging enabled",
            lambda t: t.add_global_store(store("g"), "gs", "g", "gp", Nothing),
        ),
        (
            "sourceName and processorName must be different",
            lambda t: t.add_global_store(store("g").with_logging_disabled(), "gs", "g", "gs", Nothing),
        ),
        (
            "A different StateStore has already been added with the name counts",
            lambda t: t.add_global_store(store("counts").with_logging_disabled(), "gs", "g", "gp", Nothing),
        ),
        (
            "Global StateStore g can be used by a Processor without being specified",
            lambda t: t.add_global_store(
                store("g").with_logging_disabled(), "gs", "g", "gp", Nothing
            ).connect_processor_and_state_stores("two", "g"),
        ),
        (
            "the timestamp extractor of source more is one such as",
            lambda t: t.add_source("more", "m", timestamp_extractor="Wallclock"),
        ),
        ("offset_reset of source more is", lambda t: t.add_source("more", "m", offset_reset="earliest")),
    ],
)
def test_a_mistake_gets_a_sentence(told: str, told_by: Callable[[Topology], object]) -> None:
    """Kafka Streams' own, where it has one; and at the line that makes it."""
    with pytest.raises(TopologyException, match=told):
        told_by(written())


class Reads(Processor):
    """Its code names the global store."""

    def init(self, context: Any) -> None:
        self.users = context.get_state_store("users")

    def process(self, record: Any) -> None:
        pass


EVIL = ("a\0b", "a\x1b[2Jb", "a\nb", "a\rb", "a\x7fb", "a\u2028b")
NAMED: dict[str, Callable[[str], object]] = {
    "source": lambda name: Topology().add_source(name, "in"),
    "processor": lambda name: Topology().add_source("s", "in").add_processor(name, Nothing, "s"),
    "sink": lambda name: Topology().add_sink(name, "out", "s"),
    "global store": lambda name: Topology().add_global_store(store("g"), "s", "in", name, Nothing),
    "topic of a source": lambda name: Topology().add_source("s", name),
    "topic of a sink": lambda name: Topology().add_source("s", "in").add_sink("k", name, "s"),
    "store": store,
    "topic of a stream": lambda name: StreamsBuilder().stream(name),
    "topic of a table": lambda name: StreamsBuilder().table(name),
    "topic written to": lambda name: StreamsBuilder().stream("in").to(name),
}


def test_a_name_with_a_control_character_is_refused_and_shown_escaped() -> None:
    """It would forge lines of a log, or control the terminal that shows it."""
    wrong = []
    for kind, make in NAMED.items():
        for name in EVIL:
            try:
                make(name)
            except TopologyException as error:
                if name.encode("unicode_escape").decode() in str(error) and str(error).isprintable():
                    continue
                wrong.append((kind, name, str(error)))
            else:
                wrong.append((kind, name, "taken"))
    assert not wrong


def test_explain_says_which_processors_run_together() -> None:
    """A store that two of them have is told once; and what is read for their global stores."""
    topology = written().add_source("alone", "more").add_processor("three", Reads, "alone")
    topology.add_global_store(store("users").with_logging_disabled(), "read", "u", "fill", Nothing)
    topology.connect_processor_and_state_stores("two", "counts")
    assert (
        topology.explain()
        == """Pipelines:
  Pipeline: p0 (subtopology 0)
    reads:    in (source)
    Python:   one, two, record by record
    keeps:    store counts in RocksDB, changelog <application.id>-counts-changelog
    writes:   out (sink)

  Pipeline: p1 (subtopology 1)
    reads:    more (alone)
              u, whole, for processors that read the global store (fill)
    Python:   three, record by record

Global tables:
  Global table: fill (each client reads all of it into its store, without Spark)
    reads:    u (read)
    keeps:    store users in RocksDB, its changelog is the topic u itself

"""
    )
