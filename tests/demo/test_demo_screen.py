"""How the demo looks: it fits the terminal, says the numbers, and shows differences."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from millstream_demo.corpus import Corpus, TextFile
from millstream_demo.screen import LivePresenter, PlainPresenter, report, size_text, suggestions, title
from millstream_demo.view import Check, Counts, Progress, Step, View
from rich.console import Console

from millstream.model import PipelineMetadata, TaskId, TaskMetadata, ThreadMetadata

COUNTS = Counts((("the", 12_345), ("[red]x[/red]" * 9, 77), ("don't", 1)), 12_423, 3)
STEPS = (
    Step("kafka", "Kafka is up at 127.0.0.1:1", 1.0, 2.5),
    Step("lines", "9,000 lines are in Kafka", 2.5, 3.0),
    Step("spark", "Spark 4.3.0 is up", 1.0, 6.0),
    Step("client", "the client is RUNNING", 2.5, 8.0),
    Step("counting", "counting", 8.0),
)
THREADS = tuple(
    ThreadMetadata(
        f"demo-StreamThread-{number}",
        "RUNNING",
        (TaskMetadata(TaskId(1, number)),),
        (),
        (PipelineMetadata("p0", True),) if number == 1 else (),
    )
    for number in (1, 2)
)
VIEW = View(12.3, STEPS, "demo", "RUNNING", THREADS, Progress(4_000, 9_000, True, 812.0, 17), COUNTS)
DONE = View(
    20.0,
    (*STEPS[:4], Step("counting", "9,000 lines are counted", 8.0, 18.0)),
    "demo",
    "RUNNING",
    THREADS,
    Progress(9_000, 9_000, True),
    COUNTS,
)


def console(width: int = 80, height: int = 24, *, terminal: bool = False) -> Console:
    return Console(
        file=io.StringIO(),
        width=width,
        height=height,
        force_terminal=terminal,
        color_system=None,
        highlight=False,
        legacy_windows=False,
        _environ={},
    )


def printed(on: Console) -> str:
    assert isinstance(on.file, io.StringIO)
    return on.file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 15)])
def test_the_live_screen_fits_the_terminal(width: int, height: int) -> None:
    """No line is wider, and what is drawn again and again is not higher."""
    on = console(width, height, terminal=True)
    presenter = LivePresenter(on)
    presenter.show(VIEW)
    lines = on.render_lines(presenter._picture(VIEW), pad=False)
    presenter.stop(DONE)
    assert all(sum(segment.cell_length for segment in line) <= width for line in lines)
    assert len(lines) + 1 <= height
    text = "\n".join("".join(segment.text for segment in line) for line in lines)
    for part in ("demo is RUNNING", "lag 5,000", "44%", "4,000 of 9,000", "12,345", "the"):
        assert part in text
    assert ("demo-StreamThread-2" in text) == (width >= 80)


def test_a_step_stays_when_it_is_done_and_is_printed_once() -> None:
    """Above what moves."""
    on = console(terminal=True)
    presenter = LivePresenter(on)
    for _ in range(3):
        presenter.show(VIEW)
    presenter.stop(DONE)
    assert printed(on).count("Spark 4.3.0 is up") == 1
    assert printed(on).count("9,000 lines are counted") == 1


def test_plain_lines_say_each_step_once_and_progress_now_and_then() -> None:
    """No control characters, and one line for one thing."""
    on = console(40)
    presenter = PlainPresenter(on)
    for _ in range(5):
        presenter.show(VIEW)
    presenter.stop(DONE)
    lines = printed(on).splitlines()
    assert len(lines) == 6
    assert "\x1b" not in printed(on)
    assert "4,000 of 9,000 lines, 812 records/s, lag 5,000; the 12,345" in lines[4]
    assert "9,000 lines are counted (10.0 s)" in lines[5]


def test_the_report_says_what_was_counted_and_that_it_is_right() -> None:
    """Words as they are, markup or not."""
    on = console()
    report(on, DONE, Check(COUNTS))
    assert "OK: 12,423 words, 3 distinct; each count equals that of plain Python" in printed(on)
    assert "[red]x[/red]" in printed(on)
    assert "running after 7.0 s, counted in 10.0 s" in printed(on)


def test_the_report_shows_differences_and_what_may_be_why() -> None:
    """Each with both counts; a file that somebody wrote to is named."""
    on = console()
    report(on, DONE, Check(COUNTS, (("the", 12_345, 12_346), ("new", 0, 1)), (Path("log.txt"),)))
    assert "2 counts differ" in printed(on)
    assert "12,346" in printed(on)
    assert "log.txt was written to while it was counted" in printed(on)
    assert "OK:" not in printed(on)


def test_a_difference_without_a_reason_is_a_bug() -> None:
    """The screen calls it a bug."""
    on = console()
    report(on, DONE, Check(COUNTS, (("the", 1, 2),)))
    assert "1 count differs" in printed(on)
    assert "this is a bug, please report it" in printed(on)


def test_nothing_counted_is_reported_too() -> None:
    """A text without words has no table."""
    on = console()
    report(on, DONE, Check(Counts()))
    assert "0 words, 0 distinct" in printed(on)


def test_the_title_names_the_text() -> None:
    """How much, where from, what was left out."""
    file = TextFile(Path("a"), 2_500_000, 0)
    on = console()
    on.print(title(Corpus((file, file), "two places", "1 more was left out")))
    on.print(title(Corpus((file,), "")))
    assert printed(on).splitlines() == [
        "millstream demo  the words of two places: 2 files, 5.0 MB",
        "  1 more was left out",
        "millstream demo  the words of 1 file, 2.5 MB",
    ]
    assert (size_text(1), size_text(1_500)) == ("1 bytes", "1.5 kB")


def test_what_to_try_next_can_be_copied() -> None:
    """Each line begins with the program as it was called."""
    on = console(50)
    suggestions(on, ".venv/bin/millstream")
    lines = printed(on).splitlines()[2:]
    assert len(lines) == 4
    assert all(line.startswith("  .venv/bin/millstream ") for line in lines)
