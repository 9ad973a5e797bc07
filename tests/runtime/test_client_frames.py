"""What a client does with DataFrames while it runs, without Spark or a broker."""

from __future__ import annotations

import pytest
from fake_world import FakeWorld
from scenes import SOON, Make

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.frames import DataFrameTable, StreamDataFrame
from millstream.dsl.options import Consumed
from millstream.errors import IllegalStateException, StreamsNotStartedException, TopologyException
from millstream.serdes.serdes import Serdes


def program() -> tuple[StreamsBuilder, DataFrameTable, StreamDataFrame]:
    builder = StreamsBuilder()
    lines = builder.stream("lines", Consumed.with_(Serdes.string(), Serdes.string()))
    table = builder.from_dataframe(lambda spark: spark.table("words"), "word", named="words")
    return builder, table, lines.join(table, lambda line, word: line).to_dataframe("out")


def test_a_running_client_has_its_engine_read_a_table_anew(make: Make, world: FakeWorld) -> None:
    """The table is named by itself or by its name, and the result says how many rows have changed."""
    builder, table, _ = program()
    client = make(builder.build())
    client.start()
    client.wait_until_running(SOON)
    world.engine.changed["words"] = 3
    assert (client.refresh_table(table), client.refresh_table("words")) == (3, 3)
    assert world.engine.refreshed == ["words", "words"]
    assert "app-words-changelog" in world.topics.names()


def test_a_running_client_gives_a_dataframe_of_what_it_writes(make: Make) -> None:
    """It is named by what to_dataframe returned or by the topic's name; options are passed on as text."""
    builder, _, stream = program()
    client = make(builder.build())
    client.start()
    client.wait_until_running(SOON)
    assert client.dataframe(stream, maxOffsetsPerTrigger=5) == ("out", {"maxOffsetsPerTrigger": "5"})
    assert client.dataframe("out") == ("out", {})


def test_without_a_running_client_there_is_neither(make: Make) -> None:
    """CREATED says to start it; afterwards its Spark has ended."""
    builder, _, stream = program()
    client = make(builder.build())
    with pytest.raises(StreamsNotStartedException, match=r"is CREATED; call start\(\), then try again"):
        client.refresh_table("words")
    client.start()
    client.wait_until_running(SOON)
    client.close()
    for ask in (lambda: client.refresh_table("words"), lambda: client.dataframe(stream)):
        with pytest.raises(IllegalStateException, match="is NOT_RUNNING, and its Spark session has ended"):
            ask()


def test_a_table_that_is_not_there_is_told_with_those_that_are(make: Make) -> None:
    """This holds in any state of the client."""
    builder, _, _ = program()
    with pytest.raises(
        TopologyException, match="no DataFrame table is called 'cities'; the program has 'words'"
    ):
        make(builder.build()).refresh_table("cities")
