"""Whether a client is healthy, for an orchestrator and for a person. Pure: a view in, health out.

The client's state alone does not show it: RUNNING can mean that a failed pipeline waits for its next retry,
or that no thread is left. The rules are one table; the first row that applies decides.

Differs: Kafka Streams has nothing like it; its users count threads and guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from millstream.display import badge, block, facts, note, title
from millstream.model import OpeningTasks
from millstream.runtime.state.failure import in_short
from millstream.runtime.state.history import FailureRecord
from millstream.states import State

__all__ = ["Health", "HealthView", "Waiting", "assess"]


@dataclass(frozen=True)
class Health:
    """The health of a client.

    Attributes:
        live: whether to keep it. False: it will not recover, so start a new one. Rebalancing, restoring and
            waiting for a retry are no reason to end a client.
        ready: whether it does its work and its stores answer queries. It does its work once each of its
            pipelines has ended a batch here, or had nothing to read. Later batches may take as long as they
            do.
        status: one word: created, running, paused, opening, starting, degraded, restoring, rebalancing,
            waiting, missing, lost, empty, closing, closed or failed.
        reason: why, in a sentence.
        next_try: when the next retry is, in UTC; None: nothing waits.
        details: the facts, ready for JSON.
    """

    live: bool
    ready: bool
    status: str
    reason: str
    next_try: datetime | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Everything, ready for `json.dumps`."""
        return {
            "live": self.live,
            "ready": self.ready,
            "status": self.status,
            "reason": self.reason,
            "next_try": _iso(self.next_try),
            "details": dict(self.details),
        }

    @property
    def badge(self) -> str:
        """The status on a coloured background, for a notebook."""
        return badge(self.status, "good" if self.ready else "waiting" if self.live else "bad")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        shown = {
            "next try": _iso(self.next_try),
            **{name: _in_words(each) for name, each in self.details.items()},
        }
        return block(title("health", "", self.badge), note(self.reason), facts(shown))


def _in_words(value: Any) -> object:
    """A fact of `details` in readable form; empty values show nothing."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_in_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(str(_in_words(each)) for each in value)
    return value


class Waiting(NamedTuple):
    """A thread that waits before it takes over the work of a failed one.

    Attributes:
        pipeline: the one that failed; None if it was not a pipeline.
        attempt: the replacement that is coming, numbered as the failure that it answers
            (`FailureRecord.attempt`); `most`: how many the budget allows.
    """

    pipeline: str | None
    next_try: datetime
    attempt: int
    most: int | None = None


@dataclass(frozen=True)
class HealthView:
    """The facts that health is judged by; the client fills them in.

    Attributes:
        threads: the state of each stream thread by its name; DEAD threads may be left out.
        wanted_threads: how many there should be.
        waiting: the threads that wait for a retry, by name, whether or not they are among `threads`.
        pipelines_total: how many the topology has; `pipelines_owned`: how many this client has to run;
            `pipelines_running`: how many of these have a query that runs.
        opening_tasks: the tasks of pipelines that run here and do not run themselves yet.
        unowned: pipelines that no client and no thread has, as far as this client knows.
        restoring: the stores that cannot be read yet, each with its lag in records; None: not known yet.
        opening: for how many seconds each thread has been opening its stores, if it is.
        member: whether it is a member of its group; True for a client that needs none.
        lost: why it is not.
        missing_topics: source topics that do not exist.
        lost_executors: executors that the Spark cluster has lost recently, in words.
        query_server_failure: why the query server no longer answers.
        paused: whether the user has called `pause()`.
        failure: the failure with which the client ended, or is ending.
    """

    client_state: State
    threads: Mapping[str, str] = field(default_factory=dict)
    wanted_threads: int = 1
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    pipelines_total: int = 0
    pipelines_owned: int = 0
    pipelines_running: int = 0
    opening_tasks: Mapping[str, OpeningTasks] = field(default_factory=dict)
    unowned: tuple[str, ...] = ()
    last_failure: FailureRecord | None = None
    restoring: Mapping[str, int | None] = field(default_factory=dict)
    opening: Mapping[str, float] = field(default_factory=dict)
    member: bool = True
    lost: str | None = None
    missing_topics: tuple[str, ...] = ()
    lost_executors: tuple[str, ...] = ()
    query_server_failure: BaseException | None = None
    paused: bool = False
    failure: BaseException | None = None

    @property
    def live_threads(self) -> tuple[str, ...]:
        """The names of the threads that are neither stopping nor ended."""
        return tuple(name for name, state in self.threads.items() if state not in _ENDING)


_ENDING = ("PENDING_SHUTDOWN", "DEAD")
_OPENING_LONG_S = 60.0
"""Opening stores, with the Kafka client that fills them, takes less than a second."""


class _Row(NamedTuple):
    """If `holds` is true, the other columns describe the client."""

    status: str
    live: bool
    ready: bool
    holds: Callable[[HealthView], bool]
    says: Callable[[HealthView], str]


def assess(view: HealthView) -> Health:
    """The health of the client that `view` shows."""
    row = next(row for row in _ROWS if row.holds(view))
    waits = row.status == "waiting"
    return Health(
        live=row.live,
        ready=row.ready,
        status=row.status,
        reason=row.says(view),
        next_try=_first_to_wait(view)[1].next_try if waits else None,
        details=_details(view),
    )


def _in(*states: State) -> Callable[[HealthView], bool]:
    return lambda view: view.client_state in states


def _running_and(holds: Callable[[HealthView], bool]) -> Callable[[HealthView], bool]:
    return lambda view: view.client_state is State.RUNNING and holds(view)


# --- the sentences -----------------------------------------------------------------------------------------


def _failed(view: HealthView) -> str:
    ended = "the client ended in ERROR" + _because(view.failure, " with")
    return f"{ended}; see its log, correct the cause, then start a new client"


def _closing_after_failure(view: HealthView) -> str:
    return "the client is closing because of a failure" + _because(view.failure, ",")


def _because(error: BaseException | None, word: str) -> str:
    return "" if error is None else f"{word} {in_short(error)}"


def _empty(view: HealthView) -> str:
    return (
        f"the client is {view.client_state} and has no threads, so nothing runs here; add_stream_thread() "
        f"starts one" + _after(view.last_failure)
    )


def _first_to_wait(view: HealthView) -> tuple[str, Waiting]:
    return min(
        ((name, Waiting(*waiting)) for name, waiting in view.waiting.items()),
        key=lambda each: (each[1].next_try, each[0]),
    )


def _waiting(view: HealthView) -> str:
    thread, first = _first_to_wait(view)
    what = "its work" if first.pipeline is None else f"pipeline {first.pipeline}"
    attempt = f"attempt {first.attempt}" + ("" if first.most is None else f" of {first.most}")
    others = len(view.waiting) - 1
    more = "" if not others else f"; {others} more thread{_s(others)} wait{'' if others > 1 else 's'} too"
    return (
        f"thread {thread} waits to restart {what} ({attempt}) until {first.next_try:%H:%M:%S %Z}".rstrip()
        + _after(view.last_failure)
        + more
    )


def _after(record: FailureRecord | None) -> str:
    return "" if record is None else f", after {in_short(record.exception)}"


def _missing(view: HealthView) -> str:
    names = ", ".join(sorted(view.missing_topics))
    several = len(view.missing_topics) > 1
    return f"source topic{_s(len(view.missing_topics))} {names} {'do' if several else 'does'} not exist"


def _lost(view: HealthView) -> str:
    why = f": {view.lost}" if view.lost else ""
    return (
        f"the client is currently not a member of its group, so it runs nothing; it rejoins "
        f"automatically{why}"
    )


def _opens_long(view: HealthView) -> bool:
    return any(seconds >= _OPENING_LONG_S for seconds in view.opening.values())


def _opening(view: HealthView) -> str:
    thread, seconds = max(view.opening.items(), key=lambda each: each[1])
    return (
        f"thread {thread} has been opening its stores for {seconds:.0f} s; check the disk of state.dir, and "
        f"the limits of this process on memory, threads and files"
    )


def _restoring(view: HealthView) -> str:
    stores = sorted(view.restoring.items())
    shown = ", ".join(f"{name} ({lag} record{_s(lag)} to go)" if lag else name for name, lag in stores[:5])
    more = f" and {len(stores) - 5} more" if len(stores) > 5 else ""
    return f"restoring {shown}{more}"


def _starting(view: HealthView) -> str:
    ready = sum(state == "RUNNING" for state in view.threads.values())
    return f"work is being assigned and started: {ready} of {view.wanted_threads} threads run"


def _not_all_run(view: HealthView) -> str:
    return (
        f"{view.pipelines_running} of the {view.pipelines_owned} pipeline{_s(view.pipelines_owned)} of this "
        "client run" + _after(view.last_failure)
    )


def _opening_tasks(view: HealthView) -> str:
    shown = [
        f"{each.tasks} task{_s(each.tasks)} of pipeline {name} {'is' if each.tasks == 1 else 'are'} starting"
        + (f", with {each.left:,} record{_s(each.left)} left to restore" if each.left else "")
        for name, each in sorted(view.opening_tasks.items())
    ]
    more = f"; and {len(shown) - 3} more pipelines" if len(shown) > 3 else ""
    return "; ".join(shown[:3]) + more


def _paused(view: HealthView) -> str:
    return (
        "the client is paused, so it processes nothing; its stores still answer queries; resume() continues "
        "processing"
    )


def _unowned(view: HealthView) -> str:
    names = ", ".join(sorted(view.unowned))
    return f"no client runs pipeline{_s(len(view.unowned))} {names}" + _after(view.last_failure)


def _serves_nobody(view: HealthView) -> str:
    assert view.query_server_failure is not None
    why = in_short(view.query_server_failure)
    return f"the query server has failed, so stores answer in this process only: {why}; restart the client"


def _too_few(view: HealthView) -> str:
    return f"everything runs, on {len(view.live_threads)} of {view.wanted_threads} threads" + _after(
        view.last_failure
    )


def _running(view: HealthView) -> str:
    threads = f"{len(view.live_threads)} thread{_s(len(view.live_threads))}"
    if view.pipelines_owned:
        run = "pipeline runs" if view.pipelines_owned == 1 else "pipelines run"
        return f"{view.pipelines_owned} {run} here, on {threads}{_executors(view)}"
    where = "; the pipelines run on other clients" if view.pipelines_total else ""
    return f"every store is up to date, on {threads}{where}"


def _executors(view: HealthView) -> str:
    lost = len(view.lost_executors)
    return f"; Spark has lost {lost} executor{_s(lost)} in the last ten minutes" if lost else ""


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# --- the table ---------------------------------------------------------------------------------------------

_ROWS: tuple[_Row, ...] = (
    # status, live, ready
    _Row("failed", False, False, _in(State.ERROR), _failed),
    _Row("closed", False, False, _in(State.NOT_RUNNING), lambda view: "the client was closed"),
    _Row("closing", True, False, _in(State.PENDING_ERROR), _closing_after_failure),
    _Row("closing", True, False, _in(State.PENDING_SHUTDOWN), lambda view: "the client is closing"),
    _Row(
        "created",
        True,
        False,
        _in(State.CREATED),
        lambda view: "the client has not been started; call start()",
    ),
    # From here on it is REBALANCING or RUNNING. A client is worth keeping while a thread waits; a RUNNING
    # client without any thread is not.
    _Row("waiting", True, False, lambda view: bool(view.waiting), _waiting),
    _Row("empty", False, False, _running_and(lambda view: not view.live_threads), _empty),
    _Row("missing", True, False, lambda view: bool(view.missing_topics), _missing),
    _Row("lost", True, False, lambda view: not view.member, _lost),
    _Row("opening", True, False, _opens_long, _opening),
    _Row("restoring", True, False, lambda view: bool(view.restoring), _restoring),
    _Row("rebalancing", True, False, _in(State.REBALANCING), _starting),
    _Row("paused", True, False, lambda view: view.paused, _paused),
    _Row("degraded", True, False, lambda view: view.pipelines_running < view.pipelines_owned, _not_all_run),
    _Row("degraded", True, False, lambda view: bool(view.unowned), _unowned),
    _Row("degraded", True, False, lambda view: view.query_server_failure is not None, _serves_nobody),
    _Row("starting", True, False, lambda view: bool(view.opening_tasks), _opening_tasks),
    _Row("degraded", True, True, lambda view: len(view.live_threads) < view.wanted_threads, _too_few),
    _Row("running", True, True, lambda view: True, _running),
)


# --- the facts ---------------------------------------------------------------------------------------------


def _details(view: HealthView) -> dict[str, Any]:
    return {
        "client_state": view.client_state.name,
        "threads": dict(view.threads),
        "wanted_threads": view.wanted_threads,
        "waiting": {name: _waiting_as_dict(Waiting(*each)) for name, each in view.waiting.items()},
        "pipelines": {
            "total": view.pipelines_total,
            "owned": view.pipelines_owned,
            "running": view.pipelines_running,
            "unowned": sorted(view.unowned),
        },
        "opening_tasks": {
            name: {"tasks": each.tasks, "left": each.left} for name, each in view.opening_tasks.items()
        },
        "restoring": dict(view.restoring),
        "opening": {name: round(seconds) for name, seconds in view.opening.items()},
        "paused": view.paused,
        "member": view.member,
        "lost": view.lost,
        "missing_topics": sorted(view.missing_topics),
        "lost_executors": list(view.lost_executors),
        "query_server_failure": (
            None if view.query_server_failure is None else in_short(view.query_server_failure)
        ),
        "failure": None if view.failure is None else in_short(view.failure),
        "last_failure": None if view.last_failure is None else view.last_failure.as_dict(),
    }


def _waiting_as_dict(waiting: Waiting) -> dict[str, Any]:
    return {**waiting._asdict(), "next_try": _iso(waiting.next_try)}


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()
