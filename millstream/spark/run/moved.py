"""Corrects a checkpoint's record of its own path after it was renamed or moved.

Each claim renames the checkpoint (checkpoints/fencing.py). Spark writes the path into the checkpoint in one
place only: the metadata of `transformWithState`, which the kernel's operators are, contains the full path of
its state's schema.
"""

from __future__ import annotations

import json
from typing import Any

from millstream.ports import CheckpointFiles

__all__ = ["put_right"]

_SCHEMAS = "_stateSchema"


def put_right(files: CheckpointFiles, path: str) -> None:
    """Make the checkpoint with these files say that it is at this path. Idempotent.

    The files already belong to the claimant alone, and each is replaced as a whole.
    """
    for operator in sorted(files.list("state")):
        directory = f"state/{operator}/_metadata/v2"
        for name in sorted(files.list(directory)):
            file = f"{directory}/{name}"
            before = files.read(file) if name.isdecimal() else None
            after = None if before is None else _moved(before, f"{path.rstrip('/')}/state/{operator}")
            if after is not None and after != before:
                files.write(file, after)


def _moved(content: bytes, here: str) -> bytes | None:
    """The metadata of an operator whose directory is `here`; None: its format is unknown."""
    version, _, text = content.decode("utf-8", errors="replace").partition("\n")
    try:
        found: dict[str, Any] = json.loads(text)
        for store in found["stateStoreInfo"]:
            paths = [path.rpartition(f"/{_SCHEMAS}/") for path in store["stateSchemaFilePaths"]]
            store["stateSchemaFilePaths"] = [f"{here}/{_SCHEMAS}/{rest}" for _, _, rest in paths]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return f"{version}\n{json.dumps(found, separators=(',', ':'))}".encode()
