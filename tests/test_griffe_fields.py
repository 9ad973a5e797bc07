"""What the reference makes of the fields of docstrings."""

from __future__ import annotations

import runpy
import sys
import types
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "griffe_fields.py"


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> Any:
    """As the extension does it. Griffe itself is only in the environment of the site."""
    griffe = types.ModuleType("griffe")
    monkeypatch.setattr(griffe, "Extension", object, raising=False)
    monkeypatch.setitem(sys.modules, "griffe", griffe)
    return runpy.run_path(str(SCRIPT))["rewritten"]


@pytest.mark.disk
def test_a_field_is_bold_wherever_it_stands(rewritten: Any) -> None:
    """On a line of its own it begins a paragraph; after a source it stays on its line."""
    assert rewritten("One.\n\nSource: KIP-1. Differs: it\nraises.") == (
        "One.\n\n\n**Source:** KIP-1. **Differs:** it\nraises."
    )
    assert rewritten("One.\nDiffers: it raises.") == "One.\n\n**Differs:** it raises."


@pytest.mark.disk
def test_arguments_with_one_text_become_two(rewritten: Any) -> None:
    """Griffe accepts only one name for a text."""
    assert rewritten("Args:\n    a, b: both.") == "Args:\n    a: as `b`.\n    b: both."
