"""The executors of a Spark cluster: which were lost, whether there are any, and whether they see our files.

Spark silently replaces lost executors and runs their tasks again. So every two seconds this reads the status
that Spark keeps for its web interface, which exists even if the interface is off: PySpark has no listener for
executors, and a query listener receives no events about them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from millstream.clock import Clock, SystemClock
from millstream.errors import SetupException, StreamsException
from millstream.foreign import ESCAPED
from millstream.spark.jvm.java_names import java_class

__all__ = ["Absence", "Executor", "Executors", "is_cluster", "losses", "slots_of"]

log = logging.getLogger(__name__)
log.addFilter(ESCAPED)

_EVERY_S = 2.0
_RECENT_S = 600.0
_MOST = 100
_START_S = 30.0
"""How long at most a query waits for executors that are still starting."""
_LOOK_S = 1.0
_NONE_S = 60.0
"""How long there may be no executor at all before a warning."""
_CHECK_S = 60.0
"""How long executors may take to look for a file. Most of it is their startup."""
_SHARED_FILES = "io.millstream.kernel.files.SharedFiles"
_DRIVER = "driver"
"""Spark's name for the driver, which it lists, too."""
_WANTED = ("killed by driver", "decommission", "idle")
"""Parts of the reason when Spark itself removes an executor: it was idle, or its machine is needed."""


@dataclass(frozen=True, slots=True)
class Executor:
    """One executor, as Spark shows it.

    Attributes:
        gone: why it is gone; None: it is running.
    """

    id: str
    host: str
    gone: str | None = None

    def __str__(self) -> str:
        return f"{self.id} on {self.host}: {self.gone or 'no reason given'}"


def losses(listed: Iterable[Executor], known: set[str]) -> list[Executor]:
    """The lost executors that are not yet known; adds them to the known ones."""
    lost = []
    for executor in listed:
        if executor.gone is None or executor.id in known:
            continue
        known.add(executor.id)
        if not any(word in executor.gone.lower() for word in _WANTED):
            lost.append(executor)
    return lost


class Executors:
    """Watches the executors of a cluster, on a thread of its own; does nothing for a local Spark, which has
    none."""

    def __init__(self, spark: SparkSession, clock: Clock | None = None) -> None:
        self._spark = spark
        self._clock = clock or SystemClock()
        self._known: set[str] = set()
        self._lost: deque[tuple[float, Executor]] = deque(maxlen=_MOST)
        self._absence = Absence()
        self._checking = threading.Lock()
        self._checked: set[tuple[str, str]] = set()
        self._closing = threading.Event()
        self._is_cluster = is_cluster(str(spark.sparkContext.master))
        if self._is_cluster:
            threading.Thread(target=self._run, name="spark-executors", daemon=True).start()

    def recent(self) -> tuple[str, ...]:
        """The executors lost in the last ten minutes, each with its host and Spark's reason."""
        since = self._clock.now() - _RECENT_S
        return tuple(str(executor) for at, executor in tuple(self._lost) if at >= since)

    def check_reach(self, root: str, closing: threading.Event) -> None:
        """Have the executors that have not done so yet look into a directory of this machine.

        Raises:
            SetupException: an executor does not see its contents, or cannot write to it.
            StreamsException: `closing` was set meanwhile.
        """
        if not self._is_cluster:
            return
        with self._checking:
            if self._have_looked(self._there(root)):
                return  # every pipeline calls this; none waits again for executors that are starting
            slots = slots_of(self._spark, closing)
            there = self._there(root)  # again: more of them may have come while it waited
            try:
                missing = _missing(self._spark, Path(root), max(1, slots), closing)
            except Py4JError as error:
                if closing.is_set():
                    raise StreamsException(
                        "the client was closed while it queried Spark's executors"
                    ) from error
                log.warning(
                    "it could not be determined whether Spark's executors have the directory '%s': %s. If "
                    "they do not share it with this machine, pipelines will fail: set checkpoint.location",
                    root,
                    str(error).strip().partition("\n")[0],
                )
                return
            if missing:
                raise SetupException(
                    f"checkpoints are in '{root}', a directory of this machine, and Spark's executors do not "
                    f"share it: {'; '.join(missing)}. Set checkpoint.location to a place that the client and "
                    "all executors reach: a URI such as hdfs:// or s3a://, or a directory mounted under the "
                    "same path everywhere"
                )
            self._checked |= there

    def _there(self, root: str) -> set[tuple[str, str]]:
        return {(root, each.id) for each in _listed(self._spark) if each.gone is None}

    def _have_looked(self, there: set[tuple[str, str]]) -> bool:
        return bool(there) and there <= self._checked

    def close(self) -> None:
        """Idempotent."""
        self._closing.set()

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_S):
            try:
                listed = _listed(self._spark)
            except Exception as error:  # Spark may be stopping, or gone, at any moment
                log.debug("the executors are currently unknown: %r", error)
                continue
            for executor in losses(listed, self._known):
                self._lost.append((self._clock.now(), executor))
                log.warning(
                    "Spark has lost executor %s. Its tasks are run again elsewhere, and micro-batches take "
                    "longer meanwhile; if this happens repeatedly, give executors more memory "
                    "(spark.executor.memory)",
                    executor,
                )
            if self._absence.is_report_due(any(each.gone is None for each in listed), self._clock.now()):
                log.warning(
                    "Spark has had no executor for %.0f s, so nothing is processed. Does the cluster have a "
                    "worker with a core and %s of memory to spare (spark.executor.memory), and can it "
                    "connect to spark.driver.host?",
                    _NONE_S,
                    self._spark.conf.get("spark.executor.memory", "1g"),
                )


class Absence:
    """Since when there has been no executor at all. Spark waits for one forever, and silently."""

    def __init__(self) -> None:
        self._since: float | None = None

    def is_report_due(self, some: bool, now: float) -> bool:
        """Whether there has been none for another minute; `now` in seconds."""
        if some or self._since is None:
            self._since = None if some else now
            return False
        if now - self._since < _NONE_S:
            return False
        self._since = now
        return True


def _missing(spark: SparkSession, root: Path, tasks: int, closing: threading.Event) -> list[str]:
    """The reports of executors that lack the directory; some must be running, or still arrive."""
    context: Any = spark.sparkContext
    marker = root / f".executors-look-for-this-{uuid.uuid4().hex}"
    os.makedirs(root, exist_ok=True)
    marker.touch()
    group, done = str(marker), threading.Event()

    def give_up() -> None:
        until = time.monotonic() + _CHECK_S
        while not done.wait(_LOOK_S / 10):
            if closing.is_set() or time.monotonic() >= until:
                context.cancelJobGroup(group)

    threading.Thread(target=give_up, name="spark-executors-limit", daemon=True).start()
    try:
        context.setJobGroup(group, "whether executors have the directory of the checkpoints")
        shared = java_class(spark._jvm, _SHARED_FILES)
        return [str(each) for each in shared.missing(spark._jsparkSession, str(marker), tasks)]
    finally:
        done.set()
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            context.setLocalProperty(name, None)
        with suppress(OSError):
            marker.unlink()


def slots_of(spark: SparkSession, closing: threading.Event, wanted: int = 1) -> int:
    """How many tasks Spark can run at once, when no more executors of a cluster are expected.

    Args:
        wanted: with fewer, more executors are waited for: lost ones may be being replaced.

    Raises:
        StreamsException: `closing` was set meanwhile.
    """
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    there, deadline = 0, time.monotonic() + _START_S
    while True:
        before, there = there, int(context.maxNumConcurrentTasks(profile))
        is_complete = there == before and there >= wanted
        if not is_cluster(str(context.master())) or is_complete or time.monotonic() >= deadline:
            return there
        if closing.wait(_LOOK_S):
            raise StreamsException("the client was closed while Spark's executors were starting")


def is_cluster(master: str) -> bool:
    """Whether tasks run in processes other than the driver's."""
    return master != "local" and not master.startswith("local[")


def _listed(spark: SparkSession) -> list[Executor]:
    context: Any = spark.sparkContext._jsc.sc()
    found = context.statusStore().executorList(False)
    executors = []
    for index in range(found.size()):
        each = found.apply(index)
        if str(each.id()) == _DRIVER:
            continue
        gone = None
        if not each.isActive():
            reason = each.removeReason()
            gone = str(reason.get()) if reason.isDefined() else ""
        executors.append(Executor(str(each.id()), str(each.hostPort()), gone))
    return executors
