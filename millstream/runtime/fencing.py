"""Ensures that only one client at a time runs a pipeline's checkpoint (design D5).

Spark does not ensure this: two drivers with one checkpoint can both continue. So a client that is to run a
pipeline first claims its checkpoint. The claim fences the client that ran it before, even one that does not
know it yet (a zombie). Below the root of the checkpoints a pipeline `p0` that was claimed seven times has

    p0, p0.1 … p0.6     fences: empty files where the directories of earlier claims were
    p0.7                the checkpoint's directory; Spark makes it if there was none to take over
    p0.7.owner          who made this claim, when, and its epoch; one for each of the last claims

`p0` without a number is where versions before claims kept it. A claim has three steps, and if a client dies
between two of them, the next claim completes what it left behind:

1. Take the next number, by creating its `.owner` file: that succeeds for one client only.
2. For each earlier number, from the newest down: put a file there. If a directory is in the way, it is the
   checkpoint, which is renamed to the new number. If that has already happened, it is one that a zombie's
   Spark has created again, which is put aside. A query whose directory is a file ends at its next commit.
3. Check whether another client has taken a higher number meanwhile; if so, this claim is void.

Why no progress is lost: the checkpoint is only ever renamed, always to a higher number, and only by the one
client that has that number. And fences are put from the newest number down, so a slower client cannot rename
the checkpoint to a number that a faster one has passed: a file is there. A directory is put aside only by a
client that has seen the checkpoint under its own, higher number.

This requires a file system whose renames and exclusive creations are atomic: local ones, NFS, HDFS. For
object stores there is object_fencing.py.
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

__all__ = [
    "KEPT_CLAIMS",
    "CheckpointClaims",
    "LocalCheckpointFiles",
    "Owner",
    "Places",
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
"""How many earlier claims keep their fence. A zombie that has slept through more is not held off any more."""
_TRIES = 100
_FENCE_S = 10.0
_PAUSE_S = 0.01
_IDENTITY = ".identity"


# --- names: pure -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Places:
    """What there is of a pipeline's checkpoint, by number; 0 is the name without one.

    Attributes:
        directories: the checkpoint, and what zombies may have made.
        fences: files where directories were.
        owners: claims that were made.
        aside: the names of what was put aside, sorted.
        decided: in an object store, claims that have come out one way or the other.
    """

    pipeline: str
    directories: frozenset[int] = frozenset()
    fences: frozenset[int] = frozenset()
    owners: frozenset[int] = frozenset()
    aside: tuple[str, ...] = ()
    decided: frozenset[int] = frozenset()

    @property
    def head(self) -> int:
        """The highest number there is."""
        return max(self.directories | self.fences | self.owners, default=0)

    @property
    def live(self) -> str | None:
        """The name of the checkpoint's directory; None: nothing was processed yet.

        Whatever a zombie made has a lower number than the checkpoint, which was renamed away from there.
        """
        return name_of(self.pipeline, max(self.directories)) if self.directories else None


def name_of(pipeline: str, number: int) -> str:
    """What the directory of a claim is called."""
    return f"{pipeline}.{number}" if number else pipeline


def places(pipeline: str, names: Mapping[str, bool]) -> Places:
    """What of `names` (each with whether it is a directory) is the pipeline's."""
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
    return Places(
        pipeline,
        frozenset(directories),
        frozenset(fences),
        frozenset(owners),
        tuple(sorted(aside)),
        frozenset(decided),
    )


def stale(there: Places, number: int) -> tuple[str, ...]:
    """What the claim with `number` may delete: what was put aside before, and what is older than the last
    hundred claims."""
    oldest = number - KEPT_CLAIMS
    return (
        *there.aside,
        *(name_of(there.pipeline, each) for each in sorted(there.fences) if each < oldest),
        *(owner_of(there.pipeline, each) for each in sorted(there.owners) if each < oldest),
    )


def kept_after_delete(names: Mapping[str, bool]) -> frozenset[str]:
    """What stays when all checkpoints are deleted: the location's identity, each pipeline's last claim."""
    last: dict[str, int] = {}
    for name in names:
        found = re.fullmatch(r"(.+)\.([1-9][0-9]*)\.owner", name)
        if found is not None:
            last[found[1]] = max(last.get(found[1], 0), int(found[2]))
    return frozenset({_IDENTITY, *(owner_of(pipeline, number) for pipeline, number in last.items())})


def owner_of(pipeline: str, number: int) -> str:
    """What says who made a claim."""
    return f"{pipeline}.{number}.owner"


def ready_of(pipeline: str, number: int) -> str:
    """What says how a claim came out, in an object store."""
    return f"{name_of(pipeline, number)}.ready"


@dataclass(frozen=True)
class Owner:
    """Who made a claim: for messages, and so that epochs grow.

    Attributes:
        at: when, in ISO 8601, by the owner's clock.
        secret: random; its knowledge proves to other clients that a claim is a client's own (group/trust.py).
    """

    epoch: int
    holder: str
    at: str
    secret: str = field(default="", compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """As it is kept."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def parse(cls, content: bytes | None) -> Owner | None:
        """What was kept; None: nothing yet, or nothing that can be read."""
        try:
            fields = json.loads(content or b"")
            return cls(
                int(fields["epoch"]), str(fields["holder"]), str(fields["at"]), str(fields.get("secret", ""))
            )
        except (ValueError, KeyError, TypeError):
            return None


# --- claiming ----------------------------------------------------------------------------------------------


class CheckpointClaims:
    """Claims of the checkpoints below one root, by this client and others. Any thread may use it.

    Args:
        files: the files below the root.
        root: the root itself, a path or a URI, as Spark takes it.
    """

    def __init__(self, files: CheckpointFiles, root: str, *, clock: Clock | None = None) -> None:
        self._files = files
        self._root = root.rstrip("/")
        self._clock = clock or SystemClock()

    def claim(self, pipeline: str, generation: int, holder: str) -> CheckpointClaim:
        """Take the pipeline's checkpoint over from whoever has it.

        Its epoch is at least `generation`, and higher than those of all claims before. When it returns, no
        earlier claim's query can commit any more.

        Args:
            generation: the group's; or what else the epoch must not be below.
            holder: who claims, for messages: the client's id.

        Raises:
            TaskMigratedException: somebody else claimed it at the same time, and is later.
            StreamsException: the files cannot be reached or changed.
        """
        number = self._take_number(pipeline)
        before = self._places(pipeline)
        previous = self._newest_owner(pipeline, number - 1, before)
        owner = self._next_owner(number, generation, holder, previous)
        self._files.write(owner_of(pipeline, number), owner.to_bytes())
        self._raise_if_passed(pipeline, number)  # also below; here it saves what would be for nothing
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
        """Whether nobody has claimed it since.

        Raises:
            StreamsException: the files cannot be reached.
        """
        number = int(claim.path.rpartition("/")[2].removeprefix(claim.pipeline).removeprefix(".") or 0)
        there = self._places(claim.pipeline)
        return there.head <= number and number not in there.fences

    def owner(self, pipeline: str) -> Owner | None:
        """Who made the last claim that is known of; None: nobody."""
        there = self._places(pipeline)
        return self._newest_owner(pipeline, there.head, there)

    def _take_number(self, pipeline: str) -> int:
        for _ in range(_TRIES):
            number = self._places(pipeline).head + 1
            if self._files.create_file(owner_of(pipeline, number)):
                if self._places(pipeline).head - number < KEPT_CLAIMS:
                    return number
                # Others have gone so far ahead since the names were listed that this number was forgotten.
                self._files.delete(owner_of(pipeline, number))
        raise self._crowded(pipeline, _TRIES)

    def _crowded(self, pipeline: str, tries: int) -> StreamsException:
        return StreamsException(
            f"the checkpoint of pipeline '{pipeline}' at '{self._root}' could not be claimed in {tries} "
            f"tries: others keep claiming it; check that the clients of the application form one group"
        )

    def _next_owner(self, number: int, generation: int, holder: str, previous: Owner | None) -> Owner:
        epoch = max(generation, number, previous.epoch + 1 if previous is not None else 0)
        at = datetime.fromtimestamp(self._clock.epoch_ms() / 1000, UTC).isoformat(timespec="milliseconds")
        return Owner(epoch, holder, at, secrets.token_hex(16))

    def _tell(self, holder: str, pipeline: str, epoch: int, previous: Owner | None) -> None:
        log.info(
            "%s has claimed the checkpoint of pipeline %s, epoch %d%s",
            holder,
            pipeline,
            epoch,
            f"; before: {previous.holder}, epoch {previous.epoch}, {previous.at}" if previous else "",
        )

    def _fence(self, pipeline: str, earlier: int, number: int) -> None:
        """Put a file where an earlier claim's directory is, or would be made by a zombie."""
        old, new = name_of(pipeline, earlier), name_of(pipeline, number)
        aside: list[str] = []
        failure: StreamsException | None = None
        deadline = time.monotonic() + _FENCE_S
        while time.monotonic() < deadline:
            # A zombie may make its directory anew between a renaming and this: nothing stands between them.
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
                # What is there has changed between the look and the renaming; look again.
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

    def _passed(self, pipeline: str, there: Places) -> TaskMigratedException:
        later = self._newest_owner(pipeline, there.head, there)
        by = f" by {later.holder} (epoch {later.epoch})" if later is not None else ""
        return TaskMigratedException(
            f"the checkpoint of pipeline '{pipeline}' at '{self._root}' was claimed at the same time"
            f"{by}; this client yields to that one"
        )

    def _newest_owner(self, pipeline: str, number: int, there: Places) -> Owner | None:
        for each in sorted(there.owners, reverse=True):
            if each <= number:
                owner = Owner.parse(self._files.read(owner_of(pipeline, each)))
                if owner is not None:
                    return owner
        return None

    def _places(self, pipeline: str) -> Places:
        return places(pipeline, self._files.list())

    def _delete(self, name: str) -> None:
        self._quietly(self._files.delete, name)

    def _quietly(self, delete: Callable[[str], None], name: str) -> None:
        try:
            delete(name)
        except StreamsException as error:
            # The claim is good without it, and the next one tries again.
            log.warning("'%s/%s' is no longer needed and could not be deleted: %s", self._root, name, error)


# --- local files -------------------------------------------------------------------------------------------


class LocalCheckpointFiles:
    """`ports.CheckpointFiles` below a directory of this machine, or one that it has mounted.

    What was created or written outlasts a power failure: it is synced, with the directory it is in. So are
    the renamings before it; `rename` itself does not wait for the disk, because a zombie would not either.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)

    def list(self, path: str = "") -> Mapping[str, bool]:
        """The names in a directory, and whether each is a directory itself; empty if there is none."""
        with self._told("listed", path):
            try:
                with os.scandir(self._root / path) as entries:
                    return {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except (FileNotFoundError, NotADirectoryError):
                return {}

    def exists(self, path: str) -> bool:
        """Whether there is a file or a directory."""
        with self._told("looked at", path):
            return os.path.lexists(self._root / path)

    def make_directories(self, path: str) -> None:
        """With all that it is in."""
        with self._told("made", path):
            (self._root / path).mkdir(parents=True, exist_ok=True)

    def rename(self, old: str, new: str) -> bool:
        """Rename a file or a directory. False: `old` is not there.

        Raises:
            StreamsException: `new` is there, or `old` has become something else meanwhile.
        """
        source, target = self._root / old, self._root / new
        with self._told("renamed", old):
            if os.path.lexists(target):
                raise FileExistsError(errno.EEXIST, f"'{target}' already exists")
            target.parent.mkdir(parents=True, exist_ok=True)
            # With the slash the system refuses if the directory has become a file: a fence is never moved.
            slash = "/" if source.is_dir() else ""
            try:
                os.rename(f"{source}{slash}", target)
            except FileNotFoundError:
                return False
            return True

    def create_file(self, path: str) -> bool:
        """Make an empty file. False: something of that name already exists."""
        file = self._root / path
        with self._told("made", path):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                return False
            _sync(file.parent)
            return True

    def delete(self, path: str) -> None:
        """With all that is in it. Nothing there: nothing happens."""
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
        """A file's content; None: there is no such file."""
        with self._told("read", path):
            try:
                return (self._root / path).read_bytes()
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                return None

    def write(self, path: str, content: bytes) -> None:
        """A file's new content, as a whole."""
        file = self._root / path
        with self._told("written", path):
            file.parent.mkdir(parents=True, exist_ok=True)
            draft = _draft(file, content)
            try:
                os.replace(draft, file)
            except OSError:
                draft.unlink(missing_ok=True)
                raise
            _sync(file.parent)

    @contextlib.contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StreamsException(
                f"'{self._root / path}' could not be {what}: {error}; check the free space and the "
                f"permissions at checkpoint.location"
            ) from error


def _draft(file: Path, content: bytes) -> Path:
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.tmp")
    with draft.open("xb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    return draft


def _sync(directory: Path) -> None:
    if os.name == "nt":
        return  # directories cannot be opened there
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- identity ----------------------------------------------------------------------------------------------


def checkpoint_identity(root: str) -> str:
    """What tells one location of checkpoints from another; clients that share one get the same.

    For a path it is kept in the location itself, so that the same path on two machines is two locations
    unless it is mounted on both. For another URI it is made of its text.

    Raises:
        StreamsException: the location cannot be read or written.
    """
    parsed = urlparse(root)
    if parsed.scheme not in ("", "file"):
        return hashlib.sha256(root.rstrip("/").encode()).hexdigest()[:32]
    directory = Path(unquote(parsed.path) if parsed.scheme else root)
    file = directory / _IDENTITY
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            draft = _draft(file, uuid.uuid4().hex.encode())
            try:
                os.link(draft, file)  # with its content, and only if there is none: others make one, too
                _sync(directory)
            except FileExistsError:
                pass
            finally:
                draft.unlink()
        return str(uuid.UUID(file.read_text(encoding="ascii").strip()))
    except (OSError, ValueError) as error:
        raise StreamsException(
            f"'{file}', which identifies this checkpoint location, could not be read or created: {error}; "
            f"check the permissions there, or delete the file while no client runs"
        ) from error
