"""The settings of the embedded broker and its JVM. Pure.

One node that is controller and broker at once, for one developer's machine: nothing is replicated, nothing
waits for other nodes to join, nothing listens beyond the loopback address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["HOST", "NODE_ID", "broker_settings", "jvm_arguments", "properties_text"]

HOST = "127.0.0.1"
NODE_ID = 1


def broker_settings(
    *,
    port: int,
    controller_port: int,
    log_dir: Path,
    overrides: Mapping[str, str],
    after_kill: bool = False,
) -> dict[str, str]:
    """The `server.properties` of the broker; `overrides` win.

    Args:
        after_kill: the last broker on this data was killed, so the cluster still considers it alive, and the
            new one cannot register before that session times out.
    """
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        # A static voter, not one of the dynamic quorum: its port may then differ from start to start.
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(log_dir),
        # A deleted topic must stay deleted, and a misspelt one must be an error (KIP-662).
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        # What has to be loaded after a start stays short. Kafka 4.3 begins to load before a broker that was
        # killed is fenced, and again afterwards; if both overlap, no group is served until another start.
        "offsets.topic.segment.bytes": str(1024 * 1024),
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        # There are no others to wait for; by default a new group waits 3 s for more members.
        "group.initial.rebalance.delay.ms": "0",
        "group.streams.initial.rebalance.delay.ms": "0",
        # Allows failover tests to choose a session timeout of a second.
        "group.min.session.timeout.ms": "100",
        # Records carry their event time, which may be long ago: by default they would be deleted.
        "log.retention.ms": "-1",
        # The default is to wait 25 ms for more changes, so every topic creation takes that long.
        "controller.quorum.append.linger.ms": "0",
        # Deleted data frees its space soon, not after a minute.
        "log.segment.delete.delay.ms": "1000",
        # By default the log cleaner takes 128 MB of the heap at once.
        "log.cleaner.dedupe.buffer.size": str(32 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "4",
        # No one attaches to this JVM over JMX.
        "metric.reporters": "",
    }
    if after_kill:  # 3 s, not 9; only then, because a busy machine may delay a broker that long
        settings |= {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    settings.update(overrides)
    return settings


def properties_text(settings: Mapping[str, str]) -> str:
    """A Java properties file. Backslashes and line breaks are escaped, so that one setting stays one line."""
    rows = []
    for key, value in settings.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        rows.append(f"{key}={escaped}\n")
    return "".join(rows)


def jvm_arguments(*, heap_mb: int, jars: Sequence[Path], crash_dir: Path) -> list[str]:
    """The arguments that come before the main class."""
    log = "-Dorg.slf4j.simpleLogger"
    return [
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:-UsePerfData",
        # Out of memory must be a visible end, not a broker that half works.
        "-XX:+ExitOnOutOfMemoryError",
        f"-XX:ErrorFile={crash_dir}/hs_err_%p.log",
        "-Djava.awt.headless=true",
        "-Dfile.encoding=UTF-8",
        f"{log}.showDateTime=true",
        f"{log}.dateTimeFormat=yyyy-MM-dd HH:mm:ss.SSS",
        f"{log}.showShortLogName=true",
        f"{log}.defaultLogLevel=info",
        # Four hundred lines of settings at each start, which are in server.properties anyway.
        f"{log}.log.org.apache.kafka.common.config.AbstractConfig=warn",
        f"{log}.log.org.apache.kafka.common.utils.AppInfoParser=warn",
        "-cp",
        ":".join(str(jar) for jar in jars),
    ]
