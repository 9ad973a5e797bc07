"""Which executors of a Spark cluster were lost: Spark starts others, runs their tasks again, and is silent.

Asked for, every two seconds, is what Spark keeps for its web interface, which is there without the interface
too: PySpark has no listener of executors, and a listener of queries hears nothing of them.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from millstream.clock import Clock, SystemClock
from millstream.foreign import ESCAPED

__all__ = ["Executor", "ExecutorWatch", "losses"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_EVERY_S = 2.0
_RECENT_S = 600.0
_MOST = 100
_WANTED = ("killed by driver", "decommission", "idle")
"""In the reason of an executor that Spark itself let go: it had nothing to do, or its machine is wanted."""


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as Spark shows it.

    Attributes:
        gone: why it is not there any more; None: it is.
    """

    id: str
    host: str
    gone: str | None = None

    def __str__(self) -> str:
        return f"{self.id} on {self.host}: {self.gone or 'no reason given'}"


def losses(listed: Iterable[Executor], known: set[str]) -> list[Executor]:
    """Those that were lost, and are not among the known ones, to which they are added."""
    lost = []
    for executor in listed:
        if executor.gone is None or executor.id in known:
            continue
        known.add(executor.id)
        if not any(word in executor.gone.lower() for word in _WANTED):
            lost.append(executor)
    return lost


class ExecutorWatch:
    """Looks after the executors of a cluster, on a thread of its own; for a local Spark, which has none, it
    does nothing."""

    def __init__(self, spark: SparkSession, clock: Clock | None = None) -> None:
        self._spark = spark
        self._clock = clock or SystemClock()
        self._known: set[str] = set()
        self._lost: deque[tuple[float, Executor]] = deque(maxlen=_MOST)
        self._closing = threading.Event()
        if is_cluster(str(spark.sparkContext.master)):
            threading.Thread(target=self._run, name="spark-executors", daemon=True).start()

    def recent(self) -> tuple[str, ...]:
        """Those lost in the last ten minutes, each with its host and Spark's reason."""
        since = self._clock.now() - _RECENT_S
        return tuple(str(executor) for at, executor in tuple(self._lost) if at >= since)

    def close(self) -> None:
        """Idempotent."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_S):
            try:
                listed = _listed(self._spark)
            except Exception as error:  # Spark may be stopping, or gone, at any moment
                log.debug("the executors are not known now: %r", error)
                continue
            for executor in losses(listed, self._known):
                self._lost.append((self._clock.now(), executor))
                log.warning(
                    "Spark has lost executor %s. Its tasks are run again elsewhere, and micro-batches take "
                    "longer meanwhile; if it happens again and again, give executors more memory "
                    "(spark.executor.memory)",
                    executor,
                )


def is_cluster(master: str) -> bool:
    """Whether tasks run in other processes than the driver's."""
    return master != "local" and not master.startswith("local[")


def _listed(spark: SparkSession) -> list[Executor]:
    context: Any = spark.sparkContext._jsc.sc()
    found = context.statusStore().executorList(False)
    executors = []
    for index in range(found.size()):
        each = found.apply(index)
        gone = None
        if not each.isActive():
            reason = each.removeReason()
            gone = str(reason.get()) if reason.isDefined() else ""
        executors.append(Executor(str(each.id()), str(each.hostPort()), gone))
    return executors
