"""The check of a place for checkpoints: which ones get it, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_ports import FakeCheckpointFiles
from pyspark.sql import SparkSession

from millstream.errors import StreamsException
from millstream.spark.engine import SparkEngine, SparkSettings
from millstream.spark.run.checkpoint_files import check_location, tried


class Failing(FakeCheckpointFiles):
    """Files whose creation fails from a certain one on; and their deletion, if told so."""

    def __init__(self, after: int, *, keeps: bool = False) -> None:
        super().__init__()
        self._left = after
        self._keeps = keeps

    def create_file(self, path: str) -> bool:
        if not self._left:
            raise StreamsException("503 Slow Down")
        self._left -= 1
        return super().create_file(path)

    def delete(self, path: str) -> None:
        if self._keeps:
            raise StreamsException("403 Forbidden")
        super().delete(path)

    def winners(self, path: str, writers: int) -> int:
        return sum(self.create_file(path) for _ in range(writers))


@pytest.mark.parametrize("after", [1, 3, 4])
def test_an_error_in_the_middle_leaves_no_marker(after: int) -> None:
    """Whoever has created one deletes it, also if a later writer fails; the error is the first one."""
    files = Failing(after)
    with pytest.raises(StreamsException, match="503"):
        tried(files, ".check")
    assert files.list() == {}
    with pytest.raises(StreamsException, match="503"):
        tried(Failing(after, keeps=True), ".check")


def test_a_place_where_nothing_can_be_deleted_is_an_error() -> None:
    """A claim deletes what is left of the one before. And nothing is left behind where all is well."""
    with pytest.raises(StreamsException, match="403"):
        tried(Failing(9, keeps=True), ".check")
    good = Failing(9)
    assert tried(good, ".check") == (1, False)
    assert good.list() == {}


@pytest.mark.spark
def test_a_uri_with_one_slash_is_tried_as_well(spark: SparkSession, tmp_path: Path) -> None:
    """Before the first claim: the engine does not start on an HDFS that nobody has configured."""
    check_location(spark, f"file:{tmp_path}/cp")
    assert [each for each in (tmp_path / "cp").iterdir() if not each.name.endswith(".crc")] == []
    for location in ("hdfs:/cp", "hdfs:///cp"):
        with pytest.raises(StreamsException, match=r"could not be .*hdfs"):
            SparkEngine(SparkSettings("app", "127.0.0.1:1", checkpoints=location), spark)
