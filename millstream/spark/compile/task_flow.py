"""The flow of a subtopology that a task runs: one DataFrame with the records of all its topics.

Some of its rows are no records but controls, with which a task commits: they pass every step, and belong to
no lane. So each lane has a flag, and no step removes a row without looking at `control`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.spark.compile.flow import Flow, Lane

__all__ = ["CONTROL", "TaskFlow"]

CONTROL = "control"
"""The column that is 0 in rows that are records."""


@dataclass
class TaskFlow(Flow):
    """A flow in which controls stay."""

    unopened: int = 0
    """How many inputs have no lane yet: their rows stay, too."""

    def _keep(self, condition: Column) -> None:
        self.df = self.df.where(condition | (F.col(CONTROL) != 0))

    def count_dropped(self) -> None:
        """The sink counts them."""

    def narrow(self, lane: Lane, condition: Column, *, alone: bool) -> Lane:
        keep = self.with_column("f", F.coalesce(self.own(lane, condition), F.lit(False)))
        if alone and not self.unopened:
            self._keep(F.col(keep))
        return replace(lane, keep=keep)

    def explode(self, lane: Lane, array: Column, *, alone: bool) -> tuple[Lane, str]:
        # Also alone, so that a control goes on: with the extra first element.
        return super().explode(lane, array, alone=False)

    def united(self, other: Flow) -> Flow:
        raise AssertionError("a task has one flow")
