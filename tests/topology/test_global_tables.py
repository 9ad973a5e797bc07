"""Global tables in a topology: numbered like subtopologies, and nothing else of one."""

import pytest

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed, Materialized
from millstream.model import TaskId
from millstream.topology.internal_topics import plan_internal_topics


def same(value):
    return value


@pytest.fixture
def mixed():
    """Numbers: 0 the global table `users`, 1 a count, 2 the global table `towns`, 3 a stream."""
    builder = StreamsBuilder()
    builder.global_table("users", Materialized.as_("by-id"))
    builder.stream("in").group_by_key().count(Materialized.as_("counts"))
    builder.global_table("towns")
    builder.stream("b").to("out")
    return builder.build()


@pytest.fixture
def only_global():
    builder = StreamsBuilder()
    builder.global_table("users", Materialized.as_("by-id"))
    return builder.build()


def test_they_take_numbers_and_are_no_subtopologies(mixed):
    """Tasks have the same ids as in Kafka Streams."""
    assert [each.id for each in mixed.subtopologies] == [1, 3]
    assert [each.id for each in mixed.global_subtopologies] == [0, 2]
    assert [each.is_global for each in (*mixed.subtopologies, *mixed.global_subtopologies)] == [
        False,
        False,
        True,
        True,
    ]


def test_their_stores_and_topics_are_apart(mixed):
    """What tasks and the group are made of does not have them."""
    assert list(mixed.stores) == ["counts"]
    assert list(mixed.global_stores) == ["by-id", "towns-STATE-STORE-0000000004"]
    assert mixed.global_stores["by-id"].source_topic == "users"
    assert mixed.global_topics == ("towns", "users")
    assert mixed.source_topics == ("b", "in")
    assert repr(mixed) == "Topology(6 nodes, 2 subtopologies, 2 global tables)"


def test_no_pipeline_runs_them(mixed, only_global):
    """A topology of global tables alone has none, and is legal."""
    assert [(each.name, each.subtopology) for each in mixed.pipelines] == [("p1", 1), ("p3", 3)]
    running = {node for pipeline in mixed.pipelines for node in pipeline.nodes}
    assert len(running) == len(mixed.nodes) - 2
    assert only_global.pipelines == ()
    assert only_global.subtopologies == ()
    assert only_global.source_topics == ()
    assert repr(only_global) == "Topology(1 nodes, 0 subtopologies, 1 global tables)"


def test_they_make_no_tasks_and_no_internal_topics(mixed, only_global):
    """Their topic need not be in the plan's sources."""
    plan = plan_internal_topics(mixed, "app", {"in": 2, "b": 1})
    assert plan.task_ids == (TaskId(1, 0), TaskId(1, 1), TaskId(3, 0))
    assert [topic.name for topic in plan.topics] == ["app-counts-changelog"]
    assert list(plan.stores) == ["counts"]
    nothing = plan_internal_topics(only_global, "app", {})
    assert (nothing.topics, nothing.task_ids, dict(nothing.stores)) == ((), (), {})


def test_a_description_has_them_as_data(mixed):
    """TopologyDescription.globalStores() does the same."""
    description = mixed.describe()
    assert [each.id for each in description.subtopologies] == [1, 3]
    first, second = description.global_stores
    assert (first.id, second.id) == (0, 2)
    assert (first.source.topics, first.source.successors) == (("users",), (first.processor.name,))
    assert (first.processor.stores, first.processor.predecessors) == (("by-id",), (first.source.name,))


def test_explain_lists_them_after_the_pipelines(mixed):
    """Who wonders why Spark does not read a topic finds it here."""
    text = mixed.explain()
    assert text.startswith("Pipelines:\n  Pipeline: p1 (subtopology 1)\n")
    assert text.endswith(
        "Global tables:\n"
        "  Global table: KTABLE-SOURCE-0000000001 (each client reads all of it into its store, without "
        "Spark)\n"
        "    reads:    users (KSTREAM-SOURCE-0000000000)\n"
        "    keeps:    store by-id in RocksDB, its changelog is the topic users itself\n"
        "\n"
        "  Global table: KTABLE-SOURCE-0000000006 (each client reads all of it into its store, without "
        "Spark)\n"
        "    reads:    towns (KSTREAM-SOURCE-0000000005)\n"
        "    keeps:    store towns-STATE-STORE-0000000004 in RocksDB, "
        "its changelog is the topic towns itself\n"
        "\n"
    )


def test_explain_has_no_pipelines_to_show_for_global_tables_alone(only_global):
    """It only has their own part."""
    assert only_global.explain().startswith("Global tables:\n  Global table: KTABLE-SOURCE-0000000001")
    assert "Pipelines" not in only_global.explain()


def test_other_topologies_say_nothing_of_them():
    """Neither text changes for a program without any."""
    builder = StreamsBuilder()
    builder.table("users", Consumed.as_("people")).to_stream().to("out")
    topology = builder.build()
    assert "lobal" not in topology.explain() + str(topology.describe()) + repr(topology)
