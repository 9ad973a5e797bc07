"""How a program that runs a client ends: each in a process of its own, with real signals and forks."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent

PROGRAM = """
import logging, os, signal, sys, threading
sys.path[:0] = sys.argv[2:]
from scenes import SOON, word_count
from waiting import wait_until
from millstream import program_end
from millstream.errors import IllegalStateException
from millstream.runtime.client import KafkaStreams
from fake_world import FakeWorld

logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
world = FakeWorld({"lines": 1, "out": 1})

def client(name="app", world=world):
    config = {"application.id": name, "bootstrap.servers": "fake:9092", "state.dir": sys.argv[1]}
    return KafkaStreams(word_count(), config, parts=world.parts())

def send(number):
    # From a thread, as another process would: when the main thread waits, or soon after.
    threading.Timer(0.1, os.kill, (os.getpid(), number)).start()

def says(text):
    print(text, flush=True)

streams = client()
"""

STARTED = """
streams.start()
streams.wait_until_running(SOON)
"""

IN_ASYNCIO = """
import asyncio

async def main():
    async with streams:
        await streams.wait_until_running_async(SOON)
        send(signal.HOW)
        try:
            await streams.wait_async()
        finally:
            says('finally')

asyncio.run(main())
"""

CLOSED = "State transition from PENDING_SHUTDOWN to NOT_RUNNING"


def run(tmp_path: Path, rest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + rest, str(tmp_path), str(HERE), str(HERE.parent)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# --- the end of the program ------------------------------------------------------------------------------


def test_ctrl_c_in_wait_closes_the_client_and_returns(tmp_path: Path) -> None:
    """No traceback; the program goes on behind wait()."""
    ended = run(
        tmp_path,
        STARTED + "send(signal.SIGINT)\nprint('wait gave', streams.wait(), world.everything_closed)\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert "wait gave NOT_RUNNING True" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("pass", 0),
        ("sys.exit(3)", 3),
        ("raise ValueError('of the program')", 1),
        ("send(signal.SIGINT); threading.Event().wait()", -signal.SIGINT),
    ],
)
def test_a_program_that_ends_closes_its_clients_and_then_what_they_need(
    how: str, code: int, tmp_path: Path
) -> None:
    """However Python ends: nobody called close(), two clients live, and Spark's JVM was the last to start."""
    ended = run(
        tmp_path,
        "import atexit\n"
        "engine = object()\n"
        "atexit.register(lambda: says('an earlier hook'))\n"
        + STARTED
        + "other_world = FakeWorld({'lines': 1, 'out': 1})\n"
        "other = client('other', other_world)\n"
        "other.start()\n"
        "other.wait_until_running(SOON)\n"
        "program_end.close_after_clients(\n"
        "    engine, lambda: says(f'the JVM ends: {streams.state} {other.state}')\n"
        ")\n"
        f"says('done')\n{how}\n",
    )
    assert ended.returncode == code, ended.stderr
    after = ended.stdout.partition("done")[2]
    assert after.count("the client is still open") == 2
    assert after.index("the JVM ends: NOT_RUNNING NOT_RUNNING") < after.index("an earlier hook")
    assert not (tmp_path / "app" / ".owner").exists()
    assert not (tmp_path / "other" / ".owner").exists()


def test_a_client_that_cannot_be_closed_does_not_keep_the_program(tmp_path: Path) -> None:
    """There is a deadline, it is logged, and what comes after clients is closed all the same."""
    ended = run(
        tmp_path,
        "program_end._CLIENTS_S = 0.3\n"
        "hangs = threading.Event()\n"
        "program_end.close_client(hangs, 'stuck', hangs.wait)\n"
        "program_end.close_after_clients(world, lambda: says('the JVM ends'))\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert "'stuck' did not close within 0.3 s" in ended.stdout
    assert ended.stdout.rstrip().endswith("the JVM ends")


# --- SIGTERM ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        STARTED + "send(signal.SIGTERM)\nstreams.wait()\n",
        "with streams:\n"
        "    streams.wait_until_running(SOON)\n"
        "    send(signal.SIGTERM)\n"
        "    try:\n"
        "        threading.Event().wait()  # not in wait(): in code of the program's own\n"
        "    finally:\n"
        "        says('finally')\n",
        "with streams:\n    send(signal.SIGTERM)\n    streams.wait()\n",
        IN_ASYNCIO.replace("HOW", "SIGTERM"),
    ],
    ids=["wait", "with", "both", "asyncio"],
)
def test_sigterm_closes_the_client_and_ends_the_program(body: str, tmp_path: Path) -> None:
    """With 143, as shells, Docker and Kubernetes have it, and as a JVM gives it; `finally` runs."""
    ended = run(tmp_path, body + "says('not reached')\n")
    assert ended.returncode == 143, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "not reached" not in ended.stdout
    assert "nobody closed" not in ended.stdout
    assert "failed" not in ended.stdout
    assert not ended.stderr
    assert ("finally" in ended.stdout) == ("finally" in body)
    assert not (tmp_path / "app" / ".owner").exists()


def test_ctrl_c_in_asyncio_closes_the_client(tmp_path: Path) -> None:
    """It cancels the main task, which leaves `async with`; then it is KeyboardInterrupt, as always."""
    ended = run(tmp_path, IN_ASYNCIO.replace("HOW", "SIGINT"))
    assert ended.returncode == -signal.SIGINT, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "nobody closed" not in ended.stdout
    assert ended.stderr.rstrip().endswith("KeyboardInterrupt")


def test_sigterm_while_the_client_starts(tmp_path: Path) -> None:
    """It is closed, not in ERROR: nothing has failed."""
    ended = run(
        tmp_path,
        "from millstream.runtime.assembly import Assembly\n"
        "Assembly.open = lambda self, wanted: (send(signal.SIGTERM), threading.Event().wait())\n"
        "streams.start()\n",
    )
    assert ended.returncode == 143, (ended.stdout, ended.stderr)
    assert CLOSED in ended.stdout
    assert "ERROR" not in ended.stdout
    assert not ended.stderr


@pytest.mark.parametrize(
    ("first", "second"),
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGINT)],
)
def test_a_second_signal_ends_the_program_at_once(
    first: signal.Signals, second: signal.Signals, tmp_path: Path
) -> None:
    """Also when a listener of the program's never returns, so that closing cannot end."""
    ended = run(
        tmp_path,
        "def listen(new, old):\n"
        "    if new is KafkaStreams.State.PENDING_SHUTDOWN:\n"
        f"        says('closing'); os.kill(os.getpid(), signal.{second.name}); threading.Event().wait()\n"
        f"streams.set_state_listener(listen)\n{STARTED}"
        f"send(signal.{first.name})\nstreams.wait()\n",
    )
    assert ended.returncode == -second
    assert "a second signal ends the program at once" in ended.stdout
    assert CLOSED not in ended.stdout


def test_a_handler_of_the_programs_own_stays(tmp_path: Path) -> None:
    """It is the one that is called, in wait() and in `with`; and where there is none, none is left."""
    ended = run(
        tmp_path,
        "with client('other'):\n    pass\n"
        "assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL\n"
        "signal.signal(signal.SIGTERM, lambda *_: (says('my own'), streams.close()))\n"
        "with streams:\n    send(signal.SIGTERM)\n    says(streams.wait())\n",
    )
    assert ended.returncode == 0, ended.stderr
    assert "my own" in ended.stdout
    assert "NOT_RUNNING" in ended.stdout


# --- fork ------------------------------------------------------------------------------------------------


def test_a_forked_child_leaves_its_parents_client_alone(tmp_path: Path) -> None:
    """It ends as it wants to, inside the `with` block: no line of log, no close; using the client raises.
    Its SIGTERM is its own, multiprocessing goes on working, and the parent is as it was."""
    ended = run(
        tmp_path,
        "import multiprocessing\n"
        "def child_status(child):\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
        "with streams:\n"
        "    streams.wait_until_running(SOON)\n"
        "    program_end.close_after_clients(world, lambda: says('the JVM ends'))\n"
        "    sys.stdout.flush()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        for use in (lambda: streams.state, streams.__repr__, lambda: streams.close()):\n"
        "            try:\n"
        "                says(f'the child: {use()}')\n"
        "            except IllegalStateException as error:\n"
        "                says(f'the child: {error}')\n"
        "        sys.exit(7)\n"
        "    says(f'status {child_status(child)}')\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    says(f'status {child_status(child)}')\n"
        "    with multiprocessing.get_context('fork').Pool(2) as pool:\n"
        "        says(pool.map(abs, [-1, -2]))\n"
        "    says(f'the parent: {streams.state}')\n",
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    of_child = [line for line in lines if line.startswith("the child")]
    assert len(of_child) == 3
    assert "forked from it" in of_child[0]
    assert "of client" in of_child[1]
    assert "forked from it" in of_child[2]
    between = lines[lines.index(of_child[1]) + 2 : lines.index("the parent: RUNNING")]
    assert between == ["status 7", f"status {-signal.SIGTERM}", "[1, 2]"]
    assert ended.stdout.count("the JVM ends") == 1
    assert ended.stdout.count(CLOSED) == 1
    assert not ended.stderr
