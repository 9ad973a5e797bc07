"""How a client is displayed in a notebook. Pure: its description in, HTML out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.display import badge, block, details, facts, note, table, title
from millstream.model import LagInfo, ThreadMetadata
from millstream.runtime.health import Health
from millstream.runtime.state.history import FailureRecord
from millstream.states import State

__all__ = ["client_html"]

_KINDS = {
    State.RUNNING: "good",
    State.REBALANCING: "waiting",
    State.PENDING_SHUTDOWN: "waiting",
    State.PENDING_ERROR: "bad",
    State.ERROR: "bad",
}


def client_html(
    application: str,
    client_id: str,
    state: State,
    health: Health,
    threads: Sequence[ThreadMetadata],
    stores: Sequence[str],
    lags: Mapping[str, Mapping[int, LagInfo]],
    failures: Sequence[FailureRecord],
) -> str:
    """The client as it is at this moment."""
    parts = [
        title("Kafka Streams client", client_id, badge(state.name, _KINDS.get(state, "neutral"))),
        note(f"{health.reason[:1].upper()}{health.reason[1:]}"),
        facts({"application": application, "health": health.status}),
    ]
    if threads:
        rows = [
            (
                each.thread_name.removeprefix(f"{client_id}-"),
                each.thread_state,
                ", ".join(pipeline.name for pipeline in each.pipelines),
                ", ".join(str(task.task_id) for task in each.active_tasks),
            )
            for each in threads
        ]
        parts.append(table(("thread", "state", "pipelines", "tasks"), rows))
    if stores:
        parts.append(
            table(("store", "partitions here", "records behind"), [_store(each, lags) for each in stores])
        )
    if failures:
        last = [
            (
                each.at.isoformat(sep=" ", timespec="seconds"),
                each.thread,
                str(each.exception),
                each.response.name,
            )
            for each in reversed(failures)
        ]
        parts.append(details(f"failures: {len(last)}", table(("at (UTC)", "thread", "what", "answer"), last)))
    return block(*parts)


def _store(name: str, lags: Mapping[str, Mapping[int, LagInfo]]) -> tuple[str, str, object]:
    here = lags.get(name, {})
    behind = sum(each.offset_lag for each in here.values()) if here else None
    return name, ", ".join(map(str, sorted(here))), behind
