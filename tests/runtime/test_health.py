"""Health: a test for each row of the table, and that no view whatsoever gets nonsense."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import PipelineException, StreamsException
from millstream.model import OpeningTasks, TaskId, TopicPartition
from millstream.runtime.health import Health, HealthView, Waiting, assess
from millstream.runtime.state.failure import Failure, Response
from millstream.runtime.state.history import FailureRecord
from millstream.states import State, ThreadState

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SOON = NOON + timedelta(seconds=5)
ERROR = PipelineException(
    "pipeline p0: its query failed\nrow 'secret'",
    pipeline="p0",
    offsets={TopicPartition("lines", 0): (3, 5)},
    batch_id=9,
    task_id=TaskId(0, 1),
)
RECORD = FailureRecord.of(
    Failure.of("app-StreamThread-1", ERROR), NOON, Response.REPLACE_THREAD, attempt=3, next_try=SOON, most=10
)
TWO = {"app-StreamThread-1": "RUNNING", "app-StreamThread-2": "RUNNING"}
AFTER = ", after PipelineException: pipeline p0: its query failed"


def view(state: State = State.RUNNING, **facts: Any) -> HealthView:
    """Two threads and two pipelines, all of which run."""
    well: dict[str, Any] = {
        "threads": TWO,
        "wanted_threads": 2,
        "pipelines_total": 2,
        "pipelines_owned": 2,
        "pipelines_running": 2,
    }
    return HealthView(state, **{**well, **facts})


WAITS = {"app-StreamThread-2": Waiting("p0", SOON, 3, 10)}

# view, status, live, ready, reason
ROWS = {
    "error": (
        view(State.ERROR, failure=ERROR, threads={}),
        ("failed", False, False),
        "the client ended in ERROR with PipelineException: pipeline p0: its query failed; see its log, "
        "correct the cause, then start a new client",
    ),
    "error, nobody knows why": (
        view(State.ERROR),
        ("failed", False, False),
        "the client ended in ERROR; see its log, correct the cause, then start a new client",
    ),
    "not running": (
        view(State.NOT_RUNNING, threads={}),
        ("closed", False, False),
        "the client was closed",
    ),
    "pending error": (
        view(State.PENDING_ERROR, failure=StreamsException("x")),
        ("closing", True, False),
        "the client is closing because of a failure, StreamsException",
    ),
    "pending shutdown": (view(State.PENDING_SHUTDOWN), ("closing", True, False), "the client is closing"),
    "created": (
        view(State.CREATED),
        ("created", True, False),
        "the client has not been started; call start()",
    ),
    "a thread waits": (
        view(waiting=WAITS, last_failure=RECORD, pipelines_running=1),
        ("waiting", True, False),
        "thread app-StreamThread-2 waits to restart pipeline p0 (attempt 3 of 10) until 12:00:05 UTC" + AFTER,
    ),
    "the only thread waits": (
        view(waiting={"t3": Waiting(None, SOON, 2)}, threads={}, wanted_threads=1),
        ("waiting", True, False),
        "thread t3 waits to restart its work (attempt 2) until 12:00:05 UTC",
    ),
    "a thread waits while rebalancing": (
        view(State.REBALANCING, waiting={"t3": Waiting("p1", SOON, 2)}, missing_topics=("lines",)),
        ("waiting", True, False),
        "thread t3 waits to restart pipeline p1 (attempt 2) until 12:00:05 UTC",
    ),
    "two threads wait": (
        view(waiting={"a3": Waiting("p1", SOON + timedelta(hours=1), 2), **WAITS}),
        ("waiting", True, False),
        "thread app-StreamThread-2 waits to restart pipeline p0 (attempt 3 of 10) until 12:00:05 UTC; 1 more "
        "thread waits too",
    ),
    "three threads wait": (
        view(waiting={f"t{number}": Waiting("p1", SOON, 2) for number in (3, 1, 2)}),
        ("waiting", True, False),
        "thread t1 waits to restart pipeline p1 (attempt 2) until 12:00:05 UTC; 2 more threads wait too",
    ),
    "running without threads": (
        view(threads={}, last_failure=RECORD),
        ("empty", False, False),
        "the client is RUNNING and has no threads, so nothing runs here; add_stream_thread() starts one"
        + AFTER,
    ),
    "running with threads that end": (
        view(threads={"t1": "PENDING_SHUTDOWN", "t2": "DEAD"}),
        ("empty", False, False),
        "the client is RUNNING and has no threads, so nothing runs here; add_stream_thread() starts one",
    ),
    "rebalancing without threads": (
        view(State.REBALANCING, threads={}),
        ("rebalancing", True, False),
        "work is being assigned and started: 0 of 2 threads run",
    ),
    "a topic is missing": (
        view(missing_topics=("orders",)),
        ("missing", True, False),
        "source topic orders does not exist",
    ),
    "topics are missing": (
        view(State.REBALANCING, missing_topics=("orders", "lines")),
        ("missing", True, False),
        "source topics lines, orders do not exist",
    ),
    "not in the group": (
        view(member=False, lost="no heartbeat was answered for 45 s"),
        ("lost", True, False),
        "the client is currently not a member of its group, so it runs nothing; it rejoins automatically: no "
        "heartbeat was answered for 45 s",
    ),
    "a thread does not get its stores open": (
        view(State.REBALANCING, opening={"t1": 3.0, "t2": 61.4}, restoring={"counts": None}),
        ("opening", True, False),
        "thread t2 has been opening its stores for 61 s; check the disk of state.dir, and the limits of this "
        "process on memory, threads and files",
    ),
    "a store restores": (
        view(restoring={"counts": 1}),
        ("restoring", True, False),
        "restoring counts (1 record to go)",
    ),
    "stores restore": (
        view(State.REBALANCING, restoring={"totals": None, "counts": 1200}, opening={"t1": 59.9}),
        ("restoring", True, False),
        "restoring counts (1200 records to go), totals",
    ),
    "many stores restore": (
        view(restoring=dict.fromkeys("gfedcba")),
        ("restoring", True, False),
        "restoring a, b, c, d, e and 2 more",
    ),
    "rebalancing": (
        view(State.REBALANCING, threads={"t1": "STARTING", "t2": "RUNNING"}),
        ("rebalancing", True, False),
        "work is being assigned and started: 1 of 2 threads run",
    ),
    "it is paused": (
        view(paused=True, pipelines_running=0, pipelines_owned=1),
        ("paused", True, False),
        "the client is paused, so it processes nothing; its stores still answer queries; resume() continues "
        "processing",
    ),
    "a pipeline does not run": (
        view(pipelines_running=1, last_failure=RECORD),
        ("degraded", True, False),
        "1 of the 2 pipelines of this client run" + AFTER,
    ),
    "no pipeline runs": (
        view(pipelines_running=0, pipelines_owned=1),
        ("degraded", True, False),
        "0 of the 1 pipeline of this client run",
    ),
    "tasks restore their state": (
        view(opening_tasks={"p0": OpeningTasks(2, 154_000)}),
        ("starting", True, False),
        "2 tasks of pipeline p0 are starting, with 154,000 records left to restore",
    ),
    "tasks of many pipelines start": (
        view(
            opening_tasks={
                "p1": OpeningTasks(1),
                "p0": OpeningTasks(1, 1),
                **{f"p{number}": OpeningTasks(3) for number in (2, 3, 4)},
            },
        ),
        ("starting", True, False),
        "1 task of pipeline p0 is starting, with 1 record left to restore; 1 task of pipeline p1 is "
        "starting; 3 tasks of pipeline p2 are starting; and 2 more pipelines",
    ),
    "nobody has a pipeline": (
        view(pipelines_running=1, pipelines_owned=1, unowned=("p1",)),
        ("degraded", True, False),
        "no client runs pipeline p1",
    ),
    "the query server has failed": (
        view(query_server_failure=OSError("too many open files")),
        ("degraded", True, False),
        "the query server has failed, so stores answer in this process only: OSError; restart the client",
    ),
    "a thread is gone": (
        view(threads={"t1": "RUNNING", "t2": "DEAD"}, last_failure=RECORD),
        ("degraded", True, True),
        "everything runs, on 1 of 2 threads" + AFTER,
    ),
    "all runs": (view(), ("running", True, True), "2 pipelines run here, on 2 threads"),
    "executors were lost": (
        view(lost_executors=("1 on b:2: Command exited with code 137",)),
        ("running", True, True),
        "2 pipelines run here, on 2 threads; Spark has lost 1 executor in the last ten minutes",
    ),
    "the one that there is runs": (
        view(pipelines_owned=1, pipelines_running=1, threads={"t1": "RUNNING"}, wanted_threads=1),
        ("running", True, True),
        "1 pipeline runs here, on 1 thread",
    ),
    "all runs again after a failure": (
        view(last_failure=RECORD),
        ("running", True, True),
        "2 pipelines run here, on 2 threads",
    ),
    "tasks only": (
        view(pipelines_owned=0, pipelines_running=0, threads={"t1": "RUNNING"}, wanted_threads=1),
        ("running", True, True),
        "every store is up to date, on 1 thread; the pipelines run on other clients",
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_row_of_the_table(row: str) -> None:
    """The word, the two answers, and the sentence."""
    seen, (status, live, ready), reason = ROWS[row]
    health = assess(seen)
    assert (health.status, health.live, health.ready) == (status, live, ready)
    assert health.reason == reason
    assert health.next_try == (SOON if status == "waiting" else None)


def test_every_status_that_the_class_names_has_a_row() -> None:
    """What the documentation lists is what there is."""
    said = {status for _, (status, _, _), _ in ROWS.values()}
    doc = " ".join(str(Health.__doc__).split())
    named = doc.split("status: one word: ")[1].split(". reason")[0]
    assert said == set(named.replace(" or ", ", ").split(", "))


def test_the_documented_table_is_this_one() -> None:
    """docs/failures.md has each combination, and none that there is not."""
    text = (Path(__file__).parents[2] / "docs" / "failures.md").read_text(encoding="utf-8")
    table = text.split("| status | live | ready | when |")[1].split("\n\n")[0]
    rows = re.findall(r"^\| (\w+) \| (yes|no) \| (yes|no) \|", table, re.MULTILINE)
    documented = {(status, live == "yes", ready == "yes") for status, live, ready in rows}
    assert documented == {verdict for _, verdict, _ in ROWS.values()}


def test_health_is_ready_for_json() -> None:
    """It has the facts, without what a query quoted of a record."""
    facts = view(
        waiting=WAITS,
        last_failure=RECORD,
        restoring={"counts": 7},
        opening={"t1": 0.7},
        unowned=("p1",),
        missing_topics=("lines",),
        failure=ERROR,
        lost="fenced",
        opening_tasks={"p0": OpeningTasks(2, 7)},
    )
    text = json.dumps(assess(facts).as_dict())
    assert "secret" not in text
    assert json.loads(text) == {
        "live": True,
        "ready": False,
        "status": "waiting",
        "reason": ROWS["a thread waits"][2],
        "next_try": "2026-05-01T12:00:05+00:00",
        "details": {
            "client_state": "RUNNING",
            "threads": TWO,
            "wanted_threads": 2,
            "waiting": {
                "app-StreamThread-2": {
                    "pipeline": "p0",
                    "next_try": "2026-05-01T12:00:05+00:00",
                    "attempt": 3,
                    "most": 10,
                }
            },
            "pipelines": {"total": 2, "owned": 2, "running": 2, "unowned": ["p1"]},
            "opening_tasks": {"p0": {"tasks": 2, "left": 7}},
            "restoring": {"counts": 7},
            "opening": {"t1": 1},
            "paused": False,
            "member": True,
            "lost": "fenced",
            "missing_topics": ["lines"],
            "lost_executors": [],
            "query_server_failure": None,
            "failure": "PipelineException: pipeline p0: its query failed",
            "last_failure": {
                "at": "2026-05-01T12:00:00+00:00",
                "thread": "app-StreamThread-1",
                "pipeline": "p0",
                "task_id": "0_1",
                "exception": "PipelineException: pipeline p0: its query failed",
                "offsets": {"lines-0": [3, 5]},
                "batch_id": 9,
                "response": "REPLACE_THREAD",
                "attempt": 3,
                "most": 10,
                "next_try": "2026-05-01T12:00:05+00:00",
                "is_global": False,
            },
        },
    }


THREADS = st.dictionaries(st.sampled_from(["t1", "t2", "t3"]), st.sampled_from([s.name for s in ThreadState]))
VIEWS = st.builds(
    HealthView,
    client_state=st.sampled_from(State),
    threads=THREADS,
    wanted_threads=st.integers(0, 3),
    waiting=st.dictionaries(
        st.sampled_from(["t1", "t4"]),
        st.builds(
            Waiting,
            st.none() | st.just("p0"),
            st.datetimes(timezones=st.just(UTC)),
            st.integers(1, 9),
            st.none() | st.just(9),
        ),
        max_size=2,
    ),
    pipelines_total=st.integers(0, 2),
    pipelines_owned=st.integers(0, 2),
    pipelines_running=st.integers(0, 2),
    opening_tasks=st.dictionaries(
        st.sampled_from(["p0", "p1"]), st.builds(OpeningTasks, st.integers(1, 9), st.integers(0, 9))
    ),
    unowned=st.sampled_from([(), ("p1",)]),
    last_failure=st.none() | st.just(RECORD),
    restoring=st.dictionaries(st.text(min_size=1, max_size=3), st.none() | st.integers(0, 9), max_size=7),
    member=st.booleans(),
    lost=st.none() | st.text(max_size=3),
    missing_topics=st.sampled_from([(), ("a",), ("a", "b")]),
    failure=st.none() | st.just(ERROR),
)


@given(VIEWS)
def test_whatever_the_view_health_is_no_nonsense(seen: HealthView) -> None:
    """Terminal is neither live nor ready; ready means that everything here does run; there is a reason."""
    health = assess(seen)
    assert health.reason.strip()
    assert health.status in str(Health.__doc__)
    json.dumps(health.as_dict())
    assert not (seen.client_state.has_completed_shutdown and (health.live or health.ready))
    if health.ready:
        assert health.live
        assert seen.client_state is State.RUNNING
        assert seen.live_threads
        assert seen.member
        assert not any((seen.waiting, seen.restoring, seen.missing_topics, seen.unowned))
        assert not seen.opening_tasks
        assert seen.pipelines_running >= seen.pipelines_owned
    if seen.client_state is State.RUNNING and not seen.live_threads and not seen.waiting:
        assert not health.live
    assert (health.next_try is None) == (health.status != "waiting")
    if health.next_try is not None:
        assert health.next_try == min(waiting.next_try for waiting in seen.waiting.values())
