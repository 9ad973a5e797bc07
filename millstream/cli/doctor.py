"""`millstream doctor`: checks this machine, the configuration and the cluster, and changes nothing."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.checks import ClusterFacts, Facts, diagnose, has_failed, verdicts_text
from millstream.cli.cluster import PATIENCE
from millstream.cli.command_settings import ApplicationId, BootstrapServer, ConfigFile, Setting, settings
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as
from millstream.cli.program import AppDir, load_topology
from millstream.errors import ConfigException, JavaNotFoundException, SetupException, StreamsException
from millstream.model import TopicPartition
from millstream.small_files import read_text

if TYPE_CHECKING:
    from millstream.config import StreamsConfig
    from millstream.topology.topology import Topology

__all__ = ["doctor"]

_PACKAGES = ("pyspark", "confluent-kafka", "kafka-python", "rocksdict", "pyarrow")
_CONFIGS = frozenset({"DESCRIBE_CONFIGS", "ALL"})
_NOBODY = "millstream-doctor"


def doctor(
    program: Annotated[
        str | None,
        typer.Argument(metavar="[PROGRAM]", help="A program whose topics and rights to check, too."),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    application_id: ApplicationId = None,
    config_file: ConfigFile = None,
    set_: Setting = None,
    app_dir: AppDir = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Check what programs need: Java, jars, memory, state, Kafka, topics, rights, and the clock.

    It changes nothing. Below each finding, it prints what to do. Exit code 1 if a check failed.
    """
    topology = None if program is None else load_topology(program, app_dir)
    named = {"bootstrap.servers": bootstrap_server, "application.id": application_id}
    facts = examine(settings(config_file, os.environ, set_, named), topology)
    verdicts = diagnose(facts)
    shown = [
        {"check": each.check, "grade": each.grade.value.lower(), "says": each.says, "next": each.next}
        for each in verdicts
    ]
    print_as(json, {"ok": not has_failed(verdicts), "checks": shown}, verdicts_text(verdicts))
    if has_failed(verdicts):
        raise typer.Exit(1)


def examine(given: Mapping[str, Any], topology: Topology | None) -> Facts:
    """All facts, including why some are unknown."""
    found: dict[str, Any] = {**_machine(), **_java(), **_jars()}
    if not given:
        return Facts(**found)
    from millstream.config import StreamsConfig

    has_id, has_servers = "application.id" in given, "bootstrap.servers" in given
    usual = {
        "application.id": _NOBODY,
        "bootstrap.servers": "127.0.0.1:9092",
        **PATIENCE,
    }
    try:
        config = StreamsConfig({**usual, **given})
    except ConfigException as error:
        return Facts(**found, config_problem=str(error))
    if has_id:
        found["config"] = (
            f"{len(config.given) - (0 if has_servers else 1)} settings for '{config.application_id}'"
        )
        found |= _disk(config)
    if has_servers and not config.embedded:
        try:
            found["cluster"] = _cluster(config, topology if has_id else None)
        except StreamsException as error:
            found["cluster_problem"] = str(error)
    return Facts(**found)


def _machine() -> dict[str, Any]:
    from importlib import metadata

    import psutil

    from millstream.jars.jar_table import connector_versions

    installed: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = None
    return {
        "python": platform.python_version(),
        "versions": installed,
        "spark_versions": connector_versions(),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "memory": psutil.virtual_memory().available,
    }


def _java() -> dict[str, Any]:
    from millstream.java import find_java

    try:
        found = find_java()
    except JavaNotFoundException as error:
        return {"java_problem": str(error)}
    return {"java": f"Java {found.version} ({found.source}: {found.home})"}


def _jars() -> dict[str, Any]:
    from importlib import metadata

    from millstream.cache import cache_path
    from millstream.jars.jar_table import connector_set, jar_sets
    from millstream.kernel import shipped_kernel

    found: dict[str, Any] = {}
    try:
        kernel = shipped_kernel()
        found["kernel"] = f"the kernel of Millstream {kernel.version}"
        wanted = jar_sets()[connector_set(metadata.version("pyspark"))]
        folder = cache_path("jars")
        lost = [each for each in wanted if not _is_there(folder / each.file_name, each.size)]
        found["jars"] = f"{len(wanted)} jars in {folder}"
        found["jars_missing"] = [each.file_name for each in lost]
        found["jars_bytes"] = sum(each.size for each in lost)
    except metadata.PackageNotFoundError:
        pass  # reported by the check of versions
    except (SetupException, StreamsException) as error:
        found["kernel_problem"] = str(error)
    return found


def _is_there(file: Path, size: int) -> bool:
    try:
        return file.stat().st_size == size
    except OSError:
        return False


def _disk(config: StreamsConfig) -> dict[str, Any]:
    from shutil import disk_usage

    from millstream.stores.directory import StateDirectory

    path = StateDirectory(config.state_dir, config.application_id).path
    there = next(each for each in (path, *path.parents) if each.exists())
    found: dict[str, Any] = {"state_dir": str(path), "disk_free": disk_usage(there).free}
    if not os.access(there, os.W_OK | os.X_OK):
        found["state_problem"] = f"{there} cannot be written by this user"
    found["locked_by"] = _owner(path / ".owner")
    return found


def _owner(file: Path) -> int | None:
    """The process that uses a state directory; None: no process."""
    import psutil

    try:
        number = int(read_text(file) or "")
        return number if psutil.pid_exists(number) else None
    except (ValueError, OverflowError):
        return None


def _cluster(config: StreamsConfig, topology: Topology | None) -> ClusterFacts:
    from millstream.cli.cluster import topics_of
    from millstream.kafka.groups import KafkaGroups
    from millstream.kafka.rights import ClusterRights
    from millstream.runtime.topics.preparation import check_internal, sink_topics, with_existing_counts
    from millstream.topology.internal_topics import plan_internal_topics

    with topics_of(config) as topics:
        began = time.monotonic()
        names = topics.names()
        answer_ms = (time.monotonic() - began) * 1000
        servers = ",".join(config.bootstrap_servers)
        if topology is None:
            return ClusterFacts(servers, answer_ms)
        wanted = {*topology.source_topics, *topology.global_topics}
        written = set(sink_topics(topology.pipelines))
        rights = ClusterRights(config)
        held = rights.of_topics((wanted | written) & names)
        # Programs read the topics' configuration, too; without that right, nothing else can be checked.
        whole = {name for name, may in held.items() if _CONFIGS & may}
        counts = {name: each.partitions for name, each in topics.describe(whole).items()}
        counts |= rights.partitions(held.keys() - whole)
        sources = {name: counts.get(name) for name in sorted(wanted)}
        problems: list[str] = []
        lost = 0
        if None not in sources.values():
            try:
                plan = plan_internal_topics(topology, config.application_id, counts)
                there = topics.describe({each.name for each in plan.topics} & names)
                lost = len(plan.topics) - len(there)
                for each in with_existing_counts(plan, there, topology, config.application_id).topics:
                    if each.name in there:
                        check_internal(each, there[each.name])
            except StreamsException as error:
                problems.append(str(error))
        groups = KafkaGroups(config)
        members: list[str] = []
        members_problem = ""
        try:
            members = list(groups.members(config.application_id).values())
        except StreamsException as error:
            members_problem = str(error)
        finally:
            groups.close()
        read = [
            TopicPartition(name, number)
            for name in wanted
            if name in counts
            for number in range(counts[name])
        ]
        return ClusterFacts(
            servers,
            answer_ms,
            sources=sources,
            sinks={name: counts.get(name) for name in sorted(written)},
            internal_problems=problems,
            internal_missing=lost,
            sources_rights={name: may for name, may in held.items() if name in wanted},
            sinks_rights={name: may for name, may in held.items() if name in written},
            cluster_rights=rights.of_cluster(),
            newest_ms=rights.newest(read),
            now_ms=time.time_ns() // 1_000_000,
            members=members,
            members_problem=members_problem,
        )
