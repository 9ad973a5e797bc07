"""Where Millstream keeps what it downloads or creates once per machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from millstream.errors import SetupException

__all__ = ["CACHE_VARIABLE", "cache_dir", "cache_path"]

CACHE_VARIABLE = "MILLSTREAM_CACHE_DIR"


def cache_path(*parts: str) -> Path:
    """A path below the cache directory. It may not exist, or be read-only, as in a container.

    `MILLSTREAM_CACHE_DIR`, or the operating system's place for a user's caches. Everything in it can be
    deleted at any time, and is downloaded or created again.
    """
    root = Path(os.environ.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("millstream"))
    return root.joinpath(*parts).absolute()


def cache_dir(*parts: str) -> Path:
    """A directory below the cache directory that can be written; it is created if it does not exist.

    Raises:
        SetupException: it cannot be created or written.
    """
    path = cache_path(*parts)
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise SetupException(
            f"the cache directory {path} cannot be created: {error.strerror or error}; fix that, or set "
            f"{CACHE_VARIABLE} to a writable directory"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise SetupException(
            f"the cache directory {path} cannot be written; fix its permissions, or set {CACHE_VARIABLE} to "
            f"a writable directory"
        )
    return path
