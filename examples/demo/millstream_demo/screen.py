"""How the demo looks: a live screen on a terminal, plain lines anywhere else, and the report at the end.

Finished steps stay as lines. What moves is below them, and disappears when the report comes. Everything here
is made from a `View` or a `Check` and reads nothing else except the size of the terminal.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from millstream import ThreadMetadata
    from millstream_demo.corpus import Corpus
    from millstream_demo.view import Check, Counts, Step, View

__all__ = ["LivePresenter", "PlainPresenter", "Presenter", "report", "size_text", "suggestions", "title"]

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PLAIN_SPINNER = "|/-\\"
_FRAMES_PER_S = 8
_PLAIN_EVERY_S = 2.0
_NAME_WIDTH = 10
_WORD_WIDTH = 24
_MOST_WORDS = 20
_LEAST_WORDS = 3
_REPORT_WORDS = 10
_SHOWN_DIFFERENCES = 10
_LINES_FOR_A_RATE = 10_000


class Presenter(Protocol):
    """Shows a run, again and again, until it is stopped."""

    def show(self, view: View) -> None: ...

    def stop(self, view: View) -> None: ...


def size_text(size: int) -> str:
    """A number of bytes, for people to read."""
    if size < 1000:
        return f"{size} bytes"
    return f"{size / 1e3:,.1f} kB" if size < 1_000_000 else f"{size / 1e6:,.1f} MB"


def title(corpus: Corpus) -> Text:
    """The first line, and what was left out."""
    count = len(corpus.files)
    files = "1 file" if count == 1 else f"{count:,} files"
    text = Text.assemble(
        ("millstream demo", "bold cyan"),
        "  the words of ",
        (f"{corpus.origin}: " if corpus.origin else "", "bold"),
        f"{files}, {size_text(corpus.size)}",
    )
    if corpus.note:
        text.append(f"\n  {corpus.note}", style="dim")
    return text


# --- a terminal ------------------------------------------------------------------------------------------


class LivePresenter:
    """Draws the present state over and over in the same place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._unicode = console.encoding.lower().startswith("utf")
        self._printed: set[str] = set()
        self._live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")
        self._live.start()

    def show(self, view: View) -> None:
        done = [step for step in view.steps if step.ended is not None and step.name not in self._printed]
        self._printed.update(step.name for step in done)
        self._live.update(self._picture(view), refresh=not done)
        # Printing redraws the picture below, which no longer contains them.
        for step in done:
            self._live.console.print(self._step(step), no_wrap=True, overflow="ellipsis", crop=True)

    def stop(self, view: View) -> None:
        """Keep the lines of finished steps, and remove the rest."""
        self.show(view)
        self._live.update(Text(""), refresh=True)
        self._live.stop()

    def _picture(self, view: View) -> RenderableType:
        size = self._console.size
        width = min(size.width, 100)
        parts: list[RenderableType] = [
            self._step(step) for step in view.steps if step.ended is None and step.name != "counting"
        ]
        if view.state:
            parts += [Text(""), _numbers(view), _bar(view, width)]
            parts += [Text(""), _threads(view.threads)]
        # The title, and the output above the picture.
        used = 2 + len(self._printed) + sum(_height(part) for part in parts)
        rows = min(_MOST_WORDS, max(_LEAST_WORDS, size.height - used - 3))
        if view.counts.top:
            parts += [Text(""), _words(view.counts, rows, width, self._unicode)]
        return Group(*parts)

    def _step(self, step: Step) -> Text:
        now = time.monotonic()
        if step.ended is None:
            frames = _SPINNER if self._unicode else _PLAIN_SPINNER
            mark = Text(frames[int(now * _FRAMES_PER_S) % len(frames)] + " ", style="yellow")
        else:
            mark = Text("✔ " if self._unicode else "* ", style="green")
        text = step.text if step.ended is not None else f"{step.text} …"
        seconds = f"{step.seconds(now):5.1f} s  "
        line = Text.assemble(mark, (seconds, "dim"), (f"{step.name:<{_NAME_WIDTH}}", "bold"), text)
        line.no_wrap, line.overflow = True, "ellipsis"
        return line


def _height(part: RenderableType) -> int:
    return part.row_count + 1 if isinstance(part, Table) else 1


def _numbers(view: View) -> Text:
    progress = view.progress
    style = "bold green" if view.state == "RUNNING" else "bold yellow"
    line = Text.assemble("client ", (view.client, "bold"), " is ", (view.state, style))
    if progress.counted:
        line.append(f"   {progress.per_second:,.0f} records/s", style="cyan")
    elif view.state == "RUNNING":
        line.append("   the first records are on their way: Spark compiles", style="cyan")
    if progress.lines:
        line.append(f"   lag {progress.lag:,}")
    if progress.store_lag:
        line.append(f"   store lag {progress.store_lag:,}")
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _bar(view: View, width: int) -> RenderableType:
    progress = view.progress
    if not progress.lines:
        return Text("")
    share = progress.counted / progress.lines
    caption = f" {share:4.0%}  {progress.counted:,} of {progress.lines:,} lines"
    row = Table.grid(padding=0)
    bar = ProgressBar(
        total=progress.lines,
        completed=progress.counted,
        width=max(10, width - len(caption) - 1),
        finished_style="green",
    )
    row.add_row(bar, caption)
    return row


def _threads(threads: tuple[ThreadMetadata, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    # Wide enough for what is still to come, so that nothing jumps.
    table.add_column("thread", no_wrap=True, overflow="ellipsis")
    table.add_column("state", no_wrap=True, min_width=len("PARTITIONS_ASSIGNED"))
    table.add_column("pipelines", no_wrap=True, overflow="ellipsis", min_width=23)
    table.add_column("tasks", no_wrap=True, overflow="ellipsis")
    for thread in threads:
        pipelines = ", ".join(pipeline.name for pipeline in thread.pipelines)
        running = thread.thread_state == "RUNNING"
        table.add_row(
            Text(thread.thread_name),
            Text(thread.thread_state, style="green" if running else "yellow"),
            Text(pipelines or "-"),
            " ".join(str(task.task_id) for task in thread.active_tasks) or "-",
        )
    return table


def _words(counts: Counts, rows: int, width: int, fancy: bool) -> Table:
    """The top words with bars. The heading says where they come from."""
    shown = counts.top[:rows]
    most = shown[0][1] if shown else 1
    word_width = min(_WORD_WIDTH, max(8, *(len(word) for word, _ in shown)))
    count_width = max(len("count"), len(f"{most:,}"))
    room = max(4, width - word_width - count_width - 4)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim", width=width)
    table.add_column("word", no_wrap=True, overflow="ellipsis", width=word_width)
    table.add_column("count", justify="right", no_wrap=True, width=count_width)
    heading = f"from store 'counts': {counts.words:,} words, {counts.distinct:,} distinct"
    table.add_column(heading, ratio=1, no_wrap=True, overflow="ellipsis")
    for word, count in shown:
        length = max(1, round(room * count / most))
        table.add_row(Text(word), f"{count:,}", Text(("█" if fancy else "#") * length, style="blue"))
    return table


# --- no terminal -----------------------------------------------------------------------------------------


class PlainPresenter:
    """Prints a line when a step is done, and one every few seconds during the counting."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed: set[str] = set()
        self._last = 0.0

    def show(self, view: View) -> None:
        for step in view.steps:
            if step.ended is not None and step.name not in self._printed:
                self._printed.add(step.name)
                self._line(view, step.name, f"{step.text} ({step.seconds(0):.1f} s)")
        progress, now = view.progress, time.monotonic()
        if progress.counted and "counting" not in self._printed and now - self._last >= _PLAIN_EVERY_S:
            self._last = now
            top = ", ".join(f"{word} {count:,}" for word, count in view.counts.top[:3])
            self._line(
                view,
                "counting",
                f"{progress.counted:,} of {progress.lines:,} lines, {progress.per_second:,.0f} records/s, "
                f"lag {progress.lag:,}" + (f"; {top}" if top else ""),
            )

    def stop(self, view: View) -> None:
        self.show(view)

    def _line(self, view: View, name: str, text: str) -> None:
        # No wrapping: a log line stays one line, however long.
        line = Text(f"{view.seconds:6.1f} s  {name:<{_NAME_WIDTH}}{text}")
        self._console.print(line, soft_wrap=True)


# --- the report ------------------------------------------------------------------------------------------


def report(console: Console, view: View, check: Check) -> None:
    """What was counted, whether it is right, and how fast it was."""
    fancy = console.encoding.lower().startswith("utf") and console.is_terminal
    counts, steps = check.counts, {step.name: step for step in view.steps}
    console.print()
    if counts.top:
        console.print(_words(counts, _REPORT_WORDS, min(console.width, 80), fancy))
        console.print()
    if check.good:
        console.print(
            Text.assemble(
                ("✔ " if fancy else "OK: ", "bold green"),
                (f"{counts.words:,} words, {counts.distinct:,} distinct", "bold"),
                "; each count equals that of plain Python",
            ),
            soft_wrap=True,
        )
    else:
        _differences(console, check)
    counting = max(steps["counting"].seconds(0), 0.001)
    began = min(step.began for step in view.steps)
    facts = [f"running after {(steps['client'].ended or began) - began:.1f} s"]
    facts += [f"counted in {counting:.1f} s"]
    if view.progress.counted >= _LINES_FOR_A_RATE:
        facts.append(f"{view.progress.counted / counting:,.0f} lines/s")
        facts.append(f"{counts.words / counting:,.0f} words/s")
    console.print(Text("  " + (" · " if fancy else ", ").join(facts), style="dim"), soft_wrap=True)


def suggestions(console: Console, program: str) -> None:
    """What to try next."""
    rows = (
        (f"{program} demo --keep", "query the running store for any word"),
        (f"{program} demo FILE DIRECTORY", "count text of your own"),
        (f"{program} kafka --topic lines:4", "a broker to play with"),
        (f"{program} config", "every setting of a client"),
    )
    width = max(len(line) for line, _ in rows) + 2
    console.print()
    console.print(Text("what to try next", style="bold"))
    for line, what in rows:
        console.print(Text.assemble("  ", (line.ljust(width), "cyan"), what), soft_wrap=True)


def _differences(console: Console, check: Check) -> None:
    count = len(check.differences)
    console.print(
        Text(
            f"{count:,} counts differ from those of plain Python" if count > 1 else "1 count differs",
            style="bold red",
        )
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("word", no_wrap=True, overflow="ellipsis", max_width=_WORD_WIDTH)
    table.add_column("in the store", justify="right")
    table.add_column("in plain Python", justify="right")
    for word, stored, expected in check.differences[:_SHOWN_DIFFERENCES]:
        table.add_row(Text(word), f"{stored:,}", f"{expected:,}")
    console.print(table)
    for path in check.changed:
        console.print(Text(f"{path} was written to while it was counted, which may be why", style="yellow"))
    if not check.changed:
        console.print("this is a bug, please report it with the text that was counted")
