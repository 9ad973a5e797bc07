"""How much a request to the query server may take."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one request may take, and all of them together.

    Attributes:
        target_bytes: path and query. `headers`, `header_bytes`: how many headers, and their bytes together.
        body_bytes: a body. `keys`: those of one body.
        page: how many entries a page has, if the request does not say; `most_page`: at most.
        page_bytes: how large the keys and values of a page get together (one entry may be larger).
        answer_bytes: the same of the values that one body asks for; more is refused.
        concurrent: requests being answered; more are refused at once. `connections`: those that are open.
        readers, forwarders: threads that read stores, and that wait for other clients.
        deadline_s: how long an answer may take. `transfer_s`: how long a body may take to come, and an
            answer to be taken. `idle_s`: how long a connection is kept between two requests.
    """

    target_bytes: int = 8_192
    headers: int = 100
    header_bytes: int = 16_384
    body_bytes: int = 1 << 20
    keys: int = 10_000
    page: int = 1_000
    most_page: int = 10_000
    page_bytes: int = 1 << 20
    answer_bytes: int = 16 << 20
    concurrent: int = 64
    connections: int = 256
    readers: int = 4
    forwarders: int = 8
    deadline_s: float = 10.0
    transfer_s: float = 10.0
    idle_s: float = 30.0
