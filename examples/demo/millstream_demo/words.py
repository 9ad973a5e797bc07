"""What a word is, for the demo: one rule, run by two engines that must agree on every byte of every text.

A word is a run of ASCII letters, with at most one apostrophe inside (`don't`), in lower case. The pattern
means the same in Java's regular expressions (in Spark, word_count.py) and in Python's. The letters are found
first and then converted to lower case, because that conversion differs between versions of Unicode (and turns
a Kelvin sign into a `k`), but not for ASCII.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

__all__ = ["LINE_LIMIT", "WORD", "WordTooLong", "count_words", "pieces", "words_of"]

WORD = "[A-Za-z]+(?:'[A-Za-z]+)?"
"""The rule, without nested repetition: otherwise Java would run out of stack on a long text."""

LINE_LIMIT = 100_000
"""A longer line is sent as several records: at most four bytes a character, far below Kafka's megabyte."""

_find_all = re.compile(WORD).findall


class WordTooLong(ValueError):
    """A stretch of letters that is too long for a record."""


def words_of(text: str) -> list[str]:
    """The words of a text, in order."""
    return [word.lower() for word in _find_all(text)]


def count_words(blocks: Iterable[str]) -> Counter[str]:
    """How often each word occurs. No word extends beyond the end of a block."""
    counts: Counter[str] = Counter()
    for block in blocks:
        counts.update(words_of(block))
    return counts


def pieces(line: str, limit: int = LINE_LIMIT) -> Iterator[str]:
    """The line, in pieces of at most `limit` characters that together contain the line's words.

    Raises:
        WordTooLong: a piece would have to end inside a word.
    """
    start = 0
    while len(line) - start > limit:
        end = _seam(line, start, start + limit)
        yield line[start:end]
        start = end
    yield line[start:]


def _seam(line: str, start: int, end: int) -> int:
    """The last position up to `end` that follows a character that is in no word."""
    for place in range(end, start, -1):
        character = line[place - 1]
        if not (character.isascii() and character.isalpha()) and character != "'":
            return place
    raise WordTooLong(f"has a word of more than {end - start:,} letters, longer than in any text")
