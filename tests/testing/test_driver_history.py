"""Stores with history, from the line of the program to the read as of a time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from driving import STRINGS

from millstream import (
    InvalidStateStoreTypeException,
    Materialized,
    StreamsBuilder,
    TimeWindows,
    TopologyException,
)
from millstream.testing import TopologyTestDriver
from millstream.topology.internal_topics import plan_internal_topics

pytestmark = pytest.mark.spark

HOUR = timedelta(hours=1)


def at(minutes: int) -> datetime:
    return datetime(2024, 5, 1, tzinfo=UTC) + timedelta(minutes=minutes)


def test_a_count_and_a_table_are_read_as_they_were() -> None:
    """The records' timestamps count; other stores do not keep their past."""
    builder = StreamsBuilder()
    builder.stream("lines", STRINGS).group_by_key().count(Materialized.as_("counts").with_history(HOUR))
    builder.table("users", STRINGS, Materialized.as_("users").with_history(HOUR))
    builder.global_table("towns", STRINGS, Materialized.as_("towns").with_history(HOUR))
    builder.table("others", STRINGS, Materialized.as_("others"))
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        for minutes in (0, 10, 20):
            for topic in ("lines", "users", "towns"):
                source = driver.create_input_topic(topic, "string", "string")
                source.pipe_input("a", f"v{minutes}", timestamp=at(minutes))
        counts, users, towns = map(driver.get_key_value_store, ("counts", "users", "towns"))
        assert [counts.as_of(at(minutes)).get("a") for minutes in (-1, 0, 15, 20)] == [None, 1, 2, 3]
        for store in (users, towns):
            assert list(store.as_of(at(15)).all()) == [("a", "v10")]
            assert store.get("a") == "v20"
        with pytest.raises(ValueError, match="history"):
            counts.as_of(at(-41))
        with pytest.raises(InvalidStateStoreTypeException):
            driver.get_key_value_store("others").as_of(at(0))


def test_the_changelog_is_compacted_behind_the_history() -> None:
    """KIP-889: 24 hours later at the earliest; configs of the user's own go before."""
    builder = StreamsBuilder()
    stream = builder.stream("lines", STRINGS).group_by_key()
    stream.count(Materialized.as_("counts").with_history(HOUR))
    own = {"min.compaction.lag.ms": "5"}
    stream.count(Materialized.as_("others").with_history(HOUR).with_logging_enabled(own))
    plan = plan_internal_topics(builder.build(), "app", {"lines": 1})
    configs = {topic.name: topic.configs for topic in plan.topics}
    assert configs["app-counts-changelog"]["cleanup.policy"] == "compact"
    assert configs["app-counts-changelog"]["min.compaction.lag.ms"] == str(25 * 3_600_000)
    assert configs["app-others-changelog"]["min.compaction.lag.ms"] == "5"


def test_windows_have_no_history() -> None:
    """They are one already; and a history is a time."""
    windows = StreamsBuilder().stream("lines", STRINGS).group_by_key()
    windowed = windows.windowed_by(TimeWindows.of_size_with_no_grace(HOUR))
    with pytest.raises(TopologyException, match="with_retention"):
        windowed.count(Materialized.as_("counts").with_history(HOUR))
    for wrong in (timedelta(-1), 3600, "1h"):
        with pytest.raises(TopologyException, match="history"):
            Materialized.as_("counts").with_history(wrong)  # type: ignore[arg-type]
