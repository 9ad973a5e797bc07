"""The table of jars: names, sizes, and checksums. The data is in `table.toml`; this reads it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from millstream.errors import ArtifactException

__all__ = [
    "BROKER_SET",
    "COMPILER_SET",
    "Jar",
    "connector_set",
    "connector_versions",
    "jar_sets",
]

BROKER_SET = "kafka-broker-4.3.1"
"""What the embedded broker runs on."""

COMPILER_SET = "java-compiler"
"""What the kernel is compiled with, by those who build Millstream."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of a Maven repository.

    Attributes:
        coordinates: `group:artifact:version`.
        size: its length in bytes.
        sha256: in lower-case hexadecimal digits.
    """

    coordinates: str
    size: int
    sha256: str

    @property
    def group(self) -> str:
        return self.coordinates.split(":")[0]

    @property
    def artifact(self) -> str:
        return self.coordinates.split(":")[1]

    @property
    def version(self) -> str:
        return self.coordinates.split(":")[2]

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        """Where it is below the root of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"


@cache
def _table() -> Mapping[str, Mapping[str, object]]:
    table: Mapping[str, Mapping[str, object]] = tomllib.loads(
        files("millstream.jars").joinpath("table.toml").read_text(encoding="utf-8")
    )
    return table


@cache
def jar_sets() -> Mapping[str, tuple[Jar, ...]]:
    """Every set by its name. The order within a set is the order on the class path."""
    sets = {}
    for name, rows in _table()["sets"].items():
        assert isinstance(rows, list)
        sets[name] = tuple(Jar(row["at"], row["bytes"], row["sha256"]) for row in rows)
    return sets


def connector_versions() -> tuple[str, ...]:
    """The Spark versions (major and minor) for which the table has a connector, oldest first."""
    return tuple(sorted(_table()["connectors"], key=lambda version: tuple(map(int, version.split(".")))))


def connector_set(spark_version: str) -> str:
    """The name of the set that has the Kafka connector for a Spark version such as `4.3.0`.

    Raises:
        ArtifactException: the table has none for it; the message lists those it has.
    """
    minor = ".".join(spark_version.split(".")[:2])
    name = _table()["connectors"].get(minor)
    if name is None:
        known = ", ".join(f"{version}.x" for version in connector_versions())
        raise ArtifactException(
            f"no Kafka connector is known for Spark {spark_version}; the supported versions are {known}. "
            f"Install one of these, or provide the connector yourself: `spark.jars` with its files, or "
            f"`spark.jars.packages` with `org.apache.spark:spark-sql-kafka-0-10_2.13:{spark_version}`",
            artifact="org.apache.spark:spark-sql-kafka-0-10_2.13",
        )
    return str(name)
