"""Runs the tests tier by tier, the fast ones first, each tier in a pytest process of its own.

A process per tier means that no tier inherits another's JVM, broker, settings or threads. The first tier
takes seconds and needs no engine; when it fails, the rest would only say the same more slowly, so it ends
the run. What stands after `--` goes to pytest. The last line has the totals of all tiers.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TIERS = {
    "pure": "not spark and not kafka and not cluster",
    "spark": "spark and not kafka and not cluster",
    "kafka": "kafka and not cluster",
    "cluster": "cluster",
}
"""Each test belongs to exactly one: that of the heaviest thing it needs."""

LIMIT_S = {"pure": 300, "spark": 1200, "kafka": 1800, "cluster": 1800}
"""Far above what a tier takes; so that a run that hangs ends by itself."""

NO_TESTS = 5
"""pytest's exit code when nothing was selected."""


@dataclass(frozen=True, slots=True)
class Outcome:
    tier: str
    seconds: float
    exit_code: int
    tests: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def good(self) -> bool:
        return self.exit_code in (0, NO_TESTS)

    @property
    def passed(self) -> int:
        return self.tests - self.failed - self.skipped


def main(arguments: Sequence[str]) -> int:
    own, handed_on = _split(list(arguments))
    parser = argparse.ArgumentParser(description="run the tests tier by tier")
    parser.add_argument("--tiers", default=" ".join(TIERS), help=f"some of: {' '.join(TIERS)}")
    tiers = parser.parse_args(own).tiers.split()
    unknown = [tier for tier in tiers if tier not in TIERS]
    if unknown:
        parser.error(f"there is no tier '{unknown[0]}'; there are {', '.join(TIERS)}")

    outcomes: list[Outcome] = []
    for tier in (tier for tier in TIERS if tier in tiers):
        outcomes.append(run_tier(tier, handed_on))
        if tier == "pure" and not outcomes[-1].good:
            break
    return report(outcomes)


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `--`, and what behind it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    return arguments[:at], arguments[at + 1 :]


def run_tier(tier: str, handed_on: Sequence[str]) -> Outcome:
    print(f"\n--- {tier} tests ---", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.xml")
        command = [sys.executable, "-m", "pytest", "-m", TIERS[tier], f"--junitxml={results}"]
        command += ["--durations=5", "--durations-min=2", *handed_on]
        started = time.monotonic()
        try:
            code = subprocess.run(command, cwd=ROOT, timeout=LIMIT_S[tier], check=False).returncode
        except subprocess.TimeoutExpired:
            print(f"the {tier} tests were stopped: not done after {LIMIT_S[tier]} s", flush=True)
            code = -1
        seconds = time.monotonic() - started
        return Outcome(tier, seconds, code, **_counts(results))


def _counts(results: Path) -> dict[str, int]:
    """From pytest's own report; zeros when the process did not live to write one."""
    if not results.exists():
        return {}
    counts = {"tests": 0, "failed": 0, "skipped": 0}
    for suite in ElementTree.parse(results).iter("testsuite"):
        counts["tests"] += int(suite.get("tests", 0))
        counts["failed"] += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        counts["skipped"] += int(suite.get("skipped", 0))
    return counts


def report(outcomes: Sequence[Outcome]) -> int:
    """Print the table and the closing line; the exit code of the whole run."""
    print()
    for outcome in outcomes:
        note = "" if outcome.good else f"exit code {outcome.exit_code}"
        note = "no tests" if outcome.exit_code == NO_TESTS else note
        counts = f"{outcome.passed:>5} passed {outcome.failed:>4} failed"
        print(f"{outcome.tier:<8} {counts} {outcome.seconds:>7.1f} s   {note}".rstrip())
    passed = sum(outcome.passed for outcome in outcomes)
    bad = [outcome for outcome in outcomes if not outcome.good]
    # A tier that ended badly without a failed test, killed or hanging, has failed all the same.
    failed = sum(max(outcome.failed, 0 if outcome.good else 1) for outcome in outcomes)
    if not passed and not bad:
        print("no test was run")
    print(f"\n{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not bad else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
