"""Finds the damaged file of a checkpoint.

After a power cut, the newest file of a log may be empty or truncated. Spark's own message does not always
name the file, and never says what to do.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from millstream.ports import CheckpointFiles

__all__ = ["Damage", "find_damage", "is_whole"]


@dataclass(frozen=True, slots=True)
class Damage:
    """A damaged file.

    Attributes:
        file: relative to the checkpoint, such as `offsets/12`.
        what: what is wrong with it.
        heals: the files and patterns to delete so that the pipeline can continue. Empty: deleting does not
            help.
        then: what happens then.
    """

    file: str
    what: str
    heals: tuple[str, ...] = ()
    then: str = ""


def is_whole(content: bytes) -> bool:
    """Whether this is a complete file of one of Spark's logs: its version, then JSON in each line."""
    version, *lines = content.decode("utf-8", errors="replace").split("\n")
    begun = version[:1] == "v" and version[1:].isdecimal() and lines[:1] not in ([], [""])
    return begun and all(map(_is_json, lines))


def _is_json(line: str) -> bool:
    if line in ("", "-"):  # a source without an offset yet
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def find_damage(files: CheckpointFiles) -> Damage | None:
    """The first damaged file among those that a query reads when it starts; None: all are in order."""
    offsets, commits = (_numbers(files, log) for log in ("offsets", "commits"))
    if commits and not offsets:
        return Damage("offsets", "is missing")
    for number in offsets[:2]:
        if what := _wrong(files, f"offsets/{number}"):
            if number != offsets[0] or (number and len(offsets) == 1):
                return Damage(f"offsets/{number}", what)
            heals = [f"offsets/{number}"] + [f"commits/{number}"] * (number in commits)
            if files.list("state"):
                # The micro-batch is planned again, perhaps with other records. Spark does not rewrite a state
                # that exists, so anything new in it would be missing from then on.
                heals.append(f"state/*/*/{number + 1}.*")
            return Damage(heals[0], what, tuple(heals), _then(number))
    for number in commits[:1]:
        if what := _wrong(files, f"commits/{number}"):
            return Damage(f"commits/{number}", what, (f"commits/{number}",), _then(number))
    return None


def _then(number: int) -> str:
    return f"micro-batch {number} is then run again, and its records may be in the topics twice"


def _numbers(files: CheckpointFiles, log: str) -> list[int]:
    """The numbers of a log's files, newest first."""
    return sorted((int(name) for name in files.list(log) if name.isdecimal()), reverse=True)


def _wrong(files: CheckpointFiles, file: str) -> str:
    content = files.read(file)
    if content is None or is_whole(content):
        return ""
    return "is truncated" if content.strip() else "is empty"
