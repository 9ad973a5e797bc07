"""Paths and URIs of places where Spark can write. Pure."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["scheme_of"]


def scheme_of(location: str) -> str:
    """The scheme of a URI, in lower case, whether or not an authority follows it; "" for a path."""
    scheme = urlsplit(location).scheme.lower() if ":/" in location else ""
    return "" if len(scheme) == 1 else scheme  # a drive
