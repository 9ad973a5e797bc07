"""The limits of SQL hold whatever the query is: time, memory, the answer's size; and what ends with what."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_ports import ManualClock
from fake_world import FakeWorld
from waiting import wait_until
from worlds import Client

from millstream.clock import SystemClock
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Consumed
from millstream.errors import StreamsException, TimeoutException, UnknownStateStoreException
from millstream.query import sql
from millstream.query.sql import run_sql
from millstream.runtime.client import KafkaStreams
from millstream.serdes.serdes import Serdes

# Most of them start and end processes.
pytestmark = pytest.mark.cluster

pytestmark = pytest.mark.disk

HERE = Path(__file__).parent
ENDLESS = "select levenshtein(repeat('a', 200000), repeat('b', 200000))"


@pytest.fixture
def client() -> Client:
    """With a process that has started: what is measured is the query."""
    made = Client()
    made.put("a", "bb", "ccc")
    assert run_sql(made, "select 1 as x").to_pylist() == [{"x": 1}]
    return made


def kept_pid() -> int:
    (kept,) = sql._PROCESSES._kept
    return kept.pid


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    "query",
    [
        "select levenshtein(repeat('a', 100000), repeat('b', 100000))",
        "select 1" + " union all select 1" * 20_000,
        "select count(*) from range(1000000000) a, range(1000000000) b",
    ],
    ids=["one long call", "the parser", "many rows"],
)
def test_the_deadline_holds(client: Client, query: str) -> None:
    """Where DuckDB can be interrupted, and where it cannot; nothing goes on computing, and the next query is
    answered."""
    pid = kept_pid()
    before = SystemClock().now()
    with pytest.raises(TimeoutException, match=r"did not finish within 0\.3 s"):
        run_sql(client, query, timeout_s=0.3)
    assert SystemClock().now() - before < 5
    assert is_gone(pid)
    assert run_sql(client, "select count(*) as n from counts").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select length(repeat('a', 2000000000))", "memory"),
        ("select i, i, i, i from range(40000000) t(i)", "is larger than the memory limit"),
        ("select list(i) from range(40000000) t(i)", "memory"),
    ],
    ids=["one value", "the answer", "an aggregate"],
)
def test_the_limits_of_memory_hold(client: Client, query: str, text: str) -> None:
    """Of what DuckDB counts, and of what it does not; and here, where the answer comes."""
    with pytest.raises(StreamsException, match=f"(?i){text}"):
        run_sql(client, query, memory_limit="20MB")
    assert run_sql(client, "select count(*) as n from counts").to_pylist() == [{"n": 3}]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("select * from " + "(select * from " * 3_000 + "counts" + ")" * 3_000, "nested too deeply|depth"),
        ("select " + "(" * 5_000 + "1" + ")" * 5_000, "depth"),
        ("select '" + "x" * (1 << 20) + "'", "at most 1048576 bytes"),
    ],
    ids=["subqueries", "brackets", "text"],
)
def test_a_query_that_is_too_much_is_a_mistake_of_its_own(client: Client, query: str, text: str) -> None:
    """ValueError, and no RecursionError or exception of DuckDB's."""
    with pytest.raises(ValueError, match=text):
        run_sql(client, query)


@pytest.mark.parametrize("limit", ["", "much", "-1GB", "0", "1 PB", 7])
def test_a_memory_limit_is_a_size(client: Client, limit: Any) -> None:
    """DuckDB's notation is used."""
    with pytest.raises(ValueError, match="such as '1GB'"):
        run_sql(client, "select 1", memory_limit=limit)
    for fits in ("100MB", "0.1 GiB", "100000000"):
        assert run_sql(client, "select 1", memory_limit=fits).num_rows == 1


def test_a_process_that_has_ended_is_replaced(client: Client) -> None:
    """While nobody asks: nobody notices. While it answers: an exception of ours that says so."""
    os.kill(kept_pid(), signal.SIGKILL)
    assert run_sql(client, "select 1 as x").to_pylist() == [{"x": 1}]
    pid = kept_pid()
    before = computed_s(pid)
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            run_sql(client, ENDLESS)
        except BaseException as error:
            failures.append(error)

    asking = threading.Thread(target=ask, name="asks", daemon=True)
    asking.start()
    wait_until(lambda: not sql._PROCESSES._kept, "it is being asked", 20)
    wait_until(lambda: computed_s(pid) > before + 0.2, "it is computing", 20)
    os.kill(pid, signal.SIGKILL)
    asking.join(20)
    assert [type(each) for each in failures] == [StreamsException]
    assert "SIGKILL" in str(failures[0])
    assert run_sql(client, "select 1 as x").to_pylist() == [{"x": 1}]


def computed_s(pid: int) -> float:
    """How long a process has computed."""
    return float(psutil.Process(pid).cpu_times().user)


def test_a_process_that_cannot_be_started_is_told(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """And it takes nothing from later queries: here, more often than there are places."""
    sql._PROCESSES.close()
    with monkeypatch.context() as without:
        without.setattr(sys, "executable", "/nowhere/python")
        for _ in range(6):
            with pytest.raises(StreamsException, match=r"cannot be started.*/nowhere/python"):
                run_sql(client, "select 1", timeout_s=5)
    assert run_sql(client, "select 1 as x").to_pylist() == [{"x": 1}]


def test_threads_may_ask_at_once(client: Client) -> None:
    """Each gets its own answer; afterwards one process is kept."""
    answers: dict[int, Any] = {}

    def ask(number: int) -> None:
        asked = "select count(*) as n, ? as mine from counts"
        answers[number] = run_sql(client, asked, [number]).to_pylist()

    threads = [threading.Thread(target=ask, args=(n,), name=f"asks-{n}", daemon=True) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert answers == {number: [{"n": 3, "mine": number}] for number in range(6)}
    assert len(sql._PROCESSES._kept) == 1
    assert len(sql._PROCESSES._all) == 1


def test_its_process_has_nothing_of_this_one(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the environment with somebody's secret, no file, no right to write one."""
    monkeypatch.setenv("SOME_PASSWORD", "s3cret")
    sql._PROCESSES.close()
    (told,) = run_sql(client, "select current_setting('secret_directory') as x").to_pylist()
    assert str(Path.home()) not in told["x"]
    pid = kept_pid()
    process = psutil.Process(pid)
    assert "SOME_PASSWORD" not in process.environ()
    assert process.open_files() == []
    assert process.net_connections() == []
    if sys.platform == "linux":  # elsewhere nobody tells
        assert process.rlimit(psutil.RLIMIT_FSIZE) == (0, 0)


def test_it_ends_with_its_program_and_is_not_shared_by_a_fork() -> None:
    """Killed in the middle of a query: DuckDB's process does not go on without it."""
    path = os.pathsep.join([str(HERE), *sys.path])
    program = subprocess.Popen(
        [sys.executable, str(HERE / "sql_parent.py")],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert program.stdout is not None
    try:
        lines = [program.stdout.readline().split() for _ in range(3)]
    finally:
        program.kill()
        program.wait(20)
        program.stdout.close()
    assert [line[0] for line in lines] == ["kept", "forked", "busy"], lines
    assert lines[1] == ["forked", "42"]
    pid = int(lines[0][1])
    wait_until(lambda: is_gone(pid), "its process ends, too", 20)


def test_what_python_imports_for_the_first_query_takes_from_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow takes seconds on a busy machine. Here it takes ten, of five."""
    clock, world = ManualClock(), FakeWorld({"users": 1})
    config = {"application.id": "app", "bootstrap.servers": "fake:9092", "state.dir": str(tmp_path)}
    builder = StreamsBuilder()
    builder.global_table("users", Consumed.with_(Serdes.string(), Serdes.string()))
    client = KafkaStreams(builder.build(), config, parts=replace(world.parts(), clock=clock))

    class Slow:
        """Comes before Python's own finders, and finds nothing."""

        @staticmethod
        def find_spec(name: str, path: object, target: object = None) -> None:
            if name == sql.__name__:
                clock.advance(10)

    monkeypatch.setattr("millstream.query.sql", sql)  # afterwards the package has this one again
    monkeypatch.delitem(sys.modules, sql.__name__)
    monkeypatch.setattr(sys, "meta_path", [Slow, *sys.meta_path])
    with pytest.raises(TimeoutException, match="did not finish within 5 s"):
        client.sql("from users", timeout=timedelta(seconds=5))
    with pytest.raises(UnknownStateStoreException):
        client.sql("from users", timeout=timedelta(seconds=60))
    sys.modules[sql.__name__]._PROCESSES.close()
    client.close()
    world.close()
