"""The runtime's pure decisions: which programs share work, topic checks."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from scenes import two_pipelines

from millstream import BufferConfig, Suppressed
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.runtime.participation import topology_fingerprint
from millstream.runtime.topics.preparation import missing_sources, sink_topics, source_topics
from millstream.topology.topology import Topology
from millstream.topology.windows import SessionWindows, TimeWindows, Windows

# --- which programs share work -----------------------------------------------------------------------------


def program(windows: Windows | None = None, **changed: Any) -> Topology:
    asked = {"topic": "lines", "store": "counts", "filtered": False, "out": "out", **changed}
    builder = StreamsBuilder()
    stream = builder.stream(asked["topic"])
    if asked["filtered"]:
        stream = stream.filter(lambda key, value: value)
    grouped = stream.group_by_key()
    kept = Materialized.as_(asked["store"])
    if windows is not None:
        grouped.windowed_by(windows).count(kept.with_retention(timedelta(days=1))).to_stream().to(
            asked["out"]
        )
    else:
        grouped.count(kept).to_stream().to(asked["out"])
    return builder.build()


def test_what_is_read_kept_and_repartitioned_tells_programs_apart() -> None:
    """Stateless steps and outputs may differ: two versions of a program run beside each other."""
    same = [program(), program(filtered=True, out="elsewhere")]
    assert len({topology_fingerprint(each) for each in same}) == 1
    pattern = StreamsBuilder()
    pattern.stream(re.compile("li.*")).group_by_key().count(Materialized.as_("counts")).to_stream().to("out")
    tumbling = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
    different = [
        program(),
        program(topic="words"),
        program(store="others"),
        pattern.build(),
        two_pipelines(),
        program(tumbling),
        program(tumbling.advance_by(timedelta(minutes=1))),
        program(TimeWindows.of_size_and_grace(timedelta(minutes=5), timedelta(minutes=1))),
        program(SessionWindows.of_inactivity_gap_with_no_grace(timedelta(minutes=5))),
    ]
    assert len({topology_fingerprint(each) for each in different}) == len(different)
    again = program(TimeWindows.of_size_with_no_grace(timedelta(seconds=300)))
    assert topology_fingerprint(again) == topology_fingerprint(program(tumbling))


def test_until_when_updates_are_held_back_tells_programs_apart() -> None:
    """As windows do."""

    def held(how: Suppressed | None) -> str:
        builder = StreamsBuilder()
        windows = TimeWindows.of_size_with_no_grace(timedelta(minutes=5))
        table = builder.stream("in").group_by_key().windowed_by(windows).count(Materialized.as_("s"))
        (table if how is None else table.suppress(how)).to_stream().to("out")
        return topology_fingerprint(builder.build())

    unbounded = BufferConfig.unbounded()
    ways = [
        None,
        Suppressed.until_window_closes(unbounded),
        Suppressed.until_time_limit(timedelta(seconds=1), unbounded),
        Suppressed.until_time_limit(timedelta(seconds=2), unbounded),
    ]
    assert len({held(how) for how in ways}) == len(ways)


# --- topics ------------------------------------------------------------------------------------------------


def test_the_topics_of_a_program_are_found_in_its_pipelines() -> None:
    """Sources and tables, sinks with a name; those of patterns by what exists."""
    builder = StreamsBuilder()
    builder.stream(re.compile("logs-[0-9]+")).to("out")
    builder.stream(["b", "a"]).to(lambda key, value, record: value)
    builder.table("t")
    pipelines = builder.build().pipelines
    assert source_topics(pipelines) == ("a", "b", "t")
    assert sink_topics(pipelines) == ("out",)


def test_missing_topics_are_all_named() -> None:
    """Kafka's own internal topics are no suggestion."""
    internal = ["app-users-changelog", "users-changelog", "users-repartition"]
    error = missing_sources(["orders", "users"], ["order", "__users", "x", *internal], "h:1")
    assert error.topics == ("orders", "users")
    assert str(error) == (
        "source topics 'orders' (did you mean 'order'?), 'users' do not exist on 'h:1'; create them, "
        "or correct the topology. If the handler answers REPLACE_THREAD, the client checks again"
    )
