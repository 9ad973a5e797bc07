"""Internal topics: which there have to be, with how many partitions; and so the tasks."""

import re
from datetime import timedelta

import pytest
from programs import same

from millstream.dsl.options import Materialized, Repartitioned
from millstream.errors import MissingSourceTopicException, TopologyException
from millstream.model import TaskId
from millstream.topology.internal_topics import ANY_TIME, plan_internal_topics
from millstream.topology.windows import SessionWindows, TimeWindows


def plan(builder, **counts):
    return plan_internal_topics(builder.build(), "app", counts)


def test_word_count_needs_a_changelog_and_a_repartition_topic(builder):
    """The example of the design: four lines partitions, tasks 0_0 to 1_3."""
    builder.stream("lines").group_by(same).count(Materialized.as_("counts"))
    found = plan(builder, lines=4)
    assert [(topic.name, topic.partitions) for topic in found.topics] == [
        ("app-counts-changelog", 4),
        ("app-counts-repartition", 4),
    ]
    assert found.topics[0].configs == {"cleanup.policy": "compact", **ANY_TIME}
    assert found.tasks == {0: 4, 1: 4}
    assert found.task_ids == tuple(TaskId(s, p) for s in (0, 1) for p in range(4))
    assert found.partitions == {"counts-repartition": 4, "counts-changelog": 4}
    place = found.stores["counts"]
    assert (place.subtopology, place.partitions, place.topic, place.is_source) == (
        1,
        4,
        "app-counts-changelog",
        False,
    )


def test_a_real_repartition_topic_has_kafkas_configs(builder):
    """Deleted by time never, and in segments of 50 MB; and times are taken whatever they are, not as Kafka
    Streams has it."""
    builder.stream("in").repartition(Repartitioned.as_("r")).to("out")
    (topic,) = plan(builder, **{"in": 3}).topics
    assert (topic.name, topic.partitions) == ("app-r-repartition", 3)
    assert topic.configs == {
        "cleanup.policy": "delete",
        **ANY_TIME,
        "retention.ms": "-1",
        "segment.bytes": "52428800",
    }


def test_a_repartition_has_as_many_partitions_as_asked_or_the_most_upstream(builder):
    """Through chains of them too."""
    first = builder.stream("a").merge(builder.stream("b")).repartition(Repartitioned.as_("first"))
    second = first.repartition(Repartitioned.as_("second").with_number_of_partitions(5))
    second.group_by(same).count(Materialized.as_("c")).to_stream().group_by(same).count(Materialized.as_("d"))
    found = plan(builder, a=2, b=7)
    assert found.partitions["first-repartition"] == 7
    assert found.partitions["second-repartition"] == 5
    assert found.partitions["c-repartition"] == 5
    assert found.partitions["d-repartition"] == 5
    assert found.tasks == {0: 7, 1: 7, 2: 5, 3: 5, 4: 5}
    assert [topic.name for topic in found.topics] == [
        "app-c-changelog",
        "app-c-repartition",
        "app-d-changelog",
        "app-d-repartition",
        "app-first-repartition",
        "app-second-repartition",
    ]


def test_a_changelog_has_the_partitions_of_its_subtopology(builder):
    """The most of all that its task reads."""
    stream = builder.stream("small").merge(builder.stream("large"))
    stream.group_by_key().count(Materialized.as_("c").with_logging_enabled({"cleanup.policy": "delete"}))
    (topic,) = plan(builder, small=1, large=6).topics
    assert topic.partitions == 6
    assert topic.configs["cleanup.policy"] == "delete"


def test_a_tables_changelog_is_its_topic(builder):
    """No topic is made for it; what is derived from it has one."""
    builder.table("users", Materialized.as_("users")).filter(same, Materialized.as_("some"))
    found = plan(builder, users=3)
    assert [topic.name for topic in found.topics] == ["app-some-changelog"]
    assert (found.stores["users"].topic, found.stores["users"].is_source) == ("users", True)
    assert found.stores["some"].subtopology == found.stores["users"].subtopology == 0


def test_a_store_without_logging_has_no_topic(builder):
    """It cannot be filled, so it cannot be queried."""
    builder.stream("in").group_by_key().count(Materialized.as_("c").with_logging_disabled())
    found = plan(builder, **{"in": 3})
    assert found.topics == ()
    assert found.stores["c"].topic is None


def test_patterns_count_the_topics_they_match(builder):
    """Wholly, and never an internal topic of the application."""
    table = builder.stream(re.compile("app-.*|orders.*")).to_table(Materialized.as_("t"))
    table.to_stream().repartition(named="r").to("out")
    counts = {"orders": 2, "orders-eu": 4, "old-orders": 8, "app-r-repartition": 9, "app-t-changelog": 9}
    found = plan_internal_topics(builder.build(), "app", counts)
    assert found.partitions == {"r-repartition": 4, "t-changelog": 4}
    assert found.tasks == {0: 4, 1: 4}


def test_a_pattern_that_matches_nothing_has_no_tasks_yet(builder):
    """It has no changelog either: its number of partitions is unknown."""
    builder.stream(re.compile("orders.*")).group_by_key().count(Materialized.as_("c"))
    found = plan(builder)
    assert found.tasks == {0: 0}
    assert found.topics == ()
    assert found.task_ids == ()


def test_a_repartition_behind_a_pattern_that_matches_nothing_is_refused(builder):
    """Its partition count depends on the pattern's topics."""
    builder.stream(re.compile("orders.*")).repartition(named="r").to("out")
    with pytest.raises(MissingSourceTopicException, match=r"r-repartition is unknown.*orders\.\*"):
        plan(builder)


def test_missing_source_topics_are_all_named(builder):
    """Sorted, in the message and as data."""
    builder.stream(["b", "there"]).to("out")
    builder.table("a")
    with pytest.raises(MissingSourceTopicException, match="topics a, b are missing") as caught:
        plan(builder, there=1)
    assert caught.value.topics == ("a", "b")


def test_a_name_that_would_be_too_long_is_refused(builder):
    """Kafka's limit holds for the whole name."""
    builder.stream("in").group_by_key().count(Materialized.as_("s" * 240))
    with pytest.raises(TopologyException, match="internal topic name"):
        plan(builder, **{"in": 1})


def test_a_windowed_changelog_is_compacted_and_deleted_a_day_after_its_store_forgets(builder):
    """Kafka's configs: retention of the store and the additional one; what a store asks for goes before."""
    windows = TimeWindows.of_size_and_grace(timedelta(minutes=5), timedelta(minutes=1))
    grouped = builder.stream("in").group_by_key()
    grouped.windowed_by(windows).count(Materialized.as_("a"))
    asked = Materialized.as_("b").with_logging_enabled({"retention.ms": "7"})
    grouped.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=2))).count(asked)
    first, second = plan(builder, **{"in": 2}).topics
    assert (first.name, first.configs) == (
        "app-a-changelog",
        {
            "cleanup.policy": "compact,delete",
            **ANY_TIME,
            "retention.ms": str(360_000 + 86_400_000),
        },
    )
    assert second.configs["retention.ms"] == "7"
    found = plan_internal_topics(builder.build(), "app", {"in": 2}, additional_retention_ms=1)
    assert [topic.configs["retention.ms"] for topic in found.topics] == ["360001", "7"]
