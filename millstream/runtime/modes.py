"""The processing mode of a client's pipelines, from its configuration: `processing.mode`."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from millstream.config import StreamsConfig
from millstream.topology.real_time import Mode, Modes

__all__ = ["modes_of"]


_SINCE = (4, 3)
"""The first Spark whose Real-Time Mode has shuffles."""


def modes_of(config: StreamsConfig, spark_version: str | None = None) -> Modes:
    """The mode of each pipeline, and the obstacles to Real-Time Mode that concern all of them.

    Args:
        spark_version: by default, the version of the installed PySpark.
    """
    against = []
    spark_version = spark_version or _installed()
    numbers = re.match(r"(\d+)\.(\d+)", spark_version)
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < _SINCE:
        against.append(f"Spark {spark_version} has no shuffles in it; Spark 4.3 or newer is required.")
    if config.exactly_once:
        against.append(
            "processing.guarantee=exactly_once_v2 writes a batch in one transaction, so no reader would see "
            "a record before its batch ends."
        )
    if own := sorted(config.own_handlers):
        names = ", ".join(f"{kind}.exception.handler" for kind in own)
        against.append(f"{names} is a Python handler, which receives its records in batches.")
    return Modes(
        Mode(config["processing.mode"]),
        {name: Mode(mode) for name, mode in config.with_prefix("processing.mode.").items()},
        tuple(against),
    )


def _installed() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return ""  # a platform's own version
