"""Pieces of HTML: what comes from outside is text, whatever it is."""

from __future__ import annotations

from millstream import display

HOSTILE = "</td><script>alert(1)</script>&\"'"


def test_everything_is_escaped() -> None:
    """Every part and every argument is, in text and in attributes."""
    for html in (
        display.title(HOSTILE, HOSTILE),
        display.badge(HOSTILE, "good"),
        display.note(HOSTILE),
        display.facts({HOSTILE: HOSTILE}),
        display.table([HOSTILE], [[HOSTILE], [b"<b>"], [{"<b>": 1}]], HOSTILE),
        display.preformatted(HOSTILE),
        display.details(HOSTILE, ""),
        display.image("<svg><script/></svg>", HOSTILE),
    ):
        assert "<script" not in html
        assert "<b>" not in html
        assert "\"'" not in html
        assert "&lt;script&gt;" in html


def test_a_long_cell_is_cut() -> None:
    """A value of a megabyte does not make a page of it."""
    assert len(display.table(["a"], [["x" * 1_000_000]])) < 1000
