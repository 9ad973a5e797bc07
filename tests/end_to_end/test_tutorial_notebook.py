"""The tutorial: its cells run in IPython, in their order, and show what they are to show."""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell

from millstream import KafkaStreams

TUTORIAL = Path(__file__).resolve().parent.parent.parent / "docs" / "tutorial.ipynb"


def cells() -> list[dict[str, Any]]:
    """All cells, text and code."""
    found: list[dict[str, Any]] = json.loads(TUTORIAL.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    """IPython as a notebook's kernel has it; what its cells have started is closed at the end."""
    for name in ("ps1", "ps2", "ps3"):
        monkeypatch.setattr(sys, name, "", raising=False)  # IPython sets them, and they are taken back
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # so that it is there again
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    yield shell
    for client in KafkaStreams.running():
        client.close()
    if "kafka" in shell.user_ns:
        shell.user_ns["kafka"].close()
    shell.reset(new_session=False)
    shell.atexit_operations()
    atexit.unregister(shell.atexit_operations)
    InteractiveShell.clear_instance()


def test_the_tutorial_in_git_has_no_output() -> None:
    """Outputs would be of somebody's machine and of some earlier version."""
    for cell in cells():
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
        assert "".join(cell["source"]).strip()


@pytest.mark.kafka
def test_the_tutorial_runs_and_shows_what_it_says(shell: InteractiveShell) -> None:
    """Every cell, and the one that starts the client twice: the second client takes over."""
    shown: list[str] = []
    earlier: list[KafkaStreams] = []
    for cell in cells():
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        for _ in range(2 if "streams.start()" in source else 1):
            result = shell.run_cell(source)
            result.raise_error()
        if "streams.start()" in source:
            earlier.append(shell.user_ns["streams"])
            assert KafkaStreams.running() == (shell.user_ns["streams"],)
        if result.result is not None:
            formats, _ = shell.display_formatter.format(result.result)
            shown.append(formats.get("text/html", formats["text/plain"]))
    whole = "\n".join(shown)
    for piece in (
        "data:image/svg+xml;base64,",
        "RUNNING",
        "value.amount",
        "window_start",
        "{'orders': 2, 'amount': 55.0}",
        "NOT_RUNNING",
    ):
        assert piece in whole
