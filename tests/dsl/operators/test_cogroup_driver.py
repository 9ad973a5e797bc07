"""KGroupedStream.cogroup, on Spark: one value of several streams."""

from __future__ import annotations

from datetime import timedelta

import pytest
from driving import STRINGS, pipe, read, rows

from millstream import Consumed, Materialized, Serdes, StreamsBuilder, TimeWindows
from millstream.testing import TopologyTestDriver

pytestmark = pytest.mark.spark

NUMBERS = Consumed.with_(Serdes.string(), Serdes.long())


def test_each_stream_has_its_adder_and_all_share_the_aggregate() -> None:
    """Of one key, in the order of times; windowed as well, where a null value counts as in other windows."""
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", STRINGS).group_by_key()
    amounts = builder.stream("amounts", NUMBERS).group_by_key()
    both = clicks.cogroup(lambda key, value, so_far: f"{so_far}{key}:{value} ").cogroup(
        amounts, lambda key, value, so_far: f"{so_far}{value + 1} "
    )
    kept = Materialized.with_(Serdes.string(), Serdes.string())
    both.aggregate(lambda: "", Materialized.as_("all").with_value_serde(Serdes.string())).to_stream().to(
        "out"
    )
    windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
    both.windowed_by(windows).aggregate(lambda: "", kept).to_stream(lambda key, value: key.key).to("windows")
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        with driver.one_batch():
            pipe(
                driver, "clicks", ("a", "x", 1), ("a", "y", 5), ("b", "z", 6), (None, "n", 7), ("a", None, 8)
            )
            pipe(driver, "amounts", ("a", 10, 3), ("a", 20, 12), value="long")
        assert rows(driver, "all") == {"a": "a:x 11 a:y 21 ", "b": "b:z "}
        assert sorted(read(driver, "out")) == [("a", "a:x 11 a:y 21 "), ("b", "b:z ")]
        assert sorted(read(driver, "windows")) == [("a", "21 "), ("a", "a:x 11 a:y a:None "), ("b", "b:z ")]
        pipe(driver, "amounts", ("b", 1, 13), value="long")
        assert read(driver, "out") == [("b", "b:z 2 ")]
