"""scripts/make_changelog.py: how fragments become a release."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "make_changelog.py"

WRITTEN = """# Changelog

## 0.2.0 (unreleased)

In short.

### Added

- One.

## 0.1.0 - 2026-01-01

- First.
"""


def script() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("make_changelog", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_release_is_what_was_written_out_and_the_fragments_below_it() -> None:
    """Each under its kind, and the earlier releases stay."""
    fragments = {"b.added.md": "Two\nlines.\n", "a.fixed.md": "Mended.\n"}
    assert script().released(WRITTEN, "0.2.0", "2026-02-02", fragments) == (
        "# Changelog\n\n## 0.2.0 - 2026-02-02\n\nIn short.\n\n### Added\n\n- One.\n- Two lines.\n\n"
        "### Fixed\n\n- Mended.\n\n## 0.1.0 - 2026-01-01\n\n- First.\n"
    )


def test_a_release_of_nothing_is_refused() -> None:
    """There is neither a fragment nor a section of that version."""
    with pytest.raises(ValueError, match="there is nothing to release"):
        script().released(WRITTEN, "0.3.0", "2026-02-02", {})
