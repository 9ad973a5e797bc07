"""The runner of the tests, on projects of three small tests: what runs when, what is shown, how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

pytestmark = pytest.mark.disk

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "run_tests.py"

TOGETHER = """
import pathlib, pytest, threading
from waiting import wait_until

HERE = pathlib.Path(__file__).parent

@pytest.mark.parametrize("own, other", [
    pytest.param("left", "right", marks=pytest.mark.spark),
    pytest.param("right", "left", marks=pytest.mark.cluster),
])
def test_each_waits_for_the_other(own, other):
    print(f"{own} begins")
    (HERE / own).touch()
    wait_until(lambda: (HERE / other).exists(), f"{other} runs, too", 20)
    print(f"{own} ends")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the runner, and what its tests need."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "run_tests.py").write_text(SCRIPT.read_text(encoding="utf-8"))
    (tmp_path / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {Path(__file__).parent}\n"
        "addopts = -p no:cacheprovider -p no:hypothesispytest\n"
        "markers =\n    disk\n    spark\n    kafka\n    cluster\n    nightly\n"
    )
    return tmp_path


def start(project: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(project / "scripts" / "run_tests.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_the_lanes_run_beside_each_other_and_what_each_prints_is_kept_together(project: Path) -> None:
    """Each of two tiers waits for the other one; the last line has the totals of both."""
    (project / "test_together.py").write_text(TOGETHER)
    run = start(project, "--tiers", "spark cluster", "--", "-s", "-q")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    lines = [line for line in output.splitlines() if line]
    for side in ("left", "right"):
        assert lines.index(f"{side} ends") == lines.index(f"{side} begins") + 1, output
    assert lines[-1] == "2 passed, 0 failed"


def test_a_lane_that_is_free_takes_the_next_tier(project: Path) -> None:
    """The other lane is still running, and waits for just that."""
    (project / "test_three.py").write_text(
        "import pathlib, pytest\nfrom waiting import wait_until\n\nHERE = pathlib.Path(__file__).parent\n\n"
        "@pytest.mark.cluster\ndef test_that_is_short():\n    pass\n\n"
        "@pytest.mark.spark\ndef test_that_waits():\n"
        "    wait_until((HERE / 'ran').exists, 'the third tier has run', 30)\n\n"
        "@pytest.mark.kafka\ndef test_of_the_third():\n    (HERE / 'ran').touch()\n"
    )
    run = start(project, "--tiers", "spark cluster kafka")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 0, output
    assert output.splitlines()[-1] == "3 passed, 0 failed"


@pytest.mark.parametrize("everything", ["", "1"])
def test_what_waits_for_the_night_runs_with_everything_else(
    project: Path, everything: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`make test` leaves it out, `make test ALL=1` does not."""
    (project / "test_two.py").write_text(
        "import pytest\n\n@pytest.mark.spark\ndef test_by_day():\n    pass\n\n"
        "@pytest.mark.spark\n@pytest.mark.nightly\ndef test_by_night():\n    pass\n"
    )
    monkeypatch.setenv("ALL", everything)
    output, _ = start(project, "--tiers", "spark").communicate(timeout=60)
    assert output.splitlines()[-1] == f"{2 if everything else 1} passed, 0 failed"


def test_when_the_first_tier_fails_the_others_do_not_begin(project: Path) -> None:
    """Its failure is what there is to read."""
    (project / "test_some.py").write_text(
        "import pytest\n\ndef test_of_the_first_tier():\n    assert 1 == 2\n\n"
        "@pytest.mark.spark\ndef test_of_another():\n    pass\n"
    )
    run = start(project, "--tiers", "pure spark", "--", "-p", "xdist")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "assert 1 == 2" in output
    assert "spark" not in output
    assert output.splitlines()[-1] == "0 passed, 1 failed"


def test_an_interrupted_run_ends_what_its_tiers_have_started(project: Path) -> None:
    """Each tier gets to its fixtures' ends; what is left of its processes is killed."""
    (project / "test_long.py").write_text(
        "import pathlib, pytest, subprocess, sys, threading\n\n"
        "HERE = pathlib.Path(__file__).parent\n\n"
        "@pytest.mark.kafka\n"
        "def test_that_does_not_end():\n"
        "    left = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "    (HERE / 'pid.new').write_text(str(left.pid))\n"
        "    (HERE / 'pid.new').rename(HERE / 'pid')\n"
        "    try:\n"
        "        left.wait(60)\n"
        "    finally:\n"
        "        (HERE / 'ended').touch()\n"
    )
    run = start(project, "--tiers", "spark kafka")
    pid = project / "pid"
    wait_until(pid.exists, "the test has begun", 30)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 130, output
    assert (project / "ended").exists()
    wait_until(lambda: not is_alive(int(pid.read_text())), "what the test had started has ended", 10)


def test_a_tier_that_says_nothing_of_its_tests_has_failed(project: Path) -> None:
    """A test that ends the process with 0 would else take those after it along, unseen."""
    (project / "test_some.py").write_text(
        "import os, pytest\n\n@pytest.mark.spark\ndef test_that_ends_it_all():\n    os._exit(0)\n\n"
        "@pytest.mark.cluster\ndef test_of_another():\n    pass\n"
    )
    run = start(project, "--tiers", "spark cluster")
    output, _ = run.communicate(timeout=60)
    assert run.returncode == 1, output
    assert "the spark tests ended without a report" in output
    assert output.splitlines()[-1] == "1 passed, 1 failed"


def test_who_interrupts_twice_does_not_wait_and_leaves_nothing_behind(project: Path) -> None:
    """Tiers have sessions of their own, so what the runner does not end, nobody does."""
    (project / "test_stubborn.py").write_text(
        "import os, pathlib, pytest, subprocess, sys\n\n"
        "HERE = pathlib.Path(__file__).parent\n\n"
        "@pytest.mark.kafka\n"
        "def test_that_does_not_end():\n"
        "    left = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "    (HERE / 'pids.new').write_text(f'{os.getpid()} {left.pid}')\n"
        "    (HERE / 'pids.new').rename(HERE / 'pids')\n"
        "    try:\n"
        "        left.wait(60)\n"
        "    except KeyboardInterrupt:\n"
        "        (HERE / 'asked').touch()\n"
        "        left.wait(60)\n"
    )
    run = start(project, "--tiers", "kafka")
    wait_until((project / "pids").exists, "the test has begun", 30)
    run.send_signal(signal.SIGINT)
    wait_until((project / "asked").exists, "the test has heard of it", 30)
    run.send_signal(signal.SIGINT)
    output, _ = run.communicate(timeout=25)  # less than the patience after the first
    assert run.returncode == 130, output
    for pid in map(int, (project / "pids").read_text().split()):
        wait_until(lambda pid=pid: not is_alive(pid), "what the tier had started has ended", 10)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z" if Path("/proc/self").exists() else True
