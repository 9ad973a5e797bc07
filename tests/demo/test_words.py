"""The demo's word rule: what a word is, that lines can be cut, and that Spark and Python agree."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millstream_demo.words import WordTooLong, count_words, pieces, words_of
from tiers import examples

TEXTS = {
    "": [],
    "To be, or not to be": ["to", "be", "or", "not", "to", "be"],
    "Don't panic": ["don't", "panic"],
    "'quoted' '' rock'n'roll o'": ["quoted", "rock'n", "roll", "o"],
    "snake_case CamelCase x1y2 __init__": ["snake", "case", "camelcase", "x", "y", "init"],
    "tab\tand\vodd\x1cspaces\u2028here\u00a0too": ["tab", "and", "odd", "spaces", "here", "too"],
    # What lower case does to letters that are not ASCII differs between versions of Unicode; these are cut.
    "Straße naïve ÉCOLE İstanbul \u212aelvin \u017ftrange": [
        "stra", "e", "na", "ve", "cole", "stanbul", "elvin", "trange",
    ],
    "日本語 text 🎉emoji🎉 \ufffd x": ["text", "emoji", "x"],
    "e\u0301clair don\u2019t": ["e", "clair", "don", "t"],
    "a" * 3000: ["a" * 3000],
    "a'" * 3000: ["a'a"] * 1500,
    "\r\n": [],
    "$1 \\d+ [a-z] ?(x)*": ["d", "a", "z", "x"],
}  # fmt: skip


@pytest.mark.parametrize(("text", "words"), TEXTS.items(), ids=range(len(TEXTS)))
def test_a_word_is_ascii_letters_with_one_apostrophe_inside(text: str, words: list[str]) -> None:
    """Lower case; what is not ASCII separates words."""
    assert words_of(text) == words


def test_words_are_counted_over_all_blocks() -> None:
    """No word goes over the end of a block."""
    assert count_words(["a b", "b c'd", ""]) == {"a": 1, "b": 2, "c'd": 1}


@given(st.text(alphabet="ab' é-\t", max_size=200), st.integers(min_value=1, max_value=20))
@settings(deadline=None, max_examples=examples(100))
def test_a_cut_line_has_the_words_of_the_whole(line: str, limit: int) -> None:
    """Any pieces together are the line, and they have its words."""
    try:
        cut = list(pieces(line, limit))
    except WordTooLong:
        assert any(len(run) >= limit for run in _runs(line))
        return
    assert "".join(cut) == line
    assert all(len(piece) <= limit for piece in cut)
    assert count_words(cut) == count_words([line])


def _runs(line: str) -> list[str]:
    """The stretches of characters that a word can have."""
    return "".join(c if (c.isascii() and c.isalpha()) or c == "'" else " " for c in line).split()


def test_a_word_that_no_record_can_take_is_refused() -> None:
    """It says how long is too long."""
    with pytest.raises(WordTooLong, match="more than 100 letters"):
        list(pieces("word " + "x" * 150, 100))


@pytest.mark.spark
def test_spark_and_python_find_the_same_words() -> None:
    """The demo's topology on Spark counts each of the texts above as plain Python does."""
    from millstream_demo.word_count import LINES, STORE, word_count

    from millstream import Serdes
    from millstream.testing import TopologyTestDriver

    with TopologyTestDriver(word_count()) as driver:
        lines = driver.create_input_topic(LINES, Serdes.string(), Serdes.string())
        lines.pipe_value_list(TEXTS)
        with driver.get_key_value_store(STORE).all() as entries:
            assert dict(entries) == dict(count_words(TEXTS))
