"""What a request asks of a store: its key, its range, where its page begins; in the store's bytes. Pure."""

from __future__ import annotations

from millstream.model import StoreKind
from millstream.query.provider import StoreDeclaration
from millstream.server.answers import Refused
from millstream.server.codec import bad, from_base64, key_from_json, key_from_text, parse_json
from millstream.server.pages import Place
from millstream.server.reads import Scan
from millstream.server.routes import Request

__all__ = ["bounds_of", "key_of", "keys_in", "place_in", "scan_of"]


def key_of(store: StoreDeclaration, request: Request) -> bytes:
    """The key that the path has."""
    assert store.key_serde is not None  # LocalStores.declaration holds that
    return key_from_text(store.key_serde, request.key, request.format)


def keys_in(store: StoreDeclaration, body: bytes, format_: str, *, most: int) -> list[bytes]:
    """The keys that a body has, if they are not more than `most`."""
    assert store.key_serde is not None  # LocalStores.declaration holds that
    given = parse_json(body)
    keys = given.get("keys") if isinstance(given, dict) and set(given) == {"keys"} else None
    if not isinstance(keys, list):
        raise bad('the body is {"keys": [...]}')
    if len(keys) > most:
        raise Refused(413, "TooLarge", f"one request asks for {most} keys at most")
    return [key_from_json(store.key_serde, key, format_) for key in keys]


def scan_of(store: StoreDeclaration, request: Request) -> Scan:
    """The range that the parameters ask for."""
    assert store.key_serde is not None  # LocalStores.declaration holds that
    kind = store.kind
    names = ("from", "to") if kind is StoreKind.KEY_VALUE else ("from_key", "to_key")

    def key(name: str) -> bytes | None:
        text = request.given.get(name)
        if text is None or store.key_serde is None:
            return None
        return key_from_text(store.key_serde, text, request.format)

    times = ("earliest_end", "latest_start") if kind is StoreKind.SESSION else ("from", "to")
    windowed = kind is not StoreKind.KEY_VALUE
    return Scan(
        store.name,
        kind,
        key(names[0]),
        key(names[1]),
        _prefix_of(store, request),
        request.time(times[0]) if windowed else None,
        request.time(times[1]) if windowed else None,
        request.reverse,
        request.stale,
        as_of=request.time("as_of"),
    )


def _prefix_of(store: StoreDeclaration, request: Request) -> bytes | None:
    text = request.given.get("prefix")
    if text is None or store.key_serde is None:
        return None
    if request.format == "bytes" or store.key_serde.name == "bytes":
        return from_base64(text)
    if store.key_serde.name not in ("string", "uuid"):
        raise bad(f"keys of serde '{store.key_serde.name}' have a prefix in bytes only: format=bytes")
    return text.encode("utf-8")


def place_in(request: Request) -> Place | None:
    """Where the page begins; None: at the beginning."""
    token = request.given.get("cursor")
    return None if token is None else Place.parse(token)


def bounds_of(scan: Scan) -> dict[str, bytes | None]:
    """The keys that bound a range, by the names of their parameters."""
    if scan.kind is StoreKind.KEY_VALUE:
        return {"from": scan.from_key, "to": scan.to_key, "prefix": scan.prefix}
    return {"from_key": scan.from_key, "to_key": scan.to_key}
