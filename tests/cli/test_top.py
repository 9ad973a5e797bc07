"""`millstream top`: what is drawn of a client, in any size, and when it cannot be asked any more."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from millstream.cli.client_calls import is_answer
from millstream.cli.client_commands import ThreadChange, change_text
from millstream.cli.top import Sample, key_of, picture, rates, spark, top_text

PIPELINE = {
    "name": "p0",
    "running": True,
    "records": 9_000,
    "records_per_second": 1_204.4,
    "batch_id": 17,
    "batch_ms": 212,
    "lag": 1_500,
    "dropped": 2,
}
SAMPLE = Sample(
    "http://127.0.0.1:7070",
    {
        "ready": True,
        "status": "running",
        "reason": "1 pipeline runs here",
        "details": {
            "client_state": "RUNNING",
            "threads": {"c-1": "RUNNING"},
            "pipelines": {"owned": 1, "running": 1},
        },
    },
    [{"thread": "c-1", "state": "RUNNING", "tasks": ["1_0"], "standby_tasks": [], "pipelines": [PIPELINE]}],
    [
        {
            "store": "totals",
            "kind": "key-value",
            "key_serde": "string",
            "value_serde": "json",
            "partitions": 2,
            "here": {"0": "readable", "1": "restoring"},
        }
    ],
    [{"host": "a:1", "stores": ["totals"], "partitions": ["t-0", "t-1"], "standby_partitions": []}],
    [
        {
            "at": "2026-07-01T10:00:00+00:00",
            "thread": "c-1",
            "pipeline": "p0",
            "task_id": None,
            "response": "REPLACE_THREAD",
            "attempt": 1,
            "most": 5,
            "next_try": None,
            "exception": "PipelineException: [red]full\x1b[2J",
        }
    ],
)


def drawn(shown: Sample, *, width: int = 120, height: int = 40, held: bool = False) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    past = {"p0": [1.0, 2.0, 4.0]}
    console.print(picture(shown, past, width=width, height=height, held=held))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_the_picture_has_pipelines_threads_stores_clients_and_failures() -> None:
    """What strangers wrote is shown, and is neither markup nor a command."""
    text = "\n".join(drawn(SAMPLE))
    for said in (
        "RUNNING  running  ready",
        "p0        runs      1,204  ▃▅█",
        "0, 1 (restoring)",
        "a:1",
        "[red]full\\x1b[2J",
        "q quits   p pauses   http://127.0.0.1:7070",
    ):
        assert said in text
    assert "p resumes" in drawn(SAMPLE, held=True)[-1]


@pytest.mark.parametrize("height", [6, 10, 14, 20, 40])
@pytest.mark.parametrize("width", [20, 80, 200])
def test_the_picture_fits_the_screen(width: int, height: int) -> None:
    """What matters least is left out where there is no room; the state and the keys stay."""
    many = [{**SAMPLE.stores[0], "store": f"store-{number}"} for number in range(50)]
    lines = drawn(replace(SAMPLE, stores=many), width=width, height=height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert lines[0].startswith("millstream top")
    assert lines[-1].startswith("q quits")
    assert width < 80 or any("more" in line for line in lines) == (height >= 20)


def test_a_narrow_screen_does_without_the_columns_that_matter_least() -> None:
    """What is left can be read: a name, its state, its rate and its lag."""
    lines = drawn(SAMPLE, width=40)
    assert [line.rstrip() for line in lines[3:5]] == [
        "pipeline        records/s    lag",
        "p0        runs      1,204  1,500",
    ]
    assert "store   kind       here" in [line.rstrip() for line in lines]
    assert max(map(len, lines)) <= 40
    assert drawn(SAMPLE, width=60)[3].split()[-4:] == ["batch", "ms", "lag", "dropped"]


def test_a_client_that_does_not_answer_is_shown_as_it_was() -> None:
    """The reason is shown with it."""
    gone = Sample(SAMPLE.url, SAMPLE.health, SAMPLE.threads, error="no answer: refused")
    text = "\n".join(drawn(gone))
    assert "no answer: refused" in text
    assert "p0" in text
    assert "millstream top  ?  ?  not ready" in drawn(Sample("x"))[0]


def test_bars_are_as_high_as_the_highest_of_them() -> None:
    """The last ones, as many as there is room for."""
    assert spark([0, 1, 2, 4], 3) == "▃▅█"
    assert spark([0, 0], 5) == "▁▁"
    assert spark([], 5) == ""
    assert rates(SAMPLE) == {"p0": 1_204.4}


def test_without_a_terminal_it_is_plain_text() -> None:
    """All of it, once."""
    text = top_text(SAMPLE)
    for said in ("state      RUNNING", "c-1", "1,204", "totals", "REPLACE_THREAD"):
        assert said in text


@pytest.mark.parametrize(
    ("pressed", "key"),
    [(b"q", "q"), (b"", "q"), (b"\x1b", "\x1b"), (b"\x1b[A", ""), (b"\x1bOP", ""), (b"pp", "p")],
)
def test_an_arrow_is_no_escape(pressed: bytes, key: str) -> None:
    """Terminals send both with the same first byte; only the one ends the picture."""
    assert key_of(pressed) == key


def test_a_busy_server_is_not_taken_for_a_health_report() -> None:
    """Both have status 503, but the report of a client that is not ready says so."""
    assert is_answer(503, {"ready": False, "status": "rebalancing"}, (503,))
    assert not is_answer(503, {"error": {"type": "Busy"}}, (503,))
    assert not is_answer(503, {}, (503,))
    assert not is_answer(200, {}, (503,))


def test_a_thread_that_is_still_ending_is_not_told_as_removed() -> None:
    """The server does not wait for as long as it takes."""
    assert change_text(ThreadChange.REMOVE, {"done": True}) == "a thread was removed"
    assert "still ending" in change_text(ThreadChange.REMOVE, {"done": False})
    assert change_text(ThreadChange.ADD, {"done": True}) == "a thread was added"
