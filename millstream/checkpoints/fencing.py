"""Ensures that only one client at a time runs a pipeline's checkpoint (design D5).

Spark does not ensure this: two drivers with the same checkpoint can both continue. So before a client runs a
pipeline, it claims the pipeline's checkpoint. The claim fences the client that ran it before, even one that
does not know yet that it has lost the pipeline (a zombie). After seven claims of a pipeline `p0`, the root of
the checkpoints contains

    p0, p0.1 … p0.6     fences: empty files in place of the directories of earlier claims
    p0.7                the checkpoint's directory; Spark creates it if there was none to take over
    p0.7.owner          who made this claim, when, and its epoch; kept for each of the last claims

Versions without claims kept the checkpoint at `p0`, without a number. A claim has three steps. If a client
dies between two of them, the next claim completes its work:

1. Take the next number by creating its `.owner` file, which succeeds for only one client.
2. For each earlier number, from the newest down, put a file there as a fence. If a directory is in the way,
   it is the checkpoint: rename it to the new number. If the checkpoint already has the new number, a zombie's
   Spark has created the directory again: move it aside. A query whose directory is now a file ends at its
   next commit.
3. Check whether another client has taken a higher number in the meantime; if so, this claim is void.

No progress is lost, for three reasons. The checkpoint is only ever renamed to a higher number, and only by
the one client that holds that number. Fences are placed from the newest number down, so a slower client
cannot rename the checkpoint to a number that a faster one has passed: a file is in the way. And a client
moves a directory aside only after it has seen the checkpoint under its own, higher number.

This requires a file system with atomic renames and atomic exclusive creation: a local one, NFS, or HDFS.
Object stores use object_fencing.py.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlparse

from millstream.clock import Clock, SystemClock
from millstream.errors import StreamsException, TaskMigratedException
from millstream.polling import pause
from millstream.ports import CheckpointClaim, CheckpointFiles
from millstream.small_files import create_whole, from_json, sync_directory, write_whole

__all__ = [
    "KEPT_CLAIMS",
    "CheckpointClaims",
    "ClaimOwner",
    "ClaimPaths",
    "LocalCheckpointFiles",
    "checkpoint_identity",
    "kept_after_delete",
    "name_of",
    "owner_of",
    "places",
    "ready_of",
    "stale",
]

log = logging.getLogger(__name__)

KEPT_CLAIMS = 100
"""How many earlier claims keep their fence. A zombie that missed more claims than this is no longer
fenced."""
_TRIES = 100
_FENCE_S = 10.0
_PAUSE_S = 0.01
_IDENTITY = ".identity"


# --- names: pure -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClaimPaths:
    """The files and directories of a pipeline's claims, by number; 0 stands for the name without a number.

    Attributes:
        directories: the checkpoint, and directories that zombies may have created.
        fences: files in place of directories.
        owners: claims with an `.owner` file.
        aside: the names of directories that were moved aside, sorted.
        decided: in an object store, claims with an outcome.
    """

    pipeline: str
    directories: frozenset[int] = frozenset()
    fences: frozenset[int] = frozenset()
    owners: frozenset[int] = frozenset()
    aside: tuple[str, ...] = ()
    decided: frozenset[int] = frozenset()

    @property
    def head(self) -> int:
        """The highest number in use."""
        return max(self.directories | self.fences | self.owners, default=0)

    @property
    def live(self) -> str | None:
        """The name of the checkpoint's directory; None: nothing was processed yet.

        A zombie's directory always has a lower number, because the checkpoint was renamed away from there.
        """
        return name_of(self.pipeline, max(self.directories)) if self.directories else None


def name_of(pipeline: str, number: int) -> str:
    """The name of a claim's directory."""
    return f"{pipeline}.{number}" if number else pipeline


def places(pipeline: str, names: Mapping[str, bool]) -> ClaimPaths:
    """The pipeline's entries among `names`, each of which maps to whether it is a directory."""
    directories: set[int] = set()
    fences: set[int] = set()
    owners: set[int] = set()
    decided: set[int] = set()
    aside: list[str] = []
    family = re.compile(rf"{re.escape(pipeline)}(?:\.([1-9][0-9]*))?(\.owner|\.ready|\.aside-[0-9a-f]+)?")
    for name, is_directory in names.items():
        found = family.fullmatch(name)
        if found is None:
            continue
        number, kind = int(found[1] or 0), found[2]
        if kind is None:
            (directories if is_directory else fences).add(number)
        elif kind == ".owner":
            owners.add(number)
        elif kind == ".ready":
            decided.add(number)
        else:
            aside.append(name)
    return ClaimPaths(
        pipeline,
        frozenset(directories),
        frozenset(fences),
        frozenset(owners),
        tuple(sorted(aside)),
        frozenset(decided),
    )


def stale(there: ClaimPaths, number: int) -> tuple[str, ...]:
    """What the claim with `number` may delete: what was moved aside earlier, and claims older than the last
    hundred."""
    oldest = number - KEPT_CLAIMS
    return (
        *there.aside,
        *(name_of(there.pipeline, each) for each in sorted(there.fences) if each < oldest),
        *(owner_of(there.pipeline, each) for each in sorted(there.owners) if each < oldest),
    )


def kept_after_delete(names: Mapping[str, bool]) -> frozenset[str]:
    """What is kept when all checkpoints are deleted: the location's identity, and each pipeline's last
    claim."""
    last: dict[str, int] = {}
    for name in names:
        found = re.fullmatch(r"(.+)\.([1-9][0-9]*)\.owner", name)
        if found is not None:
            last[found[1]] = max(last.get(found[1], 0), int(found[2]))
    return frozenset({_IDENTITY, *(owner_of(pipeline, number) for pipeline, number in last.items())})


def owner_of(pipeline: str, number: int) -> str:
    """The name of the file that says who made a claim."""
    return f"{pipeline}.{number}.owner"


def ready_of(pipeline: str, number: int) -> str:
    """The name of the object with a claim's outcome, in an object store."""
    return f"{name_of(pipeline, number)}.ready"


@dataclass(frozen=True)
class ClaimOwner:
    """Who made a claim, for messages and to make epochs grow.

    Attributes:
        at: when, in ISO 8601, by the owner's clock.
        secret: random; knowing it proves to other clients that the claim is the client's own
            (group/trust.py).
    """

    epoch: int
    holder: str
    at: str
    secret: str = field(default="", compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The content of the `.owner` file."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes | None) -> ClaimOwner | None:
        """The owner in a file's content; None: there is none yet, or it cannot be read."""
        try:
            return from_json(
                content or b"",
                lambda kept: cls(
                    int(kept["epoch"]), str(kept["holder"]), str(kept["at"]), str(kept.get("secret", ""))
                ),
            )
        except ValueError:
            return None


# --- claiming ----------------------------------------------------------------------------------------------


class CheckpointClaims:
    """Claims of the checkpoints below one root, by this client and others. Thread-safe.

    Args:
        files: the files below the root.
        root: the root itself, a path or a URI, as Spark takes it.
    """

    def __init__(self, files: CheckpointFiles, root: str, *, clock: Clock | None = None) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._clock = clock or SystemClock()

    def claim(self, pipeline: str, generation: int, holder: str) -> CheckpointClaim:
        """Take over the pipeline's checkpoint from its current owner.

        The claim's epoch is at least `generation`, and higher than that of every earlier claim. When this
        returns, no query of an earlier claim can commit any more.

        Args:
            generation: the group's generation, or another lower bound of the epoch.
            holder: the id of the claiming client, for messages.

        Raises:
            TaskMigratedException: another client claimed it at the same time, with a higher number.
            StreamsException: the files cannot be reached or changed.
        """
        number = self._take_number(pipeline)
        before = self._places(pipeline)
        previous = self._newest_owner(pipeline, number - 1, before)
        owner = self._next_owner(number, generation, holder, previous)
        self._files.write(owner_of(pipeline, number), owner.to_bytes())
        self._raise_if_passed(pipeline, number)  # checked again below; here it saves useless work
        wanted = before.directories | set(range(max(0, number - KEPT_CLAIMS), number))
        for each in sorted(wanted - before.fences, reverse=True):
            if each < number:
                self._fence(pipeline, each, number)
        self._raise_if_passed(pipeline, number)
        for name in stale(before, number):
            self._delete(name)
        self._tell(holder, pipeline, owner.epoch, previous)
        return CheckpointClaim(
            pipeline, f"{self._root}/{name_of(pipeline, number)}", owner.epoch, owner.secret
        )

    def is_held(self, claim: CheckpointClaim) -> bool:
        """Whether no one has claimed the checkpoint since.

        Raises:
            StreamsException: the files cannot be reached.
        """
        number = int(claim.path.rpartition("/")[2].removeprefix(claim.pipeline).removeprefix(".") or 0)
        there = self._places(claim.pipeline)
        return there.head <= number and number not in there.fences

    def owner(self, pipeline: str) -> ClaimOwner | None:
        """The owner of the last known claim; None: there is none."""
        there = self._places(pipeline)
        return self._newest_owner(pipeline, there.head, there)

    def _take_number(self, pipeline: str) -> int:
        for _ in range(_TRIES):
            number = self._places(pipeline).head + 1
            if self._files.create_file(owner_of(pipeline, number)):
                if self._places(pipeline).head - number < KEPT_CLAIMS:
                    return number
                # Since the names were listed, others have claimed so often that this number was deleted.
                self._files.delete(owner_of(pipeline, number))
        raise self._crowded(pipeline, _TRIES)

    def _crowded(self, pipeline: str, tries: int) -> StreamsException:
        return StreamsException(
            f"the checkpoint of pipeline '{pipeline}' at '{self._root}' could not be claimed in {tries} "
            f"tries: others keep claiming it; check that the clients of the application form one group"
        )

    def _next_owner(
        self, number: int, generation: int, holder: str, previous: ClaimOwner | None
    ) -> ClaimOwner:
        epoch = max(generation, number, previous.epoch + 1 if previous is not None else 0)
        at = datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        return ClaimOwner(epoch, holder, at, secrets.token_hex(16))

    def _tell(self, holder: str, pipeline: str, epoch: int, previous: ClaimOwner | None) -> None:
        log.info(
            "%s has claimed the checkpoint of pipeline %s, epoch %d%s",
            holder,
            pipeline,
            epoch,
            f"; before: {previous.holder}, epoch {previous.epoch}, {previous.at}" if previous else "",
        )

    def _fence(self, pipeline: str, earlier: int, number: int) -> None:
        """Put a file in place of an earlier claim's directory, which a zombie could otherwise create
        again."""
        old, new = name_of(pipeline, earlier), name_of(pipeline, number)
        aside: list[str] = []
        failure: StreamsException | None = None
        deadline = time.monotonic() + _FENCE_S
        while time.monotonic() < deadline:
            # A zombie may create its directory again right after it was renamed.
            if self._files.create_file(old):
                break
            there = self._places(pipeline)
            if earlier in there.fences:
                break
            if number in there.fences:
                self._raise_if_passed(pipeline, number)
            if earlier not in there.directories:
                continue
            try:
                if number in there.directories:
                    aside.append(f"{old}.aside-{uuid.uuid4().hex[:12]}")
                    self._files.rename(old, aside[-1])
                else:
                    self._files.rename(old, new)
            except StreamsException as error:
                # The entry changed between the check and the rename; check again.
                failure = error
                pause(_PAUSE_S)
        else:
            raise StreamsException(
                f"'{self._root}/{old}' could not be fenced in {_FENCE_S:g} s ({failure or 'it comes back'}); "
                "stop the client that still writes there, or check this client's permissions"
            ) from failure
        if aside:
            log.warning(
                "'%s/%s' was created again by a client that had lost it (%d times); its files were moved to "
                "'%s'",
                self._root,
                old,
                len(aside),
                aside[-1],
            )

    def _raise_if_passed(self, pipeline: str, number: int) -> None:
        there = self._places(pipeline)
        if there.head > number or number in there.fences:
            raise self._passed(pipeline, there)

    def _passed(self, pipeline: str, there: ClaimPaths) -> TaskMigratedException:
        later = self._newest_owner(pipeline, there.head, there)
        by = f" by {later.holder} (epoch {later.epoch})" if later is not None else ""
        return TaskMigratedException(
            f"the checkpoint of pipeline '{pipeline}' at '{self._root}' was claimed at the same time"
            f"{by}; this client yields to that one"
        )

    def _newest_owner(self, pipeline: str, number: int, there: ClaimPaths) -> ClaimOwner | None:
        for each in sorted(there.owners, reverse=True):
            if each <= number:
                owner = ClaimOwner.parse(self._files.read(owner_of(pipeline, each)))
                if owner is not None:
                    return owner
        return None

    def _places(self, pipeline: str) -> ClaimPaths:
        return places(pipeline, self._files.list())

    def _delete(self, name: str) -> None:
        self._quietly(self._files.delete, name)

    def _quietly(self, delete: Callable[[str], None], name: str) -> None:
        try:
            delete(name)
        except StreamsException as error:
            # The claim is valid without this, and the next one tries again.
            log.warning("'%s/%s' is no longer needed and could not be deleted: %s", self._root, name, error)


# --- local files -------------------------------------------------------------------------------------------


class LocalCheckpointFiles:
    """`ports.CheckpointFiles` below a local or mounted directory.

    Created and written files survive a power failure: they are synced with their directory, and so are the
    renames before them. `rename` itself does not wait for the disk, because a zombie would not either.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def list(self, path: str = "") -> Mapping[str, bool]:
        """The names in a directory, and whether each is a directory itself; empty if it does not exist."""
        with self._told("listed", path):
            try:
                with os.scandir(self._root / path) as entries:
                    return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except (FileNotFoundError, NotADirectoryError):
                return {}

    def exists(self, path: str) -> bool:
        """Whether there is a file or directory of that name."""
        with self._told("looked at", path):
            return os.path.lexists(self._root / path)

    def make_directories(self, path: str) -> None:
        """Create a directory with its parents."""
        with self._told("made", path):
            os.makedirs(self._root / path, exist_ok=True)

    def rename(self, old: str, new: str) -> bool:
        """Rename a file or a directory. False: `old` does not exist.

        Raises:
            StreamsException: `new` exists, or `old` has changed between file and directory.
        """
        source, target = self._root / old, self._root / new
        with self._told("renamed", old):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, f"'{target}' already exists")
            os.makedirs(target.parent, exist_ok=True)
            # With the slash the system refuses if the directory has become a file, so a fence is never moved.
            slash = "/" if source.is_dir() else ""
            try:
                os.rename(f"{source}{slash}", target)
            except FileNotFoundError:
                return False
            return True

    def create_file(self, path: str) -> bool:
        """Create an empty file. False: something of that name already exists."""
        file = self._root / path
        with self._told("made", path):
            os.makedirs(file.parent, exist_ok=True)
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                return False
            sync_directory(file.parent)
            return True

    def delete(self, path: str) -> None:
        """Delete a path with everything in it. Does nothing if it does not exist."""
        file = self._root / path
        with self._told("deleted", path):
            try:
                if file.is_dir() and not file.is_symlink():
                    shutil.rmtree(file)
                else:
                    file.unlink(missing_ok=True)
            except FileNotFoundError:
                return

    def read(self, path: str) -> bytes | None:
        """A file's content, or None if there is no such file."""
        with self._told("read", path):
            try:
                return (self._root / path).read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def write(self, path: str, content: bytes) -> None:
        """Replace a file's content as a whole."""
        file = self._root / path
        with self._told("written", path):
            os.makedirs(file.parent, exist_ok=True)
            write_whole(file, content)

    @contextlib.contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StreamsException(
                f"'{self._root / path}' could not be {what}: {error}; check the free space and the "
                f"permissions at checkpoint.location"
            ) from error


# --- identity ----------------------------------------------------------------------------------------------


def checkpoint_identity(root: str) -> str:
    """Identifies a location of checkpoints; clients that share the location get the same value.

    For a path, the identity is stored in the location itself, so the same path on two machines is two
    locations unless both have mounted the same directory. For any other URI it is derived from the URI's
    text.

    Raises:
        StreamsException: the location cannot be read or written.
    """
    parsed = urlparse(root)
    if parsed.scheme not in ("", "file"):
        return hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:32]
    directory = Path(unquote(parsed.path) if parsed.scheme else root)
    file = directory / _IDENTITY
    try:
        os.makedirs(directory, exist_ok=True)
        if not file.exists():
            create_whole(file, uuid.uuid4().hex)  # others may create one, too
        return str(uuid.UUID(file.read_bytes().decode("ascii", "replace").strip()))
    except (OSError, ValueError) as error:
        raise StreamsException(
            f"'{file}', which identifies this checkpoint location, could not be read or created: {error}; "
            f"check the permissions there, or delete the file while no client runs"
        ) from error
