"""Which files the demo counts, and what it says about those that it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from millstream_demo import corpus
from millstream_demo.corpus import UnfitText, given, standard_library
from millstream_demo.words import LINE_LIMIT, count_words


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A directory with text, a subdirectory, and what is no text."""
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / "a.txt").write_text("one two\ntwo\n")
    (tmp_path / "sub" / "b.txt").write_text("three")
    (tmp_path / "sub" / ".git" / "c.txt").write_text("hidden")
    (tmp_path / ".hidden.txt").write_text("hidden")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    return tmp_path


def test_a_directory_gives_its_text_files(text: Path) -> None:
    """Below it too; what is hidden or no text is left out, and the latter is told."""
    found = given([text])
    assert [file.path.name for file in found.files] == ["a.txt", "empty.txt", "b.txt"]
    assert found.size == 17
    assert found.note == "left out, because not text or not readable: 1"


def test_lines_have_no_ends_and_blocks_have_all_words(text: Path) -> None:
    """What is sent and what is counted again have the same words."""
    found = given([text / "a.txt", text / "empty.txt", text / "sub" / "b.txt"])
    assert list(found.lines()) == ["one two", "two", "three"]
    assert count_words(found.lines()) == count_words(found.blocks()) == {"one": 1, "two": 2, "three": 1}
    assert found.origin == "a.txt, empty.txt, b.txt"


def test_a_file_named_twice_is_counted_once(text: Path) -> None:
    """It is named by itself and as part of its directory."""
    assert len(given([text / "a.txt", text]).files) == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("none.txt", "none.txt: No such file"),
        ("binary", "binary: contains zero bytes, so it is binary or UTF-16"),
        ("empty.txt", "empty.txt: empty, so there is nothing to count"),
        ("sub/.git/..", "sub"),
    ],
)
def test_a_file_that_cannot_be_counted_is_named(text: Path, name: str, reason: str) -> None:
    """The message gives the reason."""
    if name.endswith(".."):
        (text / "sub" / "b.txt").unlink()
    with pytest.raises(UnfitText) as raised:
        given([text / name])
    assert reason in str(raised.value)


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A pipe would never end, or never begin."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnfitText, match="not a regular file"):
        given([tmp_path / "pipe"])


def test_bytes_that_are_not_utf_8_separate_words(tmp_path: Path) -> None:
    """A text in another encoding is counted all the same, in the lines and in the blocks alike."""
    (tmp_path / "latin.txt").write_bytes("Stra\xdfe caf\xe9".encode("latin-1"))
    found = given([tmp_path / "latin.txt"])
    assert count_words(found.lines()) == count_words(found.blocks()) == {"stra": 1, "e": 1, "caf": 1}


def test_a_long_line_is_cut_and_a_long_word_is_told(tmp_path: Path) -> None:
    """The message has the file and the number of the line."""
    path = tmp_path / "long.txt"
    path.write_text("word " * LINE_LIMIT)
    lines = list(given([path]).lines())
    assert len(lines) > 1
    assert count_words(lines) == {"word": LINE_LIMIT}
    path.write_text("fine\n" + "x" * (LINE_LIMIT + 1))
    with pytest.raises(UnfitText, match=r"long\.txt: line 2 has a word of more than 100,000 letters"):
        list(given([path]).lines())


def test_a_file_that_is_written_to_is_noticed(text: Path) -> None:
    """Otherwise it would look like a wrong count."""
    found = given([text])
    assert found.changed() == []
    with (text / "a.txt").open("a") as file:
        file.write("more")
    (text / "sub" / "b.txt").unlink()
    assert [path.name for path in found.changed()] == ["a.txt", "b.txt"]


def test_the_standard_library_is_there_and_bounded() -> None:
    """What the demo counts by default: sources, no tests, not more than the limit."""
    found = standard_library(200_000)
    assert 0 < found.size <= 200_000
    assert "were left out, since" in found.note
    assert not any({"test", "site-packages"} & set(file.path.parts) for file in found.files)


def test_a_python_without_sources_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some ship a zip file, or compiled files only."""
    monkeypatch.setattr(corpus.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(UnfitText, match="name files to count instead"):
        standard_library()
