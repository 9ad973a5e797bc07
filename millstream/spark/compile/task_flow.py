"""The flow of a subtopology that a task runs: one DataFrame with the records of all its topics.

Some of its rows are no records but controls, with which a task commits: they pass every step, and belong to
no lane. So each lane has a flag, and no step removes a row without looking at `control`. Rows of records that
were dropped stay as well, up to the sink, which counts them. Other rows were processed earlier, and come
again to fill the stores that follow from tables: they belong to lanes of tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from millstream.spark.compile.flow import Flow, Lane

__all__ = ["CONTROL", "TaskFlow"]

CONTROL = "control"
"""The column that is 0 in rows that are new records."""


@dataclass
class TaskFlow(Flow):
    """A flow in which controls stay."""

    unopened: int = 0
    """How many inputs have no lane yet: their rows stay, too."""

    @property
    def needs_records(self) -> bool:
        """Whether the rows of records are needed behind an operator; otherwise only controls are."""
        return bool(self.lanes or self.unopened or self.uncounted)

    def _keep(self, condition: Column) -> None:
        for each in self.uncounted:
            condition |= F.col(each.flag)
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

    def _copies(self, count: int) -> Column:
        return F.when(F.col(CONTROL) != 0, F.array(F.lit(0))).otherwise(super()._copies(count))

    def _on_first_only(self, position: str) -> None:
        super()._on_first_only(position)
        first = F.col(position) == 0
        self.uncounted[:] = [
            replace(each, flag=self.with_column("d", F.col(each.flag) & first)) for each in self.uncounted
        ]

    def united(self, other: Flow) -> Flow:
        raise AssertionError("a task has one flow")
