"""Where checkpoints can be kept, by the scheme of their URI, and what claims rely on there. Pure.

A checkpoint has one owner (checkpoints/fencing.py). That requires a file system with atomic renames and
exclusive creation, or an object store that can write an object only if it does not exist. Any other location
is refused.
"""

from __future__ import annotations

from enum import Enum
from urllib.parse import urlsplit

from millstream.errors import ConfigException

__all__ = ["ClaimKind", "caution", "kind_of", "scheme_of"]


class ClaimKind(Enum):
    """What a claim of a checkpoint relies on."""

    FILES = "atomic renames and exclusive creations"
    OBJECTS = "conditional writes"


_KINDS = {
    "": ClaimKind.FILES,
    "file": ClaimKind.FILES,
    "hdfs": ClaimKind.FILES,
    "viewfs": ClaimKind.FILES,
    "abfs": ClaimKind.FILES,
    "abfss": ClaimKind.FILES,
    "s3a": ClaimKind.OBJECTS,
}

_INSTEAD = {
    "s3": "write s3a:// instead: Hadoop's file system for S3 has conditional writes, others may not",
    "s3n": "write s3a:// instead: Hadoop no longer supports s3n://",
    "wasb": "write abfs:// instead, with an account that has a hierarchical namespace",
    "wasbs": "write abfss:// instead, with an account that has a hierarchical namespace",
    "gs": "Google Cloud Storage has preconditions, but Millstream has not been tested on it; use s3a:// or a "
    "file system that all clients reach",
}


def scheme_of(location: str) -> str:
    """The scheme of a URI, in lower case, whether or not an authority follows it; "" for a path."""
    scheme = urlsplit(location).scheme.lower() if ":/" in location else ""
    return "" if len(scheme) == 1 else scheme  # a drive


def kind_of(location: str) -> ClaimKind:
    """What claims at this path or URI rely on.

    Raises:
        ConfigException: the location is not known to prevent two clients from owning one checkpoint.
    """
    scheme = scheme_of(location)
    try:
        return _KINDS[scheme]
    except KeyError:
        known = ", ".join(f"{each}://" for each in _KINDS if each)
        raise ConfigException(
            f"checkpoint.location cannot be on {scheme}://: a checkpoint has one owner, and this file system "
            f"has no known way to stop a second client from writing to it. Use a path, or {known}"
            + (f"; {_INSTEAD[scheme]}" if scheme in _INSTEAD else "")
        ) from None


def caution(location: str) -> str | None:
    """What whoever keeps checkpoints there should know, for the log; None: nothing.

    Raises:
        ConfigException: as for `kind_of`.
    """
    if kind_of(location) is not ClaimKind.OBJECTS:
        return None
    return (
        f"checkpoint.location '{location}' is in an object store, which is new: clients that take it over "
        "from one another were tried on test servers, and not in production. For data that matters, use a "
        "file system that all clients reach"
    )
