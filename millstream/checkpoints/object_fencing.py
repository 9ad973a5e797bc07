"""Claims of checkpoints in an object store, which has no rename, but lets only one client create an object.

The guarantees of fencing.py hold here too, by other means. After seven claims of a pipeline `p0`, the root
contains

    p0.7                the checkpoint's directory
    p0.1 … p0.6         the remains of earlier claims: fences
    p0.7.owner          who made this claim, when, and its epoch; kept for each of the last claims
    p0.7.ready          the outcome of the claim: `ready`, or `lost` to a later one

A claim has five steps. If a client dies between two of them, the next claim continues from what it left
behind:

1. Take the next number, by creating its `.owner` object.
2. From the newest earlier claim down, find the last one that is ready. A claim without an outcome is made to
   lose: its `.ready` object says `lost`, and its client cannot create another.
3. Fence the log of that claim's checkpoint: fences take the next name in `offsets`, and the last one in
   `commits` if it is free. Its query can begin no further batch, and cannot commit the current one.
4. Copy the checkpoint to this claim's directory. The source is final by now.
5. Create this claim's `.ready` object. If it already exists, a later claim was quicker. Then clear the
   earlier directories, except for the fences in them.

No progress is lost or made twice, because the log has one next name, which goes to either the old query or
the fence. Either the fence comes after a batch, and the copy includes that batch; or the batch never begins.
And if two claims copy the same checkpoint, the later one has already made the earlier one lose.
"""

from __future__ import annotations

import time

from millstream.checkpoints.fencing import (
    KEPT_CLAIMS,
    CheckpointClaims,
    ClaimOwner,
    name_of,
    owner_of,
    places,
    ready_of,
)
from millstream.clock import Clock
from millstream.errors import StreamsException
from millstream.ports import FENCE, CheckpointClaim, CheckpointFiles, ObjectFiles

__all__ = ["ObjectClaims", "claims_of", "live_of"]

_READY = b"ready\n"
_LOST = b"lost\n"
_FENCE_S = 30.0
_TRIES = 100


def claims_of(files: CheckpointFiles, root: str, *, clock: Clock | None = None) -> CheckpointClaims:
    """Claims of the checkpoints below a root, by what its file system can do."""
    if isinstance(files, ObjectFiles):
        return ObjectClaims(files, root, clock=clock)
    return CheckpointClaims(files, root, clock=clock)


def live_of(pipeline: str, files: CheckpointFiles) -> str | None:
    """The name of the checkpoint's directory; None: nothing was processed yet, or it was deleted.

    Raises:
        StreamsException: the files cannot be read.
    """
    there = places(pipeline, files.list())
    for number in sorted(there.decided, reverse=True):
        if _is_ready(files.read(ready_of(pipeline, number)), ready_of(pipeline, number)):
            name = name_of(pipeline, number)
            return name if number in there.directories and _has_more_than_fences(name, files) else None
    return there.live


def _is_ready(outcome: bytes | None, name: str) -> bool:
    """Whether a claim's outcome is that it became ready. An outcome that cannot be read must not pass for a
    lost claim: the next claim would continue from an older checkpoint, or from none.
    """
    if outcome not in (None, _READY, _LOST):
        directory = name.removesuffix(".ready")
        raise StreamsException(
            f"checkpoint file '{name}', the outcome of a claim, is neither 'ready' nor 'lost'; restore it, "
            f"or delete it if '{directory}' does not have the checkpoint"
        )
    return outcome == _READY


def _has_more_than_fences(directory: str, files: CheckpointFiles) -> bool:
    names = files.list(directory)
    if names.keys() - {"offsets", "commits"}:
        return True
    return any(
        files.read(f"{directory}/{part}/{name}") != FENCE
        for part in names
        for name in files.list(f"{directory}/{part}")
    )


class ObjectClaims(CheckpointClaims):
    """`CheckpointClaims` by conditional writes."""

    def __init__(self, files: ObjectFiles, root: str, *, clock: Clock | None = None) -> None:
        super().__init__(files, root, clock=clock)
        self._objects = files

    def claim(self, pipeline: str, generation: int, holder: str) -> CheckpointClaim:
        number, owner, previous = self._take(pipeline, generation, holder)
        source = self._source(pipeline, number)
        if source is not None:
            self._fence_log(name_of(pipeline, source))
            self._raise_if_passed(pipeline, number)  # saves a useless copy
            self._objects.copy(name_of(pipeline, source), name_of(pipeline, number))
        if not self._objects.create(ready_of(pipeline, number), _READY):
            raise self._passed(pipeline, self._places(pipeline))
        self._clear(pipeline, number, source)
        self._tell(holder, pipeline, owner.epoch, previous)
        return CheckpointClaim(
            pipeline, f"{self._root}/{name_of(pipeline, number)}", owner.epoch, owner.secret
        )

    def is_held(self, claim: CheckpointClaim) -> bool:
        number = int(claim.path.rpartition(".")[2])
        return max(self._places(claim.pipeline).owners, default=0) <= number

    def _take(self, pipeline: str, generation: int, holder: str) -> tuple[int, ClaimOwner, ClaimOwner | None]:
        for _ in range(_TRIES):
            there = self._places(pipeline)
            number = there.head + 1
            previous = self._newest_owner(pipeline, number - 1, there)
            owner = self._next_owner(number, generation, holder, previous)
            if self._objects.create(owner_of(pipeline, number), owner.to_bytes()):
                if self._places(pipeline).head - number < KEPT_CLAIMS:
                    return number, owner, previous
                # Others have gone so far ahead since the names were listed that this number was forgotten.
                self._objects.remove(owner_of(pipeline, number))
        raise self._crowded(pipeline, _TRIES)

    def _source(self, pipeline: str, number: int) -> int | None:
        """The last claim before this one that is ready; those in between can no longer become ready."""
        there = self._places(pipeline)
        if not there.decided and there.directories:
            # From an older version, which had no outcomes.
            self._objects.create(ready_of(pipeline, max(there.directories)), _READY)
        for each in sorted(there.owners | there.directories, reverse=True):
            if each >= number:
                continue
            decision = ready_of(pipeline, each)
            if self._objects.read(decision) is None:
                self._objects.create(decision, _LOST)
            if _is_ready(self._objects.read(decision), decision):
                return each
        return None

    def _fence_log(self, directory: str) -> None:
        deadline = time.monotonic() + _FENCE_S
        while time.monotonic() < deadline:
            written = [int(name) for name in self._files.list(f"{directory}/offsets") if name.isdecimal()]
            last = max(written, default=-1)
            if last >= 0 and self._files.read(f"{directory}/offsets/{last}") == FENCE:
                last -= 1
            elif not self._objects.create(f"{directory}/offsets/{last + 1}", FENCE):
                continue  # its query has begun another batch meanwhile
            if last >= 0:
                self._objects.create(f"{directory}/commits/{last}", FENCE)
            return
        raise StreamsException(
            f"'{self._root}/{directory}' could not be fenced in {_FENCE_S:g} s: the client that still writes "
            f"there is faster every time; stop it"
        )

    def _clear(self, pipeline: str, number: int, source: int | None) -> None:
        there = self._places(pipeline)
        oldest = number - KEPT_CLAIMS
        for each in sorted(there.directories):
            if (source or 0) <= each < number:
                self._delete(name_of(pipeline, each))
        for each in sorted(there.directories | there.owners | there.decided):
            if each < oldest:
                for name in (name_of(pipeline, each), owner_of(pipeline, each), ready_of(pipeline, each)):
                    self._remove(name)

    def _remove(self, name: str) -> None:
        self._quietly(self._objects.remove, name)
