"""The limit of a micro-batch, which all sources of a query share, and whether a query has ended its first
batch.

The kernel decides where each batch ends (Backlog.java). A record counts once, although several sources read
it.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from millstream.dsl.timestamps import Extractor, TimestampExtractor, WallclockTimestampExtractor
from millstream.kernel.constants import OPTION_HAS_TIMES, OPTION_SHARED
from millstream.ports import CheckpointFiles
from millstream.spark.jvm.java_names import java_class

__all__ = ["Backlog", "limit_options", "limits"]

_BACKLOG = "io.millstream.kernel.source.Backlog"
_FIRST, _MOST = 50_000, 500_000
"""By default (docs/decisions/0061): the first micro-batch of a run ends soon, so that something is done;
larger ones read a backlog faster, and their results fit in memory."""


def limits(given: int | None, interval: timedelta) -> tuple[int, int]:
    """How many records the first micro-batch of a run reads at most, and how many later ones.

    Args:
        given: the configured limit.
        interval: the shortest time between two micro-batches: it must not limit the throughput.
    """
    if given is not None:
        return given, given
    seconds = max(1.0, interval.total_seconds())
    return int(_FIRST * seconds), int(_MOST * seconds)


def limit_options(run: str, extractor: Extractor | None) -> dict[str, str]:
    """Options of a source that shares the limit of the query of this run.

    All partitions end at one time. That is only right if Kafka's time of a record is the one that counts; if
    an extractor computes another one, each partition ends at the same share of what is unread.
    """
    kept = extractor is None or (
        isinstance(extractor, TimestampExtractor) and not isinstance(extractor, WallclockTimestampExtractor)
    )
    return {OPTION_SHARED: run, OPTION_HAS_TIMES: str(kept).lower()}


class Backlog:
    """What one run of a query has still to read."""

    def __init__(
        self,
        spark: SparkSession,
        run: str,
        most: int | None,
        interval: timedelta,
        checkpoint: CheckpointFiles,
    ) -> None:
        """Call before the query starts, with its checkpoint. `most` and `interval` are as for `limits`."""
        self._run = run
        self._class: Any = java_class(spark._jvm, _BACKLOG)
        lines, repeats = _planned(checkpoint)
        first, later = limits(most, interval)
        self._begun: Any = self._class.begin(run, first, later, interval.total_seconds(), lines, repeats)

    def unfinished(self) -> int | None:
        """How many records were unread before the first batch, which has not ended; -1 if that is not known.

        None: it has ended, or there was nothing to read.
        """
        found = self._begun.unfinished()
        return None if found is None else int(found)

    def forget(self) -> None:
        """The query has ended."""
        self._class.forget(self._run, self._begun)


def _planned(checkpoint: CheckpointFiles) -> tuple[list[str], bool]:
    """The positions at which a query's sources continue: the newest file of Spark's offset log, by line; and
    whether the batch of that file has to be repeated."""
    planned = max((int(name) for name in checkpoint.list("offsets") if name.isdecimal()), default=None)
    content = None if planned is None else checkpoint.read(f"offsets/{planned}")
    if content is None:
        return [], False
    done = max((int(name) for name in checkpoint.list("commits") if name.isdecimal()), default=-1)
    lines = content.decode(errors="replace").rstrip("\n").split("\n")
    # What is damaged is left for Spark to report.
    known = lines[0] == "v1" and all(map(_is_offset, lines[2:]))
    return lines[2:] if known else [], planned != done


def _is_offset(line: str) -> bool:
    try:
        return line == "-" or isinstance(json.loads(line), dict | int)
    except ValueError:
        return False
