"""Claims of checkpoints: one owner at a time, whoever dies, dawdles or does not know that it has lost."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fake_ports import FakeCheckpointFiles, ManualClock
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until

from millstream.checkpoints.checkpoints import Checkpoints
from millstream.checkpoints.fencing import (
    CheckpointClaims,
    ClaimOwner,
    ClaimPaths,
    LocalCheckpointFiles,
    checkpoint_identity,
    kept_after_delete,
    places,
    stale,
)
from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.errors import StreamsException, TaskMigratedException, TopologyException
from millstream.ports import CheckpointClaim


def claims(root: Path) -> CheckpointClaims:
    return CheckpointClaims(LocalCheckpointFiles(root), str(root))


def commit(directory: Path, what: str) -> None:
    """As Spark does: make what is missing of the directory, and write into it."""
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    (directory / "offsets" / what).write_text(what)


def directories(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def committed(claim: CheckpointClaim) -> set[str]:
    return set(os.listdir(Path(claim.path) / "offsets"))


# --- names -------------------------------------------------------------------------------------------------


def test_what_is_a_pipelines_is_told_by_its_name() -> None:
    """Other pipelines' files, fingerprints and drafts are none of it."""
    names = {
        "p0": False,
        "p0.1": False,
        "p0.2": True,
        "p0.2.owner": False,
        "p0.1.owner": False,
        "p0.1.aside-0af": True,
        "p0.topology.json": False,
        "p0.01": True,
        "p0.x": True,
        "p00.9": True,
        "p1.7": True,
        ".p0.3.owner.aa.tmp": False,
        ".identity": False,
    }
    there = places("p0", names)
    assert there == ClaimPaths(
        "p0", frozenset({2}), frozenset({0, 1}), frozenset({1, 2}), ("p0.1.aside-0af",)
    )
    assert (there.head, there.live) == (2, "p0.2")
    assert (places("p2", names).head, places("p2", names).live) == (0, None)
    assert kept_after_delete(names) == {".identity", "p0.2.owner"}


def test_only_the_last_hundred_claims_are_remembered() -> None:
    """And nothing that was put aside."""
    numbers = frozenset(range(150))
    there = ClaimPaths("p0", frozenset(), numbers, numbers - {0}, ("p0.3.aside-1",))
    gone = stale(there, 150)
    assert gone[0] == "p0.3.aside-1"
    assert set(gone[1:]) == {
        "p0",
        *(f"p0.{n}" for n in range(1, 50)),
        *(f"p0.{n}.owner" for n in range(1, 50)),
    }


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"epoch": "x"}', b'{"epoch": 1}', b"\xff"])
def test_an_owner_that_cannot_be_read_is_none(content: bytes | None) -> None:
    """It is for messages, and one of its claims may have died while it was written."""
    assert ClaimOwner.parse(content) is None
    whole = ClaimOwner(3, "a", "now")
    assert ClaimOwner.parse(whole.to_bytes()) == whole


# --- one after the other -----------------------------------------------------------------------------------


def test_each_claim_takes_the_progress_over_and_shuts_the_earlier_ones_out(tmp_path: Path) -> None:
    """With a higher epoch; where the directories were there are files."""
    mine = claims(tmp_path)
    first = mine.claim("p0", 1, "a")
    assert (first.path, first.epoch) == (f"{tmp_path}/p0.1", 1)
    assert mine.is_held(first)
    commit(Path(first.path), "0")
    second = claims(tmp_path).claim("p0", 1, "b")
    assert (second.path, second.epoch) == (f"{tmp_path}/p0.2", 2)
    assert (mine.is_held(first), mine.is_held(second)) == (False, True)
    assert committed(second) == {"0"}
    assert directories(tmp_path) == ["p0.2"]
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        commit(Path(first.path), "1")
    assert (tmp_path / "p0").is_file()
    assert (tmp_path / "p0.1").read_bytes() == b""


def test_a_query_that_had_not_started_yet_is_shut_out_too(tmp_path: Path) -> None:
    """There was no directory to rename, and there cannot be one."""
    first = claims(tmp_path).claim("p0", 1, "a")
    second = claims(tmp_path).claim("p0", 2, "b")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        commit(Path(first.path), "0")
    commit(Path(second.path), "0")
    assert directories(tmp_path) == ["p0.2"]


def test_epochs_are_at_least_the_generation_and_never_go_back(tmp_path: Path) -> None:
    """A group that was deleted begins with generation 1 again."""
    epochs = [claims(tmp_path).claim("p0", each, "a").epoch for each in (5, 5, 9, 1, 1, 30)]
    assert epochs == [5, 6, 9, 10, 11, 30]


def test_pipelines_do_not_mind_each_other(tmp_path: Path) -> None:
    """Each has numbers of its own."""
    mine = claims(tmp_path)
    one, other = mine.claim("p1", 1, "a"), mine.claim("p11", 1, "a")
    again = mine.claim("p1", 1, "a")
    assert (mine.is_held(one), mine.is_held(other), mine.is_held(again)) == (False, True, True)


def test_a_checkpoint_of_before_claims_is_taken_over(tmp_path: Path) -> None:
    """It has no number."""
    commit(tmp_path / "p0", "7")
    claim = claims(tmp_path).claim("p0", 1, "a")
    assert claim.path == f"{tmp_path}/p0.1"
    assert committed(claim) == {"7"}
    assert (tmp_path / "p0").is_file()


def test_a_copy_without_its_owners_is_taken_over(tmp_path: Path) -> None:
    """As when a directory is brought back from a backup."""
    commit(tmp_path / "p0.250", "7")
    claim = claims(tmp_path).claim("p0", 1, "a")
    assert (claim.path, claim.epoch) == (f"{tmp_path}/p0.251", 251)
    assert committed(claim) == {"7"}


def test_what_a_zombie_makes_anew_is_put_aside_and_later_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is not the checkpoint, though it was written last; the next claim deletes it."""
    mine = claims(tmp_path)
    first = mine.claim("p0", 1, "a")
    commit(Path(first.path), "real")
    second = mine.claim("p0", 1, "b")
    (tmp_path / "p0.1").unlink()
    commit(Path(first.path), "zombie's")
    third = mine.claim("p0", 1, "c")
    assert committed(third) == {"real"}
    assert "its files were moved to" in caplog.text
    (aside,) = [name for name in directories(tmp_path) if "aside" in name]
    assert os.listdir(tmp_path / aside / "offsets") == ["zombie's"]
    assert not mine.is_held(second)
    fourth = mine.claim("p0", 1, "d")
    assert directories(tmp_path) == [Path(fourth.path).name]


def test_old_fences_go_after_a_hundred_claims(tmp_path: Path) -> None:
    """The folder does not grow for ever."""
    files = FakeCheckpointFiles()
    mine = CheckpointClaims(files, "hdfs://nn/app/")
    for _ in range(130):
        claim = mine.claim("p0", 1, "a")
    assert (claim.path, claim.epoch) == ("hdfs://nn/app/p0.130", 130)
    there = places("p0", files.list())
    assert (min(there.fences), len(there.fences), min(there.owners)) == (30, 100, 30)


def test_the_last_owner_is_known(tmp_path: Path) -> None:
    """Who, and when."""
    clock = ManualClock(epoch_ms=0)
    mine = CheckpointClaims(LocalCheckpointFiles(tmp_path), str(tmp_path), clock=clock)
    assert mine.owner("p0") is None
    mine.claim("p0", 4, "app-1")
    assert mine.owner("p0") == ClaimOwner(4, "app-1", "1970-01-01T00:00:00.000+00:00")


# --- dying in between --------------------------------------------------------------------------------------


class Died(BaseException):
    """The process was killed."""


class Dying(LocalCheckpointFiles):
    """Dies after some operations that change something."""

    def __init__(self, root: Path, operations: int) -> None:
        super().__init__(root)
        self.left = operations

    def _done(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Died

    def rename(self, old: str, new: str) -> bool:
        done = super().rename(old, new)
        self._done()
        return done

    def create_file(self, path: str) -> bool:
        done = super().create_file(path)
        self._done()
        return done

    def write(self, path: str, content: bytes) -> None:
        super().write(path, content)
        self._done()

    def delete(self, path: str) -> None:
        super().delete(path)
        self._done()


@pytest.mark.parametrize("zombie", [False, True])
@pytest.mark.parametrize("operations", range(1, 9))
def test_whoever_dies_in_a_claim_leaves_what_the_next_one_completes(
    tmp_path: Path, operations: int, zombie: bool
) -> None:
    """After each of its operations; with an earlier owner that goes on, too. Nothing is lost."""
    first = claims(tmp_path).claim("p0", 1, "a")
    commit(Path(first.path), "0")
    if zombie:
        second = claims(tmp_path).claim("p0", 1, "b")
        (tmp_path / "p0.1").unlink()
        commit(tmp_path / "p0.1", "zombie's")
        commit(Path(second.path), "1")
    else:
        commit(Path(first.path), "1")
    dying = CheckpointClaims(Dying(tmp_path, operations), str(tmp_path))
    died = False
    try:
        dying.claim("p0", 3, "c")
    except Died:
        died = True
    with_data = [path for path in tmp_path.iterdir() if (path / "offsets" / "0").exists()]
    assert len(with_data) == 1
    live = places("p0", LocalCheckpointFiles(tmp_path).list()).live
    assert with_data[0].name == live
    last = claims(tmp_path).claim("p0", 3, "d")
    assert committed(last) == {"0", "1"}
    assert [name for name in directories(tmp_path) if "aside" not in name] == [Path(last.path).name]
    assert claims(tmp_path).is_held(last)
    assert last.epoch > 3 or died


def test_a_claim_changes_no_more_than_it_has_to() -> None:
    """Its owner, and the one fence that is missing: on a remote file system each costs a question."""
    changes: list[str] = []

    class Noting(FakeCheckpointFiles):
        def create_file(self, path: str) -> bool:
            changes.append(path)
            return super().create_file(path)

    mine = CheckpointClaims(Noting(), "r")
    for _ in range(3):
        mine.claim("p0", 1, "a")
    assert changes == ["p0.1.owner", "p0", "p0.2.owner", "p0.1", "p0.3.owner", "p0.2"]


# --- at the same time --------------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    claimers=st.integers(2, 8),
    rounds=st.integers(1, 3),
    generations=st.lists(st.integers(1, 40), min_size=8, max_size=8),
    there=st.booleans(),
)
def test_of_many_at_the_same_time_each_gets_an_epoch_of_its_own_and_the_last_one_has_all(
    tmp_path_factory: pytest.TempPathFactory,
    claimers: int,
    rounds: int,
    generations: list[int],
    there: bool,
) -> None:
    """Each commits as long as it can; what was there before is never lost, and in one place."""
    root = tmp_path_factory.mktemp("claims")
    if there:
        commit(root / "p0", "start")
    ready = threading.Barrier(claimers)

    def work(number: int) -> list[CheckpointClaim]:
        got = []
        ready.wait(20)
        for each in range(rounds):
            try:
                claim = claims(root).claim("p0", generations[number], f"client {number}")
            except TaskMigratedException:
                continue
            got.append(claim)
            try:
                for batch in range(3):
                    commit(Path(claim.path), f"{number}-{each}-{batch}")
            except OSError:
                pass  # shut out
        return got

    with ThreadPoolExecutor(claimers) as pool:
        got = [claim for work_done in pool.map(work, range(claimers)) for claim in work_done]
    assert got
    epochs = Counter(claim.epoch for claim in got)
    assert set(epochs.values()) == {1}
    by_number = sorted(got, key=lambda claim: int(claim.path.rpartition(".")[2]))
    assert by_number == sorted(got, key=lambda claim: claim.epoch)
    held = [claim for claim in got if claims(root).is_held(claim)]
    assert len(held) <= 1
    last = claims(root).claim("p0", 1, "last")
    assert [name for name in directories(root) if "aside" not in name] in ([], [Path(last.path).name])
    if there:
        assert "start" in committed(last)


def test_a_zombie_that_does_not_stop_writing_is_shut_out(tmp_path: Path) -> None:
    """It makes its directory anew as quickly as it can, and still ends; the new owner has the progress."""
    first = claims(tmp_path).claim("p0", 1, "zombie")
    commit(Path(first.path), "real")
    ended = threading.Event()
    commits = 0

    def go_on() -> None:
        nonlocal commits
        try:
            while True:
                commit(Path(first.path), f"z{commits % 50}")
                commits += 1
        except (NotADirectoryError, FileExistsError):
            ended.set()
        except FileNotFoundError:
            go_on()  # renamed between making and writing: Spark makes it anew, too

    threading.Thread(target=go_on, name="zombie", daemon=True).start()
    wait_until(lambda: commits > 100, "the zombie writes")
    second = claims(tmp_path).claim("p0", 2, "new")
    assert ended.wait(10)
    assert "real" in committed(second)
    assert claims(tmp_path).is_held(second)


def test_a_claim_that_was_passed_says_by_whom(tmp_path: Path) -> None:
    """TaskMigratedException; the faster one keeps what it has."""
    commit(tmp_path / "p0", "start")
    faster: list[CheckpointClaim] = []

    class Slow(LocalCheckpointFiles):
        def write(self, path: str, content: bytes) -> None:
            super().write(path, content)
            faster.append(claims(tmp_path).claim("p0", 1, "faster"))

    slow = CheckpointClaims(Slow(tmp_path), str(tmp_path))
    with pytest.raises(TaskMigratedException, match=r"at the same time by faster \(epoch 2\)"):
        slow.claim("p0", 1, "slow")
    assert committed(faster[0]) == {"start"}
    assert claims(tmp_path).is_held(faster[0])


def test_a_slow_claimer_cannot_take_the_checkpoint_from_one_that_passed_it(tmp_path: Path) -> None:
    """It was about to rename it when the faster one did: it finds a file, and leaves it."""
    commit(tmp_path / "p0", "start")
    faster: list[CheckpointClaim] = []

    class Slow(LocalCheckpointFiles):
        def rename(self, old: str, new: str) -> bool:
            if not faster:
                faster.append(claims(tmp_path).claim("p0", 1, "faster"))
            return super().rename(old, new)

    with pytest.raises(TaskMigratedException):
        CheckpointClaims(Slow(tmp_path), str(tmp_path)).claim("p0", 1, "slow")
    assert committed(faster[0]) == {"start"}
    assert (tmp_path / "p0").is_file()


# --- files and identity ------------------------------------------------------------------------------------


def test_local_files_keep_the_ports_contract(tmp_path: Path) -> None:
    """What the claims rely on."""
    files = LocalCheckpointFiles(tmp_path / "root")
    assert files.list() == {}
    assert files.read("a") is None
    assert files.rename("a", "b") is False
    files.delete("a")
    assert files.create_file("a")
    assert not files.create_file("a")
    files.make_directories("d/e")
    assert not files.create_file("d")
    files.write("d/f", b"1")
    files.write("d/f", b"2")
    assert (files.read("d/f"), files.read("d")) == (b"2", None)
    assert files.list() == {"a": False, "d": True}
    assert files.list("d") == {"e": True, "f": False}
    assert (files.exists("d/e"), files.exists("x")) == (True, False)
    for target in ("a", "d/e"):
        with pytest.raises(StreamsException, match=r"already exists.*checkpoint\.location"):
            files.rename("d", target)
    assert files.rename("d", "g/h")
    files.delete("g")
    assert files.list() == {"a": False}
    with pytest.raises(StreamsException, match="could not be written"):
        files.write("a/b", b"")


def test_a_location_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    """The same for all that share it, also when many ask first; another for another one."""
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: checkpoint_identity(str(tmp_path / "a")), range(8)))
    assert len(found) == 1
    assert checkpoint_identity(f"file://{tmp_path}/a/") in found
    assert checkpoint_identity(str(tmp_path / "b")) not in found
    assert os.listdir(tmp_path / "a") == [".identity"]
    assert checkpoint_identity("hdfs://nn/a") == checkpoint_identity("hdfs://nn/a/")
    assert checkpoint_identity("hdfs://nn/a") != checkpoint_identity("hdfs://nn/b")
    (tmp_path / "a" / ".identity").write_text("nonsense")
    with pytest.raises(StreamsException, match="identifies this checkpoint location"):
        checkpoint_identity(str(tmp_path / "a"))


# --- with the fingerprints beside --------------------------------------------------------------------------


def checkpoints(tmp_path: Path) -> Checkpoints:
    config = {"application.id": "app", "bootstrap.servers": "h:1", "checkpoint.location": str(tmp_path)}
    return Checkpoints(StreamsConfig(config), tmp_path / "state")


def test_a_claimed_checkpoint_is_checked_like_any(tmp_path: Path) -> None:
    """Its fingerprint does not move; deleting leaves the last claim, so that epochs go on."""
    where = checkpoints(tmp_path)
    root = Path(where.root)

    def program(topic: str) -> Mapping[str, object]:
        builder = StreamsBuilder()
        builder.stream(topic).to("out")
        return {"pipelines": builder.build().pipelines}

    where.check(program("a")["pipelines"])  # type: ignore[arg-type]
    identity = checkpoint_identity(where.root)
    claims(root).claim("p0", 1, "a")
    claim = claims(root).claim("p0", 1, "a")
    where.check(program("b")["pipelines"])  # type: ignore[arg-type]  # nothing was processed yet
    commit(Path(claim.path), "0")
    with pytest.raises(TopologyException, match="reads: was 'b', now 'a'"):
        where.check(program("a")["pipelines"])  # type: ignore[arg-type]
    where.delete()
    assert sorted(os.listdir(root)) == [".identity", "p0.2.owner"]
    assert json.loads((root / "p0.2.owner").read_text())["epoch"] == 2
    assert checkpoint_identity(where.root) == identity
    where.check(program("a")["pipelines"])  # type: ignore[arg-type]
    again = claims(root).claim("p0", 1, "a")
    assert again.epoch == 3
    assert not Path(again.path).exists()
