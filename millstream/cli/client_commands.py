"""`millstream status`, `stores`, `failures`, `pause`, `resume`, `threads`: watch and control a client.

They call its query server. Pure functions turn the answers into what is printed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from millstream.cli.client_calls import URL, CaFile, Client, Token, Url, path_of
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, facts, print_as, table

__all__ = [
    "change_text",
    "failures",
    "failures_text",
    "pause",
    "resume",
    "status",
    "status_text",
    "stores",
    "stores_text",
    "threads",
]

_READY, _NOT_READY = 0, 1


def status(
    url: Url = URL, token: Token = None, ca_file: CaFile = None, json: Json = False, debug: Debug = False
) -> None:
    """Print the health of a running client, and list the clients. Exit code 0 if it is ready, else 1."""
    with Client(url, token, ca_file) as client:
        _, health = client.get(path_of("health"), may_be=(503,))
        clients = client.get(path_of("clients"))[1].get("clients", [])
    print_as(json, {"url": client.url, "health": health, "clients": clients}, status_text(health, clients))
    raise typer.Exit(_READY if health.get("ready") else _NOT_READY)


def _pipelines_text(pipelines: Mapping[str, Any]) -> str:
    total, owned = pipelines.get("total", 0), pipelines.get("owned", 0)
    others = "" if total == owned else f"; the application has {total}"
    return f"{pipelines.get('running', 0)} of {owned} run here{others}"


def status_text(health: Mapping[str, Any], clients: Sequence[Mapping[str, Any]]) -> str:
    """`/v1/health` and `/v1/clients` for people."""
    details = health.get("details", {})
    pipelines = details.get("pipelines", {})
    lines = {
        "state": details.get("client_state", "?"),
        "status": f"{health.get('status')} ({'ready' if health.get('ready') else 'not ready'})",
        "why": health.get("reason", ""),
        "pipelines": _pipelines_text(pipelines),
    }
    if health.get("next_try"):
        lines["next try"] = health["next_try"]
    if failure := details.get("last_failure"):
        lines["last failure"] = (
            f"{failure['at']}  {failure['pipeline'] or failure['thread']}: {failure['exception']}"
        )
    parts = [facts(lines)]
    if threads := details.get("threads"):
        parts.append(table(("thread", "state"), sorted(threads.items())))
    if restoring := details.get("restoring"):
        rows = [(name, "?" if left is None else f"{left:,}") for name, left in sorted(restoring.items())]
        parts.append(table(("restoring", "records to go"), rows, right=("records to go",)))
    if clients:
        places = [
            (
                each["host"],
                ", ".join(each["stores"]) or "-",
                len(each["partitions"]),
                len(each["standby_partitions"]),
            )
            for each in clients
        ]
        counts = ("partitions", "standby partitions")
        parts.append(table(("client", "stores", *counts), places, right=counts))
    return "\n\n".join(parts)


def stores(
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    count: Annotated[
        bool, typer.Option("--count", help="Also show each store's approximate number of entries.")
    ] = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the stores of a running application: kind, serdes, partitions, and those on this client."""
    with Client(url, token, ca_file) as client:
        found = [dict(each) for each in client.get(path_of("stores"))[1].get("stores", [])]
        if count:
            for each in found:
                each["count"] = client.get(path_of("stores", each["store"], "count"))[1].get("count")
    print_as(json, {"stores": found}, stores_text(found))


def stores_text(stores: Sequence[Mapping[str, Any]]) -> str:
    """A line for each store."""
    if not stores:
        return "the program has no stores"
    has_counts = any("count" in each for each in stores)
    heads = ("store", "kind", "key", "value", "partitions", "here", *(("entries",) if has_counts else ()))
    rows = []
    for each in stores:
        here = each["here"]
        readable = [
            number for number, presence in sorted(here.items(), key=lambda one: int(one[0])) if presence
        ]
        row = [each["store"], each["kind"], each["key_serde"], each["value_serde"], each["partitions"]]
        row.append(", ".join(_presence(number, here[number]) for number in readable) or "-")
        if has_counts:
            row.append(f"{each.get('count', 0):,}")
        rows.append(row)
    return table(heads, rows, right=("partitions", "entries"))


def _presence(number: str, presence: str) -> str:
    return number if presence == "readable" else f"{number} ({presence})"


def failures(
    url: Url = URL, token: Token = None, ca_file: CaFile = None, json: Json = False, debug: Debug = False
) -> None:
    """List the latest failures of a running client: what failed, the response, and the next retry."""
    with Client(url, token, ca_file) as client:
        found = client.get(path_of("failures"))[1].get("failures", [])
    print_as(json, {"failures": found}, failures_text(found))


def failures_text(failures: Sequence[Mapping[str, Any]]) -> str:
    """A line for each failure, oldest first."""
    if not failures:
        return "nothing has failed"
    rows = [
        (
            each["at"][:19],
            each["pipeline"] or each["task_id"] or each["thread"],
            each["response"],
            str(each["attempt"]) + ("" if each["most"] is None else f" of {each['most']}"),
            "-" if each["next_try"] is None else each["next_try"][11:19],
            each["exception"],
        )
        for each in failures
    ]
    return table(("at", "what", "response", "attempt", "next try", "exception"), rows)


def pause(
    url: Url = URL, token: Token = None, ca_file: CaFile = None, json: Json = False, debug: Debug = False
) -> None:
    """Pause a running client (KIP-834): it processes nothing, but its stores can still be queried."""
    _act(url, token, ca_file, "pause", {}, json, "paused; `millstream resume` resumes it")


def resume(
    url: Url = URL, token: Token = None, ca_file: CaFile = None, json: Json = False, debug: Debug = False
) -> None:
    """Resume a paused client."""
    _act(url, token, ca_file, "resume", {}, json, "resumed")


class ThreadChange(StrEnum):
    """What `threads` does."""

    LIST = "list"
    ADD = "add"
    REMOVE = "remove"


def threads(
    change: Annotated[ThreadChange, typer.Argument(help="What to do.")] = ThreadChange.LIST,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """List the stream threads of a running client and their tasks; add one, or remove one (KIP-663)."""
    if change is not ThreadChange.LIST:
        with Client(url, token, ca_file) as client:
            answer = client.post(path_of("threads"), {"change": change.value})
        print_as(json, dict(answer), f"{answer.get('client', client.url)}: {change_text(change, answer)}")
        return
    with Client(url, token, ca_file) as client:
        found = client.get(path_of("threads"))[1].get("threads", [])
    print_as(json, {"threads": found}, threads_text(found))


def change_text(change: ThreadChange, answer: Mapping[str, Any]) -> str:
    """The result of the change. A thread may take longer to end than the server waits."""
    if change is ThreadChange.ADD:
        return "a thread was added"
    return "a thread was removed" if answer.get("done") else "a thread is still ending"


def threads_text(threads: Sequence[Mapping[str, Any]]) -> str:
    """A line for each thread and each of its pipelines."""
    rows: list[tuple[object, ...]] = []
    for each in threads:
        tasks = " ".join(each["tasks"]) or "-"
        rows.append((each["thread"], each["state"], tasks, "", "", "", ""))
        rows += [_pipeline_row(pipeline) for pipeline in each["pipelines"]]
    right = ("records/s", "batch", "batch ms", "lag")
    return table(("thread", "state", "tasks", *right), rows, right=right)


def _pipeline_row(pipeline: Mapping[str, Any]) -> tuple[object, ...]:
    lag = "?" if pipeline["lag"] is None else f"{pipeline['lag']:,}"
    state = "runs" if pipeline["running"] else "does not run"
    rate = f"{pipeline['records_per_second']:,.0f}"
    return (f"  {pipeline['name']}", state, "", rate, pipeline["batch_id"], pipeline["batch_ms"], lag)


def _act(
    url: str,
    token: str | None,
    ca_file: str | None,
    what: str,
    body: Mapping[str, Any],
    json: bool,
    text: str,
) -> None:
    with Client(url, token, ca_file) as client:
        answer = client.post(path_of(what), body)
    print_as(json, dict(answer), f"{answer.get('client', client.url)}: {text}")
