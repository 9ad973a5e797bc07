"""`millstream top`: a running client on the whole screen, redrawn each second. q quits, p pauses.

Pure functions turn samples into the picture; the loop only queries the client, draws, and reads keys.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millstream.cli.client_calls import URL, CaFile, Client, Token, Url, deadline_of_one, path_of
from millstream.cli.client_commands import failures_text, status_text, stores_text, threads_text
from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as
from millstream.errors import StreamsException
from millstream.foreign import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

__all__ = ["Sample", "key_of", "picture", "rates", "sample", "spark", "top", "top_text"]

_KEPT = 120
_BARS = "▁▂▃▄▅▆▇█"
_GAP = 2
"""The spaces between two columns."""
_FEW_LINES = 3
"""A table is omitted if there is no room for this many of its rows."""

Cells = tuple["str | Text", ...]
Rows = tuple[Sequence[str], Sequence[str], Sequence[int], Sequence[Cells]]
"""The column heads, the right-aligned columns, those that a narrow screen does without (by place, the first
one first), and the rows."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The client's answers at one moment. With `error`, the reason why it did not answer, they are older."""

    url: str
    health: Mapping[str, Any] = field(default_factory=dict)
    threads: Sequence[Mapping[str, Any]] = ()
    stores: Sequence[Mapping[str, Any]] = ()
    clients: Sequence[Mapping[str, Any]] = ()
    failures: Sequence[Mapping[str, Any]] = ()
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The sample in a form for `json.dumps`."""
        parts = ("url", "health", "threads", "stores", "clients", "failures")
        return {name: getattr(self, name) for name in parts}


def top(
    every: Annotated[float, typer.Option(min=0.2, help="The seconds between two updates.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print it once, as without a terminal.")] = False,
    url: Url = URL,
    token: Token = None,
    ca_file: CaFile = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Watch a running client: state, pipelines with rates and lag, threads, stores, clients, failures.

    q quits, p pauses the display. Without a terminal it is printed once.
    """
    with Client(url, token, ca_file) as client:
        first = sample(client)
        if once or json or not (sys.stdout.isatty() and sys.stdin.isatty()):
            print_as(json, first.as_dict(), top_text(first))
            return
        _watch(client, first, every)


def sample(client: Client) -> Sample:
    """The client's current answers.

    Raises:
        StreamsException: the client cannot be reached.
    """
    deadline = deadline_of_one()
    return Sample(
        client.url,
        client.get(path_of("health"), may_be=(503,), deadline=deadline)[1],
        client.get(path_of("threads"), deadline=deadline)[1].get("threads", ()),
        client.get(path_of("stores"), deadline=deadline)[1].get("stores", ()),
        client.get(path_of("clients"), deadline=deadline)[1].get("clients", ()),
        client.get(path_of("failures"), deadline=deadline)[1].get("failures", ()),
    )


def top_text(shown: Sample) -> str:
    """Everything as plain text."""
    parts = [status_text({**shown.health, "details": _without_threads(shown.health)}, shown.clients)]
    parts += [threads_text(shown.threads), stores_text(shown.stores)]
    if shown.failures:
        parts.append(failures_text(shown.failures))
    return "\n\n".join(parts)


def _without_threads(health: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in health.get("details", {}).items() if name != "threads"}


def rates(shown: Sample) -> dict[str, float]:
    """Records per second of each pipeline."""
    pipelines = [pipeline for thread in shown.threads for pipeline in thread["pipelines"]]
    return {str(each["name"]): float(each["records_per_second"]) for each in pipelines}


def spark(values: Sequence[float], width: int) -> str:
    """The last values as bars, scaled to the highest."""
    last = list(values)[-width:]
    most = max(last, default=0.0)
    if most <= 0:
        return _BARS[0] * len(last)
    return "".join(_BARS[min(len(_BARS) - 1, int(each / most * (len(_BARS) - 1) + 0.5))] for each in last)


# --- the picture -----------------------------------------------------------------------------------------


def picture(
    shown: Sample, past: Mapping[str, Sequence[float]], *, width: int, height: int, held: bool
) -> RenderableType:
    """The whole screen, up to the given height; what matters most comes first."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [*_head(shown), Text("")]
    left = height - len(parts) - 1
    for heads, right, spare, rows in (
        _pipelines(shown, past, max(8, width // 5)),
        _threads(shown),
        _stores(shown),
        _clients(shown),
        _failures(shown),
    ):
        most = left - 2  # the heads, and an empty line below
        if rows and most >= min(len(rows), _FEW_LINES):
            kept = _kept(heads, spare, rows, width)
            cells = [tuple(row[place] for place in kept) for row in rows]
            parts += [_table([heads[place] for place in kept], right, cells, most), Text("")]
            left -= min(len(rows), most) + 2
    keys = "q quits   p resumes" if held else "q quits   p pauses"
    parts.append(Text(f"{keys}   {shown.url}", style="dim", no_wrap=True, overflow="ellipsis"))
    return Group(*parts)


def _head(shown: Sample) -> list[Text]:
    from rich.text import Text

    details = shown.health.get("details", {})
    state, ready = str(details.get("client_state", "?")), bool(shown.health.get("ready"))
    style = "bold green" if ready else ("bold red" if state in ("ERROR", "PENDING_ERROR") else "bold yellow")
    line = Text.assemble(
        ("millstream top  ", "bold cyan"),
        (printable(state), style),
        f"  {printable(shown.health.get('status', '?'))}",
        ("  ready" if ready else "  not ready", "green" if ready else "yellow"),
        ("  paused" if details.get("paused") else "", "yellow"),
    )
    why = Text(printable(shown.error or shown.health.get("reason", "")), style="red" if shown.error else "")
    for each in (line, why):
        each.no_wrap, each.overflow = True, "ellipsis"
    return [line, why]


def _kept(heads: Sequence[str], spare: Sequence[int], rows: Sequence[Cells], width: int) -> list[int]:
    """The places of the columns that are shown: without the spare ones, as far as there is no room."""
    lines: list[Cells] = [tuple(heads), *rows]
    widths = [max(len(line[place]) for line in lines) + _GAP for place in range(len(heads))]
    kept = list(range(len(heads)))
    for place in spare:
        if sum(widths[each] for each in kept) - _GAP <= width:
            break
        kept.remove(place)
    return kept


def _table(heads: Sequence[str], right: Sequence[str], rows: Sequence[Cells], most: int) -> RenderableType:
    """A table with at most this many rows; the last one says how many more there are."""
    from rich.table import Table

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        justify: Literal["right", "left"] = "right" if head in right else "left"
        table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis")
    shown = rows if len(rows) <= most else rows[: most - 1]
    for row in shown:
        table.add_row(*row)
    if len(shown) < len(rows):
        table.add_row(f"… {len(rows) - len(shown)} more")
    return table


def _pipelines(shown: Sample, past: Mapping[str, Sequence[float]], width: int) -> Rows:
    right = ("records/s", "batch", "ms", "lag", "dropped")
    rows: list[Cells] = [
        (
            _plain(each["name"]),
            _colored("runs" if each["running"] else "down", bool(each["running"])),
            f"{each['records_per_second']:,.0f}",
            _colored(spark(past.get(str(each["name"]), ()), width), True),
            f"{each['batch_id']:,}",
            f"{each['batch_ms']:,}",
            "?" if each["lag"] is None else f"{each['lag']:,}",
            f"{each['dropped']:,}",
        )
        for thread in shown.threads
        for each in thread["pipelines"]
    ]
    return ("pipeline", "", "records/s", "", "batch", "ms", "lag", "dropped"), right, (3, 5, 4, 7), rows


def _threads(shown: Sample) -> Rows:
    rows: list[Cells] = [
        (
            _plain(each["thread"]),
            _colored(each["state"], each["state"] == "RUNNING"),
            _plain(" ".join(each["tasks"]) or "-"),
            _plain(" ".join(each["standby_tasks"]) or "-"),
        )
        for each in shown.threads
    ]
    return ("thread", "state", "tasks", "standby tasks"), (), (3, 2), rows


def _stores(shown: Sample) -> Rows:
    rows: list[Cells] = []
    for each in shown.stores:
        here = ", ".join(
            number if presence == "readable" else f"{number} ({presence})"
            for number, presence in sorted(each["here"].items(), key=lambda one: int(one[0]))
        )
        rows.append(
            (_plain(each["store"]), _plain(each["kind"]), str(each["partitions"] or "-"), _plain(here or "-"))
        )
    return ("store", "kind", "partitions", "here"), ("partitions",), (2, 1), rows


def _clients(shown: Sample) -> Rows:
    counts = ("partitions", "standby partitions")
    rows: list[Cells] = [
        (_plain(each["host"]), str(len(each["partitions"])), str(len(each["standby_partitions"])))
        for each in shown.clients
    ]
    return ("client", *counts), counts, (2,), rows


def _failures(shown: Sample) -> Rows:
    rows: list[Cells] = [
        (
            _plain(each["at"][:19]),
            _plain(each["pipeline"] or each["task_id"] or each["thread"]),
            _plain(each["response"]),
            _plain(each["exception"]),
        )
        for each in list(shown.failures)[-5:]
    ]
    return ("failed at", "what", "response", "exception"), (), (0, 2), rows


def _plain(value: object) -> Text:
    """Text from outside; nothing in it is interpreted as markup, or by the terminal."""
    from rich.text import Text

    return Text(printable(value, 200))


def _colored(text: str, good: bool) -> Text:
    from rich.text import Text

    return Text(printable(text), style="green" if good else "yellow")


# --- the loop --------------------------------------------------------------------------------------------


def _watch(client: Client, shown: Sample, every_s: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    past: dict[str, deque[float]] = {}
    held = False
    with _keys() as descriptor, Live(console=console, screen=True, auto_refresh=False) as live:
        next_at = time.monotonic()
        while True:
            if not held:
                for name, rate in rates(shown).items():
                    past.setdefault(name, deque(maxlen=_KEPT)).append(rate)
            live.update(_drawn(console, shown, past, held), refresh=True)
            next_at = max(next_at + every_s, time.monotonic())
            key = _key(descriptor, next_at)
            if key in ("q", "Q", "\x03", "\x1b"):
                return
            if key in ("p", "P"):
                held = not held
            elif not held:
                shown = _again(client, shown)


def _drawn(
    console: Console, shown: Sample, past: Mapping[str, Sequence[float]], held: bool
) -> RenderableType:
    return picture(shown, past, width=console.width, height=console.height, held=held)


def _again(client: Client, before: Sample) -> Sample:
    """The next sample or, while the client does not answer, the one before with the reason."""
    try:
        return sample(client)
    except StreamsException as error:
        return replace(before, error=f"no answer: {error}")


@contextlib.contextmanager
def _keys() -> Iterator[int]:
    """Standard input without line editing and echo, which are restored at the end."""
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _key(descriptor: int, until: float) -> str | None:
    """The first key pressed; None if there is none in time."""
    ready, _, _ = select.select([descriptor], [], [], max(0.0, until - time.monotonic()))
    if not ready:
        return None
    pressed = os.read(descriptor, 32)
    return key_of(pressed)


def key_of(pressed: bytes) -> str:
    """The key in a terminal's input; empty if it has no meaning here, such as an arrow. End of input is q."""
    if len(pressed) > 1 and pressed.startswith(b"\x1b"):
        return ""
    return pressed[:1].decode("latin-1") or "q"
