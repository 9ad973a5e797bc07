"""Claims of checkpoints in an object store: no batch has two writers and none is lost, whoever dies."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from fake_ports import FakeCheckpointFiles, FakeObjectFiles
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoints.object_fencing import ObjectClaims, claims_of, live_of
from millstream.errors import TaskMigratedException
from millstream.ports import FENCE, CheckpointClaim

ROOT = "s3a://bucket/app"


def claim(files: FakeObjectFiles, holder: str = "a") -> CheckpointClaim:
    return claims_of(files, ROOT).claim("p0", 1, holder)


class Query:
    """What Spark does with a checkpoint: a batch is planned, worked at, and committed; each file is created.

    Args:
        begun: what each batch that was begun is, by its number, from all queries.
    """

    def __init__(self, files: FakeObjectFiles, claimed: CheckpointClaim, begun: dict[int, set[str]]) -> None:
        self._files = files
        self._at = claimed.path.rpartition("/")[2]
        self._begun = begun
        done, planned = self._numbers("commits"), self._numbers("offsets")
        self.next = max(done, default=-1) + 1
        self._is_planned = self.next in planned
        # Spark reads the last one first, whatever is committed.
        last = f"{self._at}/offsets/{max(planned, default=0)}"
        self._is_shut_out = files.read(last) == FENCE

    def _numbers(self, log: str) -> list[int]:
        return [int(name) for name in self._files.list(f"{self._at}/{log}")]

    def begin(self, what: str) -> bool:
        """Plan the next batch, or go on with the one that was planned; False: it is shut out."""
        if self._is_shut_out:
            return False
        offsets = f"{self._at}/offsets/{self.next}"
        if not self._is_planned and not self._files.create(offsets, what.encode()):
            return False
        self._is_planned = True
        found = self._files.read(offsets)
        if found is None or found == FENCE:
            return False
        self._begun[self.next].add(found.decode())
        self._files.write(f"{self._at}/state/0/{self.next}.changelog", found)
        return True

    def commit(self) -> bool:
        if not self._files.create(f"{self._at}/commits/{self.next}", f"done by {self._at}".encode()):
            return False
        self.next, self._is_planned = self.next + 1, False
        return True

    def batch(self, what: str) -> bool:
        return self.begin(what) and self.commit()


def test_a_restart_goes_on_where_it_was() -> None:
    """Everything is in the new directory; of the old one its fences are left."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    first = claim(files)
    assert live_of("p0", files) is None, "nothing was processed"
    assert Query(files, first, begun).batch("one")
    assert live_of("p0", files) == "p0.1"
    second = claim(files)
    assert (second.path, second.epoch) == (f"{ROOT}/p0.2", 2)
    assert live_of("p0", files) == "p0.2"
    assert set(files.list("p0.1")) == {"offsets"}
    assert files.list("p0.1/offsets") == {"1": False}
    assert files.read("p0.1/offsets/1") == FENCE
    assert files.read("p0.2/state/0/0.changelog") == b"one"
    assert Query(files, second, begun).next == 1
    assert claims_of(files, ROOT).is_held(second)
    assert not claims_of(files, ROOT).is_held(first)


@pytest.mark.parametrize("planned", [False, True])
def test_a_client_that_wakes_up_can_neither_commit_nor_go_on(planned: bool) -> None:
    """Between two batches, or within one: what it had begun is the new owner's, with the same offsets."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    zombie = Query(files, claim(files, "zombie"), begun)
    assert zombie.batch("zero")
    if planned:
        assert zombie.begin("one")
    fresh = Query(files, claim(files, "new"), begun)
    assert not (zombie.commit() if planned else zombie.begin("another one"))
    assert fresh.batch("the new one's")
    assert not zombie.begin("later"), "nor does it try again"
    assert begun[1] == ({"one"} if planned else {"the new one's"})


def test_a_client_that_was_about_to_write_the_log_itself_replaces_no_fence() -> None:
    """As it does before its query starts, where a reset has told it where to begin."""
    files = FakeObjectFiles()
    claim(files, "zombie")
    claim(files, "new")
    for change in (
        lambda: files.write("p0.1/offsets/0", b"begins here"),
        lambda: files.delete("p0.1/offsets/0"),
    ):
        with pytest.raises(TaskMigratedException):
            change()
    assert files.read("p0.1/offsets/0") == FENCE


class Died(Exception):
    """In the middle of a claim."""


class Dying(FakeObjectFiles):
    """Fails for good after some changes, one of which may be half of a copy."""

    def __init__(self, files: FakeObjectFiles, left: int) -> None:
        self._lock, self._objects, self._left = files._lock, files._objects, left

    def _change(self) -> None:
        if self._left == 0:
            raise Died
        self._left -= 1

    def create(self, path: str, content: bytes) -> bool:
        self._change()
        return super().create(path, content)

    def write(self, path: str, content: bytes) -> None:
        self._change()
        super().write(path, content)

    def remove(self, path: str) -> None:
        self._change()
        super().remove(path)


@pytest.mark.parametrize("planned", [False, True])
def test_whoever_dies_in_a_claim_leaves_what_the_next_one_goes_on_from(planned: bool) -> None:
    """After each of its changes. The owner before goes on as long as it can; no batch is begun twice."""
    for left in range(40):
        files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
        zombie = Query(files, claim(files, "zombie"), begun)
        assert zombie.batch("0")
        assert zombie.batch("1")
        if planned:
            assert zombie.begin("2")
        died = False
        try:
            claim(Dying(files, left), "dies")
        except Died:
            died = True
        number = 2
        while zombie.commit() if planned and number == 2 else zombie.batch(f"the zombie's {number}"):
            number += 1
            assert left < 5 or number < 4, "it is shut out"
            if number == 4:
                break
        claimed = claim(files, "last")
        assert Query(files, claimed, begun).batch("the last one's")
        assert [each for each, what in begun.items() if len(what) > 1] == []
        kept = files.list(f"{claimed.path.removeprefix(f'{ROOT}/')}/state/0")
        assert sorted(kept) == [f"{each}.changelog" for each in sorted(begun)]
        assert not zombie.batch("after all")
        if not died:
            return
    raise AssertionError("a claim takes less than 40 changes")


def test_a_slow_claimer_leaves_it_to_a_faster_one() -> None:
    """It was copying when the faster one claimed, and so loses; what it has copied is no checkpoint."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    assert Query(files, claim(files), begun).batch("one")
    faster: list[CheckpointClaim] = []

    class Slow(Dying):
        def copy(self, old: str, new: str) -> None:
            super().copy(old, new)
            faster.append(claim(files, "faster"))
            assert Query(files, faster[0], begun).batch("two")

    with pytest.raises(TaskMigratedException, match=r"at the same time by faster \(epoch 3\)"):
        claim(Slow(files, 1000), "slow")
    assert live_of("p0", files) == "p0.3"
    last = Query(files, claim(files), begun)
    assert (last.next, begun[1]) == (2, {"two"})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), clients=st.integers(2, 6))
def test_of_many_at_the_same_time_no_two_write_one_batch_and_nothing_is_lost(seed: int, clients: int) -> None:
    """Each claims, and goes on until it is shut out, at the same time as all others."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    start = threading.Barrier(clients)

    def work(number: int) -> None:
        chance = random.Random(seed + number)
        start.wait(20)
        for each in range(3):
            try:
                query = Query(files, claim(files, f"client {number}"), begun)
            except TaskMigratedException:
                continue
            for batch in range(chance.randint(1, 6)):
                if not query.batch(f"{number}-{each}-{batch}"):
                    break

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(work, range(clients)))
    last = Query(files, claim(files, "last"), begun)
    if last.next in begun:
        assert last.batch("unused")
    assert [what for what in begun.values() if len(what) > 1] == []
    assert sorted(begun) == list(range(last.next))
    there = live_of("p0", files)
    for number, what in begun.items():
        assert files.read(f"{there}/offsets/{number}") == files.read(f"{there}/state/0/{number}.changelog")
        assert {(files.read(f"{there}/offsets/{number}") or b"").decode()} == what


def test_only_the_last_hundred_claims_are_remembered() -> None:
    """Their fences, too."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    assert Query(files, claim(files), begun).batch("x")
    for number in range(2, 105):
        files.create(f"p0.{number}.owner", b"")
        files.create(f"p0.{number}.ready", b"lost\n")
        files.create(f"p0.{number}/state/half", b"a copy")
    assert Query(files, claim(files), begun).next == 1
    assert files.list("p0.50") == {}
    assert not files.exists("p0.1")
    numbers = {int(name.split(".")[1]) for name in files.list()}
    assert numbers == set(range(5, 106))


def test_what_an_older_version_kept_is_taken_over() -> None:
    """It has directories, and nothing that says how their claims came out."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    for name, content in (("offsets/0", b"old"), ("commits/0", b"old"), ("state/0/0.changelog", b"old")):
        files.write(f"p0.3/{name}", content)
    files.write("p0.3.owner", b"")
    assert Query(files, claim(files), begun).next == 1
    assert live_of("p0", files) == "p0.4"


def test_a_deleted_checkpoint_is_none_and_still_shuts_out() -> None:
    """As a reset deletes it: whoever wakes up after that does not bring it back."""
    files, begun = FakeObjectFiles(), defaultdict[int, set[str]](set)
    zombie = Query(files, claim(files), begun)
    assert zombie.batch("one")
    claim(files, "reset")
    files.delete("p0.1")
    files.delete("p0.2")
    assert live_of("p0", files) is None
    assert not zombie.begin("two")
    assert Query(files, claim(files), begun).next == 0
    assert live_of("p0", files) is None


def test_the_claims_are_chosen_by_what_the_files_can_do() -> None:
    """Those of a file system are renamed."""
    kinds: list[tuple[Callable[[], object], bool]] = [(FakeObjectFiles, True), (FakeCheckpointFiles, False)]
    for made, by_objects in kinds:
        assert isinstance(claims_of(made(), ROOT), ObjectClaims) is by_objects  # type: ignore[arg-type]
