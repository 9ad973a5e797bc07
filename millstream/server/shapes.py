"""What answers with entries look like: one, many, a page; in JSON, or the store's own bytes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millstream.query.provider import StoreDeclaration
from millstream.server.answers import Answer
from millstream.server.codec import shown
from millstream.server.pages import Page, Row
from millstream.server.routes import Request
from millstream.server.wire import Reply

__all__ = ["answer_of", "passed_on", "shown_many", "shown_page"]


def shown_page(request: Request, store: StoreDeclaration, page: Page, partitions: frozenset[int]) -> Answer:
    """The entries of a page, and where the next one begins."""
    return Answer(
        200,
        {
            "store": store.name,
            "partitions": sorted(partitions),
            "entries": [_shown_row(store, row, request.format) for row in page.rows],
            "next": None if page.next is None else page.next.token(),
        },
    ).encoded()


def passed_on(reply: Reply) -> Answer:
    """Another client's answer, as it came."""
    headers = {} if reply.retry_after is None else {"retry-after": "1"}
    return Answer(reply.status, headers=headers, raw=reply.raw)


def _shown_row(store: StoreDeclaration, row: Row, format_: str) -> dict[str, Any]:
    body = {
        "key": shown(store.key_serde, row.key, format_),
        "value": shown(store.value_serde, row.value, format_),
    }
    times = {"timestamp": row.timestamp, "start": row.start, "end": row.end}
    return body | {name: time for name, time in times.items() if time is not None}


def answer_of(request: Request, store: StoreDeclaration, key: bytes, row: Row | None) -> Answer:
    """One entry; 404 without an error: the key has no value."""
    if row is None:
        shown_key = shown(store.key_serde, key, request.format)
        return Answer(404, {"store": store.name, "key": shown_key, "value": None})
    return Answer(200, {"store": store.name, **_shown_row(store, row, request.format)})


def shown_many(
    request: Request,
    store: StoreDeclaration,
    keys: Sequence[bytes],
    found: Sequence[Row | None],
    here: frozenset[int],
) -> Answer:
    """The values of many keys, in their order."""
    entries = [
        {"key": shown(store.key_serde, key, request.format), "value": None}
        if row is None
        else _shown_row(store, row, request.format)
        for key, row in zip(keys, found, strict=True)
    ]
    return Answer(200, {"store": store.name, "partitions": sorted(here), "entries": entries}).encoded()
