"""`millstream demo --keep`: type a word and get its count, by an interactive query of the running store."""

from __future__ import annotations

import time
from itertools import islice

from rich.console import Console
from rich.text import Text

from millstream import InvalidStateStoreException
from millstream_demo.run import DemoRun
from millstream_demo.words import WORD, words_of

__all__ = ["answer", "ask_and_answer", "explain"]

_MOST = 12
_ARRIVAL_S = 30.0
_LOOK_S = 0.02


def explain(console: Console, run: DemoRun) -> None:
    """Print what there is to try."""
    console.print()
    console.print(Text("everything keeps running", style="bold"))
    for what, where in (
        ("bootstrap.servers", run.bootstrap_servers),
        ("topics", "lines, word-counts, millstream-demo-counts-changelog"),
        ("word", "its count, by an interactive query of store 'counts'"),
        ("wor*", "the words that begin with it"),
        ("+ some text", "send a line through Kafka and Spark, and see its words counted"),
        ("empty line, Ctrl-D", "stop everything"),
    ):
        console.print(Text.assemble("  ", (f"{what:<20}", "cyan"), where))


def ask_and_answer(console: Console, run: DemoRun) -> None:
    """Read lines and answer them, until an empty one or the end of the input.

    Raises:
        InvalidStateStoreException: the store can no longer be read; the client has failed.
    """
    try:
        import readline  # noqa: F401  # input() then has a history and can be edited
    except ImportError:
        console.print(Text("(this Python has no readline: no history)", style="dim"))
    while True:
        try:
            typed = input("word> ").strip()
        except EOFError:
            console.print()
            return
        if not typed:
            return
        for line in answer(run, typed):
            console.print(Text(f"  {line}"), soft_wrap=True)


def answer(run: DemoRun, typed: str) -> list[str]:
    """What to print for one typed line."""
    if typed.startswith("+"):
        return _sent(run, typed[1:].strip())
    try:
        if typed.endswith("*"):
            return _beginning_with(run, typed[:-1].lower())
        store = run.store()
        words = words_of(typed)
        if not words:
            return [f"not a word; a word is {WORD}, in lower case"]
        return [f"{count:>12,}  {word}" for word, count in ((word, store.get(word) or 0) for word in words)]
    except InvalidStateStoreException as error:
        if not error.retriable:
            raise
        return [f"not now: {error}"]


def _beginning_with(run: DemoRun, prefix: str) -> list[str]:
    with run.store().prefix_scan(prefix) as entries:
        found = list(islice(entries, _MOST + 1))
    lines = [f"{count:>12,}  {word}" for word, count in found[:_MOST]]
    if len(found) > _MOST:
        lines.append(f"{'':>12}  ... and more")
    return lines or [f"no word begins with {prefix!r}"]


def _sent(run: DemoRun, line: str) -> list[str]:
    """Send a line, and wait until the store has its words."""
    words = words_of(line)
    if not words:
        return ["the line has no word, so there would be nothing to see"]
    store = run.store()
    wanted = {word: (store.get(word) or 0) + words.count(word) for word in words}
    began = time.monotonic()
    run.send(line)
    while any((store.get(word) or 0) < count for word, count in wanted.items()):
        if time.monotonic() > began + _ARRIVAL_S:
            return [f"sent, but not counted within {_ARRIVAL_S:.0f} s"]
        time.sleep(_LOOK_S)
    seconds = time.monotonic() - began
    counts = "   ".join(f"{word} {store.get(word):,}" for word in wanted)
    return [f"from here through Kafka and Spark into the store in {seconds * 1000:,.0f} ms: {counts}"]
