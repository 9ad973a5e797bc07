"""The verdicts of `millstream doctor`: each check is a function of the facts. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from millstream.cli.output import counted, table
from millstream.foreign import listed

__all__ = ["CHECKS", "ClusterFacts", "Facts", "Grade", "Verdict", "diagnose", "has_failed", "verdicts_text"]

_GIGA = 1 << 30
_LITTLE_DISK = 1 * _GIGA
_SOME_DISK = 5 * _GIGA
_LITTLE_MEMORY = 2 * _GIGA
_FEW_FILES, _ENOUGH_FILES = 1_024, 8_192
_SLOW_MS = 500.0
_SKEW_MS = 60_000
_READ = frozenset({"READ", "DESCRIBE", "DESCRIBE_CONFIGS"})
_WRITE = frozenset({"WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})


class Grade(Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check. `next` says what to do about it; "" if there is nothing to do."""

    check: str
    grade: Grade
    says: str
    next: str = ""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts about the cluster.

    Attributes:
        answer_ms: how long the first answer took.
        sources, sinks: the program's topics, each with its number of partitions; None: it does not exist.
        internal_problems: internal topics that do not fit the program, in words.
        sources_rights, sinks_rights: what this user may do with the existing ones.
        cluster_rights: what this user may do with the cluster.
        internal_missing: the number of internal topics still to be created.
        newest_ms: the time of the newest input record, by its producer's or broker's clock.
        now_ms: this machine's time when that record was read.
        members: the members of the application's group, or why they are unknown.
    """

    servers: str
    answer_ms: float
    sources: Mapping[str, int | None] = field(default_factory=dict)
    sinks: Mapping[str, int | None] = field(default_factory=dict)
    internal_problems: Sequence[str] = ()
    internal_missing: int = 0
    sources_rights: Mapping[str, frozenset[str]] = field(default_factory=dict)
    sinks_rights: Mapping[str, frozenset[str]] = field(default_factory=dict)
    cluster_rights: frozenset[str] = frozenset()
    newest_ms: int | None = None
    now_ms: int = 0
    members: Sequence[str] = ()
    members_problem: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about this machine, the configuration, and the cluster.

    Attributes:
        versions: of the packages that Millstream requires; None: not installed.
        spark_versions: the Spark versions (major and minor) for which there are jars.
        java, kernel, jars: what was found, or, with `_problem`, why it cannot be used.
        config: a summary; None with a problem: it is invalid.
        state_dir: with the reason why it cannot be written, the free bytes, and the process that holds it.
        cluster: None with a problem: it does not answer; None without one: it was not queried.
    """

    python: str
    versions: Mapping[str, str | None]
    spark_versions: Sequence[str]
    java: str = ""
    java_problem: str = ""
    kernel: str = ""
    kernel_problem: str = ""
    jars: str = ""
    jars_missing: Sequence[str] = ()
    jars_bytes: int = 0
    open_files: int = 0
    memory: int = 0
    config: str = ""
    config_problem: str = ""
    state_dir: str = ""
    state_problem: str = ""
    disk_free: int = 0
    locked_by: int | None = None
    cluster: ClusterFacts | None = None
    cluster_problem: str = ""


def _ok(check: str, says: str) -> Verdict:
    return Verdict(check, Grade.OK, says)


def _size(count: int) -> str:
    return f"{count / _GIGA:,.1f} GB" if count >= _GIGA // 10 else f"{count / (1 << 20):,.1f} MB"


# --- this machine ----------------------------------------------------------------------------------------


def versions(facts: Facts) -> Verdict:
    """Whether the packages that Millstream requires are installed, in suitable versions."""
    missing = [name for name, version in facts.versions.items() if version is None]
    says = f"Python {facts.python}; " + ", ".join(
        f"{name} {version}" for name, version in facts.versions.items() if version is not None
    )
    if missing:
        return Verdict(
            "versions",
            Grade.FAILED,
            f"{', '.join(missing)} is not installed",
            f"pip install {' '.join(missing)}",
        )
    spark = facts.versions.get("pyspark") or ""
    if ".".join(spark.split(".")[:2]) not in facts.spark_versions:
        known = " or ".join(f"{each}.*" for each in facts.spark_versions)
        return Verdict(
            "versions",
            Grade.FAILED,
            f"there are no jars for Spark {spark}",
            f"pip install 'pyspark=={known}'",
        )
    return _ok("versions", says)


def java(facts: Facts) -> Verdict:
    """Whether there is a suitable Java for Spark."""
    if facts.java_problem:
        lines = [line.strip() for line in facts.java_problem.splitlines()]
        says = f"{lines[0]} {'; '.join(lines[1:-1])}".rstrip()
        return Verdict("Java", Grade.FAILED, says, lines[-1] if len(lines) > 1 else "")
    return _ok("Java", facts.java)


def jars(facts: Facts) -> Verdict:
    """Whether Spark's Kafka connector and the kernel are on this machine."""
    if facts.kernel_problem:
        return Verdict("jars", Grade.FAILED, facts.kernel_problem)
    if facts.jars_missing:
        return Verdict(
            "jars",
            Grade.WARNING,
            f"{len(facts.jars_missing)} jars of Spark's Kafka connector are not in the cache "
            f"({_size(facts.jars_bytes)}): the first start downloads them",
            "start once with a network, or copy another machine's cache folder (MILLSTREAM_CACHE_DIR)",
        )
    return _ok("jars", f"{facts.jars}; {facts.kernel}")


def memory(facts: Facts) -> Verdict:
    """Whether there is enough memory for a JVM."""
    says = f"{_size(facts.memory)} are free"
    if facts.memory < _LITTLE_MEMORY:
        return Verdict(
            "memory",
            Grade.WARNING,
            says,
            "Spark's driver alone takes up to 2 GB: lower spark.driver.memory, or free memory",
        )
    return _ok("memory", says)


def open_files(facts: Facts) -> Verdict:
    """Whether the process may open enough files for stores and connections."""
    says = f"this process may open {facts.open_files:,} files"
    if facts.open_files < _ENOUGH_FILES:
        grade = Grade.FAILED if facts.open_files < _FEW_FILES else Grade.WARNING
        return Verdict("open files", grade, says, "ulimit -n 65536, or LimitNOFILE=65536 in a systemd unit")
    return _ok("open files", says)


# --- the configuration, and what is on disk --------------------------------------------------------------


def configuration(facts: Facts) -> Verdict:
    """Whether the configuration can be used."""
    if facts.config_problem:
        return Verdict(
            "configuration", Grade.FAILED, facts.config_problem, "`millstream config` lists all settings"
        )
    if not facts.config:
        return Verdict(
            "configuration", Grade.SKIPPED, "there is none", "use --config-file, --set, or MILLSTREAM_…"
        )
    return _ok("configuration", facts.config)


def state(facts: Facts) -> Verdict | None:
    """Whether state can be written, and whether another process uses it."""
    if not facts.state_dir:
        return None
    if facts.state_problem:
        return Verdict(
            "state",
            Grade.FAILED,
            f"{facts.state_dir}: {facts.state_problem}",
            "correct this, or set state.dir",
        )
    if facts.locked_by is not None:
        return Verdict(
            "state",
            Grade.WARNING,
            f"{facts.state_dir} is in use by process {facts.locked_by}",
            "a second client on this machine needs its own state.dir",
        )
    return _ok("state", f"{facts.state_dir} can be written")


def disk(facts: Facts) -> Verdict | None:
    """Whether there is room for state."""
    if not facts.state_dir or facts.state_problem:
        return None
    says = f"{_size(facts.disk_free)} are free in {facts.state_dir}"
    if facts.disk_free < _SOME_DISK:
        grade = Grade.FAILED if facts.disk_free < _LITTLE_DISK else Grade.WARNING
        return Verdict("disk", grade, says, "free some space, or move state.dir")
    return _ok("disk", says)


# --- the cluster -----------------------------------------------------------------------------------------


def broker(facts: Facts) -> Verdict:
    """Whether Kafka answers, and how fast."""
    if facts.cluster_problem:
        return Verdict("broker", Grade.FAILED, facts.cluster_problem, "for a first try: `millstream kafka`")
    if facts.cluster is None:
        return Verdict(
            "broker",
            Grade.SKIPPED,
            "Kafka's address is unknown",
            "set it with --bootstrap-server, or in the configuration",
        )
    says = f"{facts.cluster.servers} answers in {facts.cluster.answer_ms:,.0f} ms"
    if facts.cluster.answer_ms > _SLOW_MS:
        return Verdict(
            "broker",
            Grade.WARNING,
            says,
            "each commit waits for it; check the network and the brokers",
        )
    return _ok("broker", says)


def topics(facts: Facts) -> Verdict | None:
    """Whether the program's topics exist, and internal ones fit."""
    cluster = facts.cluster
    if cluster is None or not (cluster.sources or cluster.sinks or cluster.internal_problems):
        return None
    lost = [name for name, count in {**cluster.sources, **cluster.sinks}.items() if count is None]
    if lost:
        return Verdict(
            "topics",
            Grade.FAILED,
            f"topics {listed(lost)} do not exist, or this user does not have the right to DESCRIBE them"
            if len(lost) > 1
            else f"topic {listed(lost)} does not exist, or this user does not have the right to DESCRIBE it",
            "create what is missing (`millstream topics PROGRAM --create`): applications do not create the "
            "topics that they share with others",
        )
    if cluster.internal_problems:
        return Verdict("topics", Grade.FAILED, "; ".join(cluster.internal_problems), "see `millstream reset`")
    found = [f"{name} ({count})" for name, count in {**cluster.sources, **cluster.sinks}.items()]
    created = (
        f"; {cluster.internal_missing} internal ones are created at the start"
        if cluster.internal_missing
        else ""
    )
    return _ok("topics", f"{', '.join(found)}{created}")


def rights(facts: Facts) -> Verdict | None:
    """Whether this user has the rights to read, write and create what the program needs."""
    cluster = facts.cluster
    if cluster is None or not (cluster.sources_rights or cluster.sinks_rights):
        return None
    denied = [
        f"{_lacks(held, needed)} {name}"
        for rows, needed in ((cluster.sources_rights, _READ), (cluster.sinks_rights, _WRITE))
        for name, held in rows.items()
        if not needed <= held and "ALL" not in held
    ]
    if denied:
        return Verdict(
            "rights",
            Grade.FAILED,
            f"this user does not have the right to {', '.join(denied)}",
            "add ACLs; for internal topics, with the application.id as prefix",
        )
    if cluster.internal_missing and not cluster.cluster_rights & {"CREATE", "ALL"}:
        return Verdict(
            "rights",
            Grade.WARNING,
            "this user does not have the right to CREATE topics of any name; whether names that begin with "
            "the application.id are allowed is unknown",
            "add ACLs of type PREFIXED for internal topics, with the application.id as prefix",
        )
    return _ok("rights", "this user can read, write and create what it needs to")


def _lacks(held: frozenset[str], needed: frozenset[str]) -> str:
    return " and ".join(sorted(needed - held))


def clock(facts: Facts) -> Verdict | None:
    """Whether this machine's clock agrees with the brokers' and producers', as far as records show."""
    cluster = facts.cluster
    if cluster is None or cluster.newest_ms is None:
        return None
    ahead = cluster.newest_ms - cluster.now_ms
    if ahead > _SKEW_MS:
        return Verdict(
            "clock",
            Grade.WARNING,
            f"the newest input record is {ahead / 1000:,.0f} s ahead of this machine's clock",
            "set the clocks by NTP; windows close by record time, so one such record makes later ones late",
        )
    return _ok("clock", f"no record is from the future; the newest is {max(0, -ahead) / 1000:,.0f} s old")


def group(facts: Facts) -> Verdict | None:
    """Whether clients of the application already run."""
    cluster = facts.cluster
    if cluster is None or not facts.config:
        return None
    if cluster.members_problem:
        return Verdict(
            "group",
            Grade.WARNING,
            f"the running clients are unknown: {cluster.members_problem}",
            "add an ACL: READ and DESCRIBE for the group named like the application.id",
        )
    count = len(cluster.members)
    running = f"{counted(count, 'client')} {'is' if count == 1 else 'are'} running"
    return _ok("group", running if count else "no client is running")


CHECKS: tuple[Callable[[Facts], Verdict | None], ...] = (
    versions,
    java,
    jars,
    memory,
    open_files,
    configuration,
    state,
    disk,
    broker,
    topics,
    rights,
    clock,
    group,
)
"""The checks, in the order of the report."""


def diagnose(facts: Facts) -> list[Verdict]:
    """All verdicts; checks without facts are left out."""
    return [verdict for check in CHECKS if (verdict := check(facts)) is not None]


def has_failed(verdicts: Sequence[Verdict]) -> bool:
    """Whether one of the checks has failed."""
    return any(each.grade is Grade.FAILED for each in verdicts)


def verdicts_text(verdicts: Sequence[Verdict]) -> str:
    """A line for each verdict, with what to do below it."""
    lines = table(
        ("check", "", "found"), [(each.check, each.grade.value, each.says) for each in verdicts], most=2000
    ).split("\n")
    indent = " " * lines[0].index("FOUND")
    shown = lines[:1]
    for line, verdict in zip(lines[1:], verdicts, strict=True):
        shown.append(line)
        if verdict.next:
            shown.append(f"{indent}-> {verdict.next}")
    failed = sum(each.grade is Grade.FAILED for each in verdicts)
    warned = sum(each.grade is Grade.WARNING for each in verdicts)
    shown += ["", f"{failed} failed, {counted(warned, 'warning')}" if failed or warned else "all is well"]
    return "\n".join(shown)
