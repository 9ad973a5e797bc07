"""The tests that wait for the night: what brings them back by day."""

from __future__ import annotations

from pathlib import Path

import nightly
import pytest


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of one test and one subject, of which everything has passed."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text("its test")
    (tmp_path / "subject").mkdir()
    (tmp_path / "subject" / "one.py").write_text("its code")
    monkeypatch.setattr(nightly, "ROOT", tmp_path)
    monkeypatch.setattr(nightly, "RECORD", tmp_path / "nightly.json")
    monkeypatch.setattr(nightly, "NIGHTLY", {"tests/test_it.py::test_one": ("subject",)})
    forget()
    nightly.passed()
    return tmp_path


def forget() -> None:
    nightly.as_it_is.cache_clear()
    nightly._recorded.cache_clear()


@pytest.fixture(autouse=True)
def forgotten() -> object:
    """What is remembered of a made-up project is of no use to other tests."""
    yield
    forget()


def test_a_test_waits_while_nothing_that_it_is_about_changes(record: Path) -> None:
    """What is beside its subjects does not matter."""
    (record / "other.py").write_text("other code")
    forget()
    assert not nightly.due("tests/test_it.py::test_one")


@pytest.mark.parametrize(
    "changed", ["subject/one.py", "subject/two.py", "subject/Two.java", "tests/test_it.py"]
)
def test_a_change_of_its_subject_or_of_its_own_file_brings_it_back(record: Path, changed: str) -> None:
    """A new file in a folder counts, too."""
    (record / changed).write_text("changed")
    forget()
    assert nightly.due("tests/test_it.py::test_one")


def test_what_was_never_run_is_due(record: Path) -> None:
    """A new row of the table, say."""
    nightly.RECORD.write_text("{}")
    forget()
    assert nightly.due("tests/test_it.py::test_one")


def test_each_row_of_the_table_leads_to_a_test_and_to_its_subjects() -> None:
    """A row whose test has another name now would let it run every time."""
    for row in nightly.NIGHTLY:
        file, _, test = row.partition("::")
        name = test.partition("[")[0]
        assert f"def {name}" in (nightly.ROOT / file).read_text(encoding="utf-8"), row
        assert nightly.as_it_is(row)
