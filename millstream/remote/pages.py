"""Pages of a range: rows in order, where the next page begins, and pages of several clients merged. Pure.

Each page is read in full. No iterator stays open between two pages, so a slow reader holds nothing. The next
page begins where the last one ended, by the row's place in the order. Whatever is written meanwhile, no row
appears twice, and none that was there all the time is missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import NamedTuple

from millstream.model import StoreKind
from millstream.query.merged import merged_runs
from millstream.query.read import Order
from millstream.remote.json_codec import bad, from_base64, to_base64

__all__ = ["Page", "PageStart", "Row", "merged", "page_of", "place_of"]

_NUMBERS = Struct(">Bqq")
_VERSION = 1


class Row(NamedTuple):
    """An entry in bytes. `start` and `end` are those of its window or session, in ms, or else None."""

    key: bytes
    value: bytes
    timestamp: int | None = None
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class PageStart:
    """Where a page begins: after every row of this order.

    (Rows of several partitions with the same key have the same order. No page ends between them.)
    """

    order: Order

    def token(self) -> str:
        """The value of `cursor=`; opaque to clients."""
        key, first, second = self.order
        return to_base64(_NUMBERS.pack(_VERSION, first, second) + key)

    @classmethod
    def parse(cls, token: str) -> PageStart:
        """The place that a token represents.

        Raises:
            Refused: it is not one of our tokens.
        """
        data = from_base64(token)
        if len(data) < _NUMBERS.size or data[0] != _VERSION:
            raise bad("'cursor' must be 'next' of the previous page")
        _, first, second = _NUMBERS.unpack_from(data)
        return cls((data[_NUMBERS.size :], first, second))


@dataclass(frozen=True, slots=True)
class Page:
    """Rows, and where the next page begins; None: there are no more."""

    rows: Sequence[Row]
    next: PageStart | None = None


def place_of(kind: StoreKind) -> Callable[[Row], Order]:
    """How rows of a kind of stores are ordered: by key; by key and start; or by key, end and start."""
    if kind is StoreKind.SESSION:
        return lambda row: (row.key, row.end or 0, row.start or 0)
    return lambda row: (row.key, row.start or 0, 0)


def page_of(
    rows: Iterable[Row],
    order: Callable[[Row], Order],
    after: PageStart | None,
    *,
    reverse: bool,
    limit: int,
    most_bytes: int,
    check: Callable[[], None] = lambda: None,
) -> Page:
    """The first page of `rows`, which may begin before the place where the page is to begin.

    A page has at most `limit` rows and `most_bytes` bytes, but at least one row, and it does not end between
    rows of the same order. `check` is called now and then, and may raise.
    """
    taken: list[Row] = []
    size = 0
    last: Order | None = None
    for number, row in enumerate(rows):
        if number % 256 == 0:
            check()
        place = order(row)
        if after is not None and (place >= after.order if reverse else place <= after.order):
            continue
        size += len(row.key) + len(row.value)
        if last is not None and place != last and (len(taken) >= limit or size > most_bytes):
            return Page(taken, PageStart(last))
        taken.append(row)
        last = place
    return Page(taken)


def merged(
    pages: Sequence[Page],
    order: Callable[[Row], Order],
    *,
    reverse: bool,
    limit: int,
    most_bytes: int,
    distinct: bool = False,
) -> Page:
    """One page from several clients' pages of the same range, all from the same place and in the same order.

    A client's page that was cut says nothing about what follows its last row, so the merged one ends there.
    `distinct`: of rows of the same order, only those of the first client are taken (the others are replicas).
    """
    ends = [order(page.rows[-1]) for page in pages if page.next is not None and page.rows]
    end = (max(ends) if reverse else min(ends)) if ends else None
    rows: Iterable[Row]
    if distinct:
        rows = _of_the_first(pages, order, reverse=reverse)
    else:
        rows = merged_runs([page.rows for page in pages], order, reverse=reverse)
    known = rows if end is None else (r for r in rows if (order(r) >= end if reverse else order(r) <= end))
    page = page_of(known, order, None, reverse=reverse, limit=limit, most_bytes=most_bytes)
    return page if page.next is not None or end is None else Page(page.rows, PageStart(end))


def _of_the_first(pages: Sequence[Page], order: Callable[[Row], Order], *, reverse: bool) -> Iterator[Row]:
    """The rows of all pages; of rows of the same order, only those of the first page that has any.

    A single page can have several of them, because a window store can keep duplicates.
    """
    numbered = ([(row, number) for row in page.rows] for number, page in enumerate(pages))
    mixed = merged_runs(list(numbered), lambda each: order(each[0]), reverse=reverse)
    for _, group in groupby(mixed, key=lambda each: order(each[0])):
        same = list(group)
        yield from (row for row, number in same if number == same[0][1])
