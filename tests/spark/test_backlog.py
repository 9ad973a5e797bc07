"""How large micro-batches may be, and where the sources of a query go on (spark/run/backlog.py)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from fake_ports import FakeCheckpointFiles

from millstream.dsl.timestamps import (
    Extractor,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.spark.run.backlog import _planned, limit_options, limits


def test_the_first_micro_batch_is_small_and_a_pause_does_not_limit_the_throughput() -> None:
    """A given limit is that of each micro-batch. By default they grow, and with the time between them,
    too."""
    assert limits(None, timedelta(0)) == limits(None, timedelta(seconds=1)) == (50_000, 500_000)
    assert limits(None, timedelta(seconds=30)) == (1_500_000, 15_000_000)
    assert limits(7, timedelta(seconds=30)) == (7, 7)


@pytest.mark.parametrize(
    ("extractor", "by_time"),
    [
        (None, "true"),
        (UsePartitionTimeOnInvalidTimestamp(), "true"),
        (WallclockTimestampExtractor(), "false"),
        (lambda value: value.at, "false"),
    ],
    ids=["none", "Kafka's time", "the clock", "a function"],
)
def test_brokers_know_only_the_times_that_kafka_keeps(extractor: Extractor | None, by_time: str) -> None:
    """What a function makes of a record they cannot look up."""
    assert limit_options("run", extractor) == {"batch.run": "run", "batch.times": by_time}


def test_sources_go_on_at_the_newest_file_of_the_offset_log() -> None:
    """A batch that is planned and not done comes first. What Spark will not understand is not used."""
    files = FakeCheckpointFiles()
    assert _planned(files) == ([], False)
    for batch in (9, 10):
        files.write(f"offsets/{batch}", b'v1\n{"batch":1}\n{"a":{"0":%d}}\n-\n12' % batch)
    files.write("offsets/.10.crc", b"crc")
    files.write("commits/9", b"v1\n{}")
    assert _planned(files) == (['{"a":{"0":10}}', "-", "12"], True)
    files.write("commits/10", b"v1\n{}")
    assert _planned(files) == (['{"a":{"0":10}}', "-", "12"], False)
    for damaged in (b"", b"v1", b"v1\n{}\n{", b"v9\n{}\n{}", b"v1\n{}\n[]", b"\xff\xfe"):
        files.write("offsets/10", damaged)
        assert _planned(files) == ([], False), damaged
