"""Which pipelines run in Real-Time Mode, and what is said of the others; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from millstream.runtime.modes import modes_of
from millstream.topology.real_time import Mode, Modes, avoided, obstacles, twice
from pyspark.sql import functions as F
from pyspark.sql import types as T

from millstream import Consumed, JoinWindows, Processor, Serdes, StreamsBuilder, TimeWindows
from millstream.config import StreamsConfig
from millstream.errors import ConfigException, TopologyException
from millstream.topology.pipeline import Scan

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())
SHOUT = F.udf(lambda value: value.upper(), T.StringType())


class Nothing(Processor):
    def process(self, record: object) -> None: ...


def count(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).group_by(lambda key, value: value).count()


def fold(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).group_by_key().aggregate(lambda: 0, lambda key, value, total: total + 1)


def processor(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).process(Nothing)


def global_table(builder: StreamsBuilder) -> None:
    table = builder.global_table("users", STRINGS)
    joined = builder.stream("in", STRINGS).join(table, lambda key, value: key, lambda one, two: one)
    joined.to("out")


def udf(builder: StreamsBuilder) -> None:
    builder.stream("in", STRINGS).map_values(lambda value: SHOUT(value)).to("out")


def udf_in_a_closure(builder: StreamsBuilder) -> None:
    shout = SHOUT
    builder.stream("in", STRINGS).map_values(lambda value: shout(value)).to("out")


def windows(builder: StreamsBuilder) -> None:
    span = TimeWindows.of_size_with_no_grace(timedelta(seconds=1))
    builder.stream("in", STRINGS).group_by_key().windowed_by(span).count()


def join(builder: StreamsBuilder) -> None:
    near = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    one, two = builder.stream("in", STRINGS), builder.stream("others", STRINGS)
    one.join(two, lambda a, b: a, near).to("out")


@pytest.mark.parametrize(
    ("program", "refused", "left_out"),
    [
        (count, "", ""),
        (fold, "is a fold in Python", ""),
        (processor, "is a processor in Python", ""),
        (global_table, "must be read completely", ""),
        (udf, "'SHOUT' in test_processing_modes.py", ""),
        (udf_in_a_closure, "'shout' in test_processing_modes.py", ""),
        (windows, "", "has windows"),
        (join, "", "joins records in the order"),
    ],
)
def test_a_pipeline_says_what_stands_in_its_way(
    program: Callable[[StreamsBuilder], None], refused: str, left_out: str
) -> None:
    """What Real-Time Mode cannot do is refused with `real-time`; `auto` leaves more to micro-batches."""
    builder = StreamsBuilder()
    program(builder)
    [pipeline] = builder.build().pipelines
    assert refused in " ".join(obstacles(pipeline))
    assert left_out in " ".join(avoided(pipeline))
    assert bool(refused) == bool(obstacles(pipeline))
    assert Modes(Mode.AUTO).is_real_time(pipeline) == (not refused and not left_out)
    assert not Modes().is_real_time(pipeline)
    asked = Modes(Mode.MICRO_BATCH, {"p0": Mode.REAL_TIME})
    assert asked.any
    if not refused:
        asked.check([pipeline])
        assert asked.is_real_time(pipeline)
        return
    with pytest.raises(TopologyException, match="p0 cannot run in Real-Time Mode") as raised:
        asked.check([pipeline])
    assert refused in str(raised.value)
    assert "processing.mode.p0=micro-batch" in str(raised.value)


def test_the_configuration_can_stand_in_the_way_and_name_what_is_not_there() -> None:
    """Both are told when the client is made; a pipeline that `auto` leaves alone is no mistake."""
    builder = StreamsBuilder()
    count(builder)
    pipelines = builder.build().pipelines
    with pytest.raises(ConfigException, match="no transactions"):
        Modes(Mode.REAL_TIME, against=("no transactions.",)).check(pipelines)
    auto = Modes(Mode.AUTO, against=("no transactions.",))
    auto.check(pipelines)
    assert Modes(Mode.AUTO).any
    assert not auto.any, "Spark is started as for micro-batches"
    assert auto.why_not(pipelines[0]) == ("no transactions.",)
    with pytest.raises(ConfigException, match=r"'processing.mode.p7'.*: p0"):
        Modes(named={"p7": Mode.AUTO}).check(pipelines)


@pytest.mark.parametrize(("spark", "runs"), [("4.2.0", False), ("4.3.0", True), ("5.0.0.dev1", True)])
def test_spark_before_its_shuffles_in_real_time_mode_stands_in_the_way(spark: str, runs: bool) -> None:
    """The configuration does not matter."""
    config = StreamsConfig({"application.id": "a", "bootstrap.servers": "localhost:1"})
    against = modes_of(config, spark).against
    assert against == (
        () if runs else ("Spark 4.2.0 has no shuffles in it; Spark 4.3 or newer is required.",)
    )


def test_what_is_read_twice_is_found() -> None:
    """The sources of a query decide."""
    assert twice([Scan("a", ("x",)), Scan("b"), Scan("a")]) == ("a",)
    assert twice([Scan("a", ("x",)), Scan("b", ("x",))]) == ()
