"""The physical plan: a query for each subtopology, and what explain() says of it."""

import random
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import random_program, replay
from tiers import examples

from millstream.dsl.emission import BufferConfig, EmitStrategy, Suppressed
from millstream.dsl.options import Materialized
from millstream.topology.nodes import GlobalRead, GlobalTable, Repartition, Sink, Source, TableSource
from millstream.topology.pipeline import writers_first
from millstream.topology.topology import Topology
from millstream.topology.windows import TimeWindows


def same(value):
    return value


def word_count(builder):
    words = builder.stream("lines").flat_map_values(same).group_by(same)
    return words.count(Materialized.as_("counts")).to_stream()


def names(nodes):
    return [node.name for node in nodes]


def test_a_repartition_is_a_topic_between_two_queries(builder):
    """Word count is two subtopologies, and so two queries."""
    word_count(builder).to("word-counts")
    first, second = builder.build().pipelines
    assert [(each.name, each.subtopology) for each in (first, second)] == [("p0", 0), ("p1", 1)]
    assert names(first.inputs) == ["KSTREAM-SOURCE-0000000000"]
    assert [node.topic for node in first.outputs] == ["counts-repartition"]
    assert second.inputs == first.outputs
    assert names(second.outputs) == ["KSTREAM-SINK-0000000008"]
    assert [store.name for store in second.stores] == ["counts"]


def test_a_repartition_that_was_asked_for_is_a_topic(builder):
    """It is the last node of one query and the first of the next."""
    builder.stream("in").map_values(same).repartition(named="r").filter(same).to("out")
    first, second = builder.build().pipelines
    (repartition,) = first.outputs
    assert isinstance(repartition, Repartition)
    assert second.inputs == (repartition,)
    assert first.nodes[-1] is repartition
    assert second.nodes[0] is repartition
    assert (first.subtopology, second.subtopology) == (0, 1)


def test_state_behind_state_without_a_change_of_keys_is_one_query(builder):
    """Kafka Streams has no topic there either: it is all one subtopology."""
    counted = builder.stream("in").group_by_key().count().to_stream()
    table = counted.group_by_key().count(Materialized.as_("again"))
    limit = Suppressed.until_time_limit(timedelta(0), BufferConfig.unbounded())
    table.map_values(same).suppress(limit).to_stream().to("out")
    topology = builder.build()
    (pipeline,) = topology.pipelines
    assert pipeline.subtopology == 0
    assert len(pipeline.stores) == 3


def test_explain_tells_what_goes_on_later(builder):
    """Windows that are told once, and what a suppress holds back."""
    windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
    group = builder.stream("in").group_by_key().windowed_by(windows)
    group.emit_strategy(EmitStrategy.on_window_close()).count()
    closed = Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("final")
    group.count().suppress(closed)
    text = builder.build().explain()
    assert "windows of 5 min, no grace, emitted once, when they close (KSTREAM-AGGREGATE-0000000002)" in text
    assert "    holds:    updates until their windows close (final)\n" in text


def test_a_query_can_read_the_topic_it_writes(builder):
    """A stream merged with its own repartition is one subtopology on both sides of the topic."""
    stream = builder.stream("in")
    stream.repartition(named="r").merge(stream).to("out")
    (pipeline,) = builder.build().pipelines
    assert [node.name for node in pipeline.inputs] == ["KSTREAM-SOURCE-0000000000", "r-repartition-source"]
    assert [node.name for node in pipeline.outputs] == ["r-repartition-source", "KSTREAM-SINK-0000000005"]


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_pipelines_partition_every_program(seed, size, joins):
    """Each subtopology is run once; all that is read and written is so by the query that runs it."""
    topology = Topology(replay(random_program(random.Random(seed), size, joins=joins))._drafts.build())
    pipelines = topology.pipelines
    assert [f"p{each.subtopology}" for each in pipelines] == [pipeline.name for pipeline in pipelines]
    ran = [pipeline.subtopology for pipeline in pipelines]
    assert ran == [subtopology.id for subtopology in topology.subtopologies]
    for pipeline in pipelines:
        position = {node: number for number, node in enumerate(topology.nodes)}
        known = [position[node] for node in pipeline.nodes if not isinstance(node, GlobalRead)]
        assert known == sorted(known)
        for node in pipeline.nodes:
            if node not in pipeline.inputs:
                behind = {parent for parent in node.parents if not isinstance(parent, GlobalTable)}
                assert behind <= set(pipeline.nodes)
    real = [node for pipeline in pipelines for node in pipeline.outputs if isinstance(node, Repartition)]
    assert len(set(real)) == len(real)
    assert set(real) == {n for p in pipelines for n in p.inputs if isinstance(n, Repartition)}
    for node in topology.nodes:
        if isinstance(node, GlobalTable):
            assert not any(node in pipeline.nodes for pipeline in pipelines)
            continue
        runs = sum(node in pipeline.nodes for pipeline in pipelines)
        reads = sum(node in pipeline.inputs for pipeline in pipelines)
        writes = sum(node in pipeline.outputs for pipeline in pipelines)
        assert runs == 2 if node in real and runs != 1 else runs == 1
        assert reads == (isinstance(node, Source | TableSource) or node in real)
        assert writes == (isinstance(node, Sink) or node in real)
    stores = [store.name for pipeline in pipelines for store in pipeline.stores if store is not None]
    assert sorted(stores) == sorted(topology.stores)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.integers(1, 40), st.booleans())
def test_subtopologies_hold_together_and_apart(seed, size, joins):
    """Every name is in one subtopology, with all its neighbours; a node's parents come before it."""
    topology = Topology(replay(random_program(random.Random(seed), size, joins=joins))._drafts.build())
    description = topology.describe()
    numbers = [each.id for each in (*description.subtopologies, *description.global_stores)]
    assert sorted(numbers) == list(range(len(numbers)))
    seen = set()
    for subtopology in description.subtopologies:
        here = {node.name: node for node in subtopology.nodes}
        assert not seen & set(here)
        seen |= set(here)
        for node in subtopology.nodes:
            assert all(node.name in here[other].predecessors for other in node.successors)
            assert all(node.name in here[other].successors for other in node.predecessors)
    done = set()
    for node in topology.nodes:
        assert set(node.parents) <= done
        done.add(node)


def test_explain_shows_every_pipeline(builder):
    """What it reads, keeps and writes."""
    word_count(builder).repartition(named="r").to(same)
    builder.table("users", Materialized.as_("users")).filter(same, Materialized.as_("some"))
    unlogged = Materialized.as_("unlogged").with_logging_disabled()
    builder.stream("other").group_by_key().count(unlogged)
    line = same.__code__.co_firstlineno
    assert builder.build().explain() == (
        "Pipelines:\n"
        "  Pipeline: p0 (subtopology 0)\n"
        "    reads:    lines (KSTREAM-SOURCE-0000000000)\n"
        "    writes:   <application.id>-counts-repartition (counts-repartition-sink)\n"
        "\n"
        "  Pipeline: p1 (subtopology 1)\n"
        "    reads:    <application.id>-counts-repartition (counts-repartition-source)\n"
        "    keeps:    store counts in RocksDB, changelog <application.id>-counts-changelog\n"
        "    writes:   <application.id>-r-repartition (r-repartition-sink)\n"
        "\n"
        "  Pipeline: p2 (subtopology 2)\n"
        "    reads:    <application.id>-r-repartition (r-repartition-source)\n"
        f"    writes:   topics that test_pipelines.py:{line} same names (KSTREAM-SINK-0000000011)\n"
        "\n"
        "  Pipeline: p3 (subtopology 3)\n"
        "    reads:    users as a table (KTABLE-SOURCE-0000000013)\n"
        "    keeps:    store users in RocksDB, its changelog is the topic users itself\n"
        "              store some in RocksDB, changelog <application.id>-some-changelog\n"
        "\n"
        "  Pipeline: p4 (subtopology 4)\n"
        "    reads:    other (KSTREAM-SOURCE-0000000015)\n"
        "    keeps:    store unlogged in RocksDB, no changelog, so it cannot be queried\n"
        "\n"
    )


def test_a_table_that_nothing_comes_after_needs_no_query(builder):
    """Its store is a view of the topic. A table that others are computed from needs one."""
    builder.table("alone", Materialized.as_("alone"))
    builder.table("not-even-kept")
    builder.table("filtered", Materialized.as_("filtered")).filter(same, Materialized.as_("some"))
    builder.table("written").to_stream().to("out")
    topology = builder.build()
    assert [pipeline.has_query for pipeline in topology.pipelines] == [False, False, True, True]
    assert topology.queries == topology.pipelines[2:]
    assert (
        "  Pipeline: p0 (subtopology 0; each client reads its part of the topic, without Spark)\n"
        "    reads:    alone as a table (KTABLE-SOURCE-0000000001)\n"
        "    keeps:    store alone in RocksDB, its changelog is the topic alone itself\n"
    ) in topology.explain()


def test_explain_tells_of_a_history(builder):
    """How far back a store can be asked."""
    builder.table("prices", Materialized.as_("prices").with_history(timedelta(hours=1)))
    assert "store prices in RocksDB with a history of 1:00:00, its changelog" in builder.build().explain()


def test_who_writes_an_internal_topic_is_compiled_before_who_reads_it(builder):
    """Their numbers do not matter: the reader takes the serdes that the writer has settled."""
    first = builder.stream("a")
    first.merge(builder.stream("b").repartition()).to("out")
    pipelines = builder.build().pipelines
    assert names(pipelines[0].inputs)[0] == "KSTREAM-SOURCE-0000000000"
    ordered = writers_first(pipelines)
    (written,) = [node for p in pipelines for node in p.outputs if isinstance(node, Repartition)]
    assert written in ordered[0].outputs
    assert written in ordered[1].inputs
