"""What goes on when an application changes hands: which stores, and why others do not."""

from __future__ import annotations

from datetime import timedelta

from programs import FIVE, both

from millstream.dsl.emission import BufferConfig, EmitStrategy, Suppressed
from millstream.dsl.options import Consumed, Materialized
from millstream.serdes.serdes import Serdes
from millstream.topology.internal_topics import plan_internal_topics
from millstream.topology.store_takeovers import StoreTakeover, store_takeovers, unknown_changelogs
from millstream.topology.windows import TimeWindows

DAY = timedelta(days=1)
TEXTS = Consumed.with_(Serdes.string(), Serdes.string())


def takeovers(builder, closed=None, more=(), without=()):
    topology = builder.build()
    internal = plan_internal_topics(topology, "app", dict.fromkeys(topology.source_topics, 1))
    names = {*(topic.name for topic in internal.topics), *topology.source_topics, *more} - {*without}
    return {each.store: each for each in store_takeovers(topology, internal, "app", names, closed or {})}


def test_an_aggregation_goes_on_unless_its_result_says_too_little(builder):
    """Back it goes in any case: its changelog has the results."""
    grouped = builder.stream("in", TEXTS).group_by_key()
    grouped.count(Materialized.as_("n"))
    grouped.count(Materialized.as_("other"))
    found = takeovers(builder, {"other": "avg() needs more"})
    assert found["n"] == StoreTakeover("n", "app-n-changelog")
    assert found["other"] == StoreTakeover("other", "app-other-changelog", "avg() needs more")


def test_a_table_is_its_topic_and_goes_back_only_if_java_has_no_copy(builder):
    """Kafka Streams' own changelog of it would not have what has come since."""
    builder.table("rows", TEXTS, Materialized.as_("rows"))
    assert takeovers(builder) == {"rows": StoreTakeover("rows", "rows")}
    copied = takeovers(builder, more=["app-rows-changelog"])["rows"]
    assert copied.forth == ""
    assert "app-rows-changelog" in copied.back


def test_a_store_without_a_changelog_begins_empty(builder):
    """In both."""
    builder.stream("in", TEXTS).group_by_key().count(Materialized.as_("n").with_logging_disabled())
    (found,) = takeovers(builder).values()
    assert found.topic == ""
    assert "no changelog" in found.forth
    assert "no changelog" in found.back


def test_a_changelog_that_is_not_there_is_told(builder):
    """Perhaps the Java program has another name for the store."""
    builder.stream("in", TEXTS).group_by_key().count(Materialized.as_("n"))
    assert "begins empty" in takeovers(builder, without=["app-n-changelog"])["n"].forth


def test_windows_that_are_emitted_on_close_would_be_emitted_again(builder):
    """Each notes in its own way which it has emitted."""
    windows = builder.stream("in", TEXTS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(DAY))
    windows.emit_strategy(EmitStrategy.on_window_close()).count(Materialized.as_("n"))
    found = takeovers(builder)["n"]
    assert "emitted again" in found.forth
    assert "emitted again" in found.back


def test_a_join_of_streams_goes_on_and_back(builder):
    """One whose values only Python reads does neither, and one with itself does not go back."""
    one, two = builder.stream("one", TEXTS), builder.stream("two", TEXTS)
    one.left_join(two, both, FIVE)
    stores = [*takeovers(builder)]
    assert len(stores) == 3
    assert not any(each.forth or each.back for each in takeovers(builder).values())
    closed = takeovers(builder, {stores[0]: "in Python"})[stores[0]]
    assert (closed.forth, bool(closed.back)) == ("in Python", True)
    assert [each.forth for each in takeovers(builder, {stores[0]: "in Python"}).values()].count(
        "in Python"
    ) == 2
    one.join(one, both, FIVE)
    assert [each.back for each in takeovers(builder).values() if each.store not in stores and each.back] == [
        "Millstream keeps the records of a join with itself once"
    ]


def test_what_is_held_back_goes_on_and_back_unless_its_form_is_millstreams(builder):
    """Rows that are grouped behind it need what it let go before, which only Kafka Streams keeps."""
    counts = builder.stream("in", TEXTS).group_by_key().count(Materialized.as_("n"))
    slow = Suppressed.until_time_limit(timedelta(seconds=1), BufferConfig.unbounded())
    held = counts.suppress(slow)
    held.to_stream().to("out")
    (name,) = set(takeovers(builder)) - {"n"}
    assert takeovers(builder)[name] == StoreTakeover(name, f"app-{name}-changelog")
    assert (
        takeovers(builder, {name: "no end"})[name].back
        == "Millstream's changelog has a form of its own there"
    )
    held.group_by(lambda key, value: (value, value)).count()
    assert "grouped" in takeovers(builder)[name].back


def test_a_changelog_without_a_store_is_told(builder):
    """It is state that the program would leave behind: perhaps it is another topology."""
    builder.stream("in", TEXTS).group_by_key().count(Materialized.as_("n"))
    topology = builder.build()
    internal = plan_internal_topics(topology, "app", {"in": 1})
    names = ["in", "app-n-changelog", "app-m-changelog", "app-x-repartition", "apple-m-changelog"]
    assert unknown_changelogs(topology, internal, "app", names) == ("app-m-changelog",)
