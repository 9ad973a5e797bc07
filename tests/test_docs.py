"""The documents, held to the code: what README shows runs, generated parts are current, links lead on."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_program_in_the_readme_is_the_example() -> None:
    """README.md shows examples/orders.py as it is."""
    (shown,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown == (ROOT / "examples" / "orders.py").read_text(encoding="utf-8")


def test_the_program_in_the_readme_is_a_topology() -> None:
    """It builds, and one Spark query runs it."""
    topology = runpy.run_path(str(ROOT / "examples" / "orders.py"))["topology"]
    assert [pipeline.name for pipeline in topology.pipelines] == ["p0"]
    assert "Sink: KSTREAM-SINK" in str(topology.describe())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_each_link_leads_to_a_file(document: Path) -> None:
    """Links between documents are relative and their targets exist."""
    text = document.read_text(encoding="utf-8")
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]
    assert [target for target in targets if not (document.parent / target).exists()] == []


def test_the_generated_parts_of_the_documents_are_current() -> None:
    """State diagrams and the table of keys are what the program's own tables say: `make docs`."""
    script = ROOT / "scripts" / "make_docs.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_fragment_of_the_changelog_is_of_a_known_kind() -> None:
    """`changes/<slug>.<kind>.md`, with a sentence in it; scripts/make_changelog.py gathers them."""
    fragments = [path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md"]
    kinds = {"added", "changed", "deprecated", "removed", "fixed", "security"}
    assert [path.name for path in fragments if path.name.split(".")[1] not in kinds] == []
    assert [path.name for path in fragments if not path.read_text(encoding="utf-8").strip()] == []
