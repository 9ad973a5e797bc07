"""A checkpoint's offsets: read as Spark wrote them, and moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fake_ports import FakeCheckpointFiles, FakeLog, FakeObjectFiles, FakeTopics

from millstream.checkpoints.checkpoints import Checkpoints
from millstream.checkpoints.identity import Policies
from millstream.checkpoints.object_fencing import ObjectClaims
from millstream.checkpoints.offset_log import (
    OffsetLog,
    aligned,
    forget_unfinished,
    log_of,
    moved,
    positions_of,
    save,
    unfinished,
)
from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.errors import CheckpointException, StreamsException
from millstream.model import TopicPartition
from millstream.ports import FENCE, CheckpointClaim, CompiledPipeline
from millstream.runtime.topics.reconcile import Reconciler
from millstream.topology.pipeline import Scan

HEAD = ("v1", '{"batchWatermarkMs":0,"conf":{}}')
A, B = {"a": {"0": 5, "1": 7}}, {"b": {"0": 3}}


def log(*lines: dict[str, dict[str, int]] | None) -> OffsetLog:
    return OffsetLog(4, HEAD, lines)


def test_what_spark_wrote_is_read_and_written_the_same() -> None:
    """Byte for byte; a source that has nothing yet is a dash."""
    content = b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"a":{"0":5,"1":7}}\n-'
    read = OffsetLog.parse(4, content)
    assert read == log(A, None)
    assert read.to_bytes() == content
    assert read.positions == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}
    for other in (b"", b"v2\n{}\n{}", b"v1\n{}", b"v1\n{}\n[1]", b'v1\n{}\n{"logOffset":3}'):
        with pytest.raises(ValueError, match=r"begins with|has a line"):
            OffsetLog.parse(0, other)


def test_a_topic_is_read_from_elsewhere_and_the_others_are_not() -> None:
    """With the partitions that it has now; one that is gone is left out."""
    both = log({**A, **B}, B)
    assert moved(both, {"a": {0: 0}}) == log({**B, "a": {"0": 0}}, B)
    assert moved(both, {"b": None}) == log(A, {})
    assert moved(both, {}) == both


COUNT, BESIDE = Scan("a", ("n",)), Scan("a")
OLD, NEW = {"a": {"0": 5}}, {"a": {"0": 6}}
ALIGNED = {
    "nothing has changed": ([COUNT], [COUNT], [OLD], [OLD]),
    "an output beside comes": ([COUNT], [BESIDE, COUNT], [OLD], [OLD, OLD]),
    "it goes, and the count stays where it is": ([BESIDE, COUNT], [COUNT], [NEW, OLD], [OLD]),
    "they change their places": ([BESIDE, COUNT], [COUNT, BESIDE], [NEW, OLD], [OLD, NEW]),
    "a count comes, which has no place": ([BESIDE], [COUNT], [OLD], None),
    "another input comes": ([COUNT], [COUNT, Scan("b")], [OLD], None),
    "nobody noted, and it is as many": (None, [COUNT], [OLD], [OLD]),
    "nobody noted, and all are at one place": (None, [COUNT], [OLD, OLD], [OLD]),
    "nobody noted, and which is which": (None, [COUNT], [OLD, NEW], None),
    "it was moved, and not noted": ([COUNT], [BESIDE, COUNT], [OLD, NEW], [OLD, NEW]),
    "the notes are of another query": ([COUNT, BESIDE], [COUNT, BESIDE, BESIDE], [OLD], [OLD, OLD, OLD]),
    "and which is which": ([COUNT], [COUNT], [OLD, NEW], None),
}


@pytest.mark.parametrize("case", ALIGNED)
def test_sources_come_and_go_and_what_keeps_state_stays_where_it_is(case: str) -> None:
    """Or it is not known where it is, and nothing is guessed."""
    before, now, lines, expected = ALIGNED[case]
    assert aligned(log(*lines), before, now) == (None if expected is None else log(*expected))


def test_the_newest_batch_that_is_done_says_how_far_a_checkpoint_is() -> None:
    """One that was interrupted is run again, and so has read nothing."""
    files = FakeCheckpointFiles()
    assert positions_of(files, "p0") is None
    files.make_directories("p0.3")
    assert positions_of(files, "p0") is None, "claimed, and nothing was ever planned"
    files.write("p0.3/offsets/0", log(A).to_bytes())
    assert positions_of(files, "p0") == {}
    files.write("p0.3/commits/0", b"v1\n{}")
    files.write("p0.3/offsets/1", log(B).to_bytes())
    assert positions_of(files, "p0") == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}
    half = unfinished(files, "p0.3")
    assert half is not None
    assert half.lines == (B,)
    forget_unfinished(files, "p0.3")
    assert unfinished(files, "p0.3") is None
    assert log_of(files, "p0.3") == OffsetLog(0, HEAD, (A,))


def test_a_first_batch_that_lasts_for_minutes_is_a_checkpoint_that_has_finished_nothing() -> None:
    """In Real-Time Mode records are written long before the log of offsets is: who joins meanwhile, or starts
    again after a crash, does not take the checkpoint for lost. Where a reset has only said where to begin, no
    query has run."""
    files = FakeCheckpointFiles()
    files.write("p0.3/sources/0/0", b"v1\n{}")
    assert positions_of(files, "p0") is None
    files.write("p0.3/metadata", b"{}")
    assert positions_of(files, "p0") == {}
    files.write("p0.3/commits/0", b"v1\n{}")
    assert positions_of(files, "p0") is None, "a log that is gone is lost"


BEGUN = ("metadata", "sources/0/0")
FIRST_BATCH: dict[str, tuple[tuple[str, ...], bool]] = {
    "claimed only": (("offsets", "commits"), False),
    "a query that has not looked where to begin": (("metadata",), False),
    "and is about to write it": (("metadata", "sources/0/.0.tmp"), False),
    "a query that has begun": (BEGUN, True),
    "with several sources, all of which begin before the batch": ((*BEGUN, "sources/1/0"), True),
    "whose state is written before the log": ((*BEGUN, "state/0/0/1.zip"), True),
    "which is about to log the batch": ((*BEGUN, "offsets/.0.tmp"), True),
    "which has logged the batch, and not committed it": ((*BEGUN, "offsets/0"), True),
    "which is about to commit it": ((*BEGUN, "offsets/0", "commits/.0.tmp"), True),
    "a batch that is logged, of a query of an earlier version": (("offsets/0",), True),
    "where a reset says to begin": (("sources/0/0",), False),
    "a commit without a log": ((*BEGUN, "commits/0"), False),
}


@pytest.mark.parametrize("case", FIRST_BATCH)
def test_whoever_looks_during_the_first_batch_sees_whether_a_query_has_begun(case: str) -> None:
    """At each step of it: the checkpoint has finished nothing, or nothing has begun. A client that joins then
    takes neither for a checkpoint that is lost; what was logged and not committed is not read yet."""
    paths, begun = FIRST_BATCH[case]
    files = FakeCheckpointFiles()
    for path in paths:
        if path in ("offsets", "commits"):
            files.make_directories(f"p0.3/{path}")
        else:
            files.write(f"p0.3/{path}", log(A).to_bytes() if path == "offsets/0" else b"v1\n{}")
    assert positions_of(files, "p0") == ({} if begun else None)
    assert log_of(files, "p0.3") is None
    half = unfinished(files, "p0.3")
    assert (half is not None) is ("offsets/0" in paths)
    if "commits/0" in paths:
        return
    # As if it had never run, where its input is another now.
    forget_unfinished(files, "p0.3")
    assert positions_of(files, "p0") is None
    # And then it begins as any other.
    for path in BEGUN:
        files.write(f"p0.3/{path}", b"v1\n{}")
    assert positions_of(files, "p0") == {}
    files.write("p0.3/offsets/0", log(A).to_bytes())
    files.write("p0.3/commits/0", b"v1\n{}")
    assert positions_of(files, "p0") == {TopicPartition("a", 0): 5, TopicPartition("a", 1): 7}


def test_a_first_batch_that_is_claimed_by_another_client_stays_one() -> None:
    """In an object store a claim fences the log before it copies: the fences are no batch, and not copied."""
    for logged in (False, True):
        files = FakeObjectFiles()
        claims = ObjectClaims(files, "s3a://bucket/app")
        claims.claim("p0", 1, "first")
        for path in BEGUN:
            files.write(f"p0.1/{path}", b"v1\n{}")
        if logged:
            files.write("p0.1/offsets/0", log(A).to_bytes())
        assert positions_of(files, "p0") == {}
        # A claim that is on its way, or whose client has died.
        files.create(f"p0.1/offsets/{int(logged)}", FENCE)
        if logged:
            files.create("p0.1/commits/0", FENCE)
        assert positions_of(files, "p0") == {}
        claims.claim("p0", 2, "second")
        assert positions_of(files, "p0") == {}
        assert (unfinished(files, "p0.2") is not None) is logged


def test_what_is_moved_is_moved_in_both_files_that_spark_reads() -> None:
    """The last two have to have as many sources as the query; Hadoop's checksums would be others'."""
    files = FakeCheckpointFiles()
    for batch in range(3):
        files.write(f"p0.3/offsets/{batch}", log(A).to_bytes())
        files.write(f"p0.3/offsets/.{batch}.crc", b"crc")
    save(files, "p0.3", OffsetLog(2, HEAD, (A, A)))
    assert files.list("p0.3/offsets").keys() == {"0", "1", "2", ".0.crc"}
    for batch, lines in ((0, 1), (1, 2), (2, 2)):
        assert len(OffsetLog.parse(batch, files.read(f"p0.3/offsets/{batch}") or b"").lines) == lines


def test_where_nothing_is_done_yet_it_begins_as_if_it_had_never_run() -> None:
    """Spark takes no state without a batch that made it."""
    files = FakeCheckpointFiles()
    for path in ("metadata", "offsets/0", "sources/0/0", "state/0/0/1.zip"):
        files.write(f"p0/{path}", b"")
    forget_unfinished(files, "p0")
    assert set(files.list("p0")) == {"metadata", "offsets"}
    assert files.list("p0/offsets") == {}


class Crashing(FakeCheckpointFiles):
    """Whoever changes something with these files is gone after so many changes; None: never."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None

    def write(self, path: str, content: bytes) -> None:
        self._count()
        super().write(path, content)

    def delete(self, path: str) -> None:
        self._count()
        super().delete(path)

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise StreamsException("gone")


def settling(root: Path) -> Callable[..., None]:
    """A copy from one topic to another whose claimed checkpoint is settled, for sources in some order."""
    builder = StreamsBuilder()
    builder.stream("a").to("out")
    (pipeline,) = builder.build().queries
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "fake:9092"})
    records = FakeLog()
    topics = FakeTopics({"a": 1, "out": 1}, records)
    records.append(TopicPartition("a", 0), *[(b"k", b"v", 1)] * 9)
    reconciler = Reconciler([pipeline], "app", Checkpoints(config, root), topics, Policies(), None)
    claim = CheckpointClaim("p0", "there/p0.1", 1)

    def settle(files: FakeCheckpointFiles, *scans: Scan, written: int = 0) -> None:
        compiled = CompiledPipeline(pipeline, {}, scans=scans)
        reconciler.settle(
            compiled,
            claim,
            files,
            rebuild=lambda changelogs: None,
            begin=lambda: None,
            written=lambda: written,
        )

    return settle


def test_sources_that_change_places_do_so_once_whenever_the_client_is_gone(tmp_path: Path) -> None:
    """After any of its steps: the client that comes next has the offsets where they belong."""
    settle = settling(tmp_path)
    for steps in range(100):
        files = Crashing()
        files.write("p0.1/commits/4", b"v1\n{}")
        for batch in (3, 4):
            files.write(f"p0.1/offsets/{batch}", log(NEW, OLD).to_bytes())
        settle(files, BESIDE, COUNT)
        files.left = steps
        gone = False
        try:
            settle(files, COUNT, BESIDE)
        except StreamsException:
            gone = True
        files.left = None
        for _ in range(2):
            settle(files, COUNT, BESIDE)
            assert log_of(files, "p0.1") == log(OLD, NEW), f"gone after {steps} steps"
        settle(files, BESIDE, COUNT)
        assert log_of(files, "p0.1") == log(NEW, OLD), "back with the program before"
        if not gone:
            break
    assert steps > 5


def test_a_batch_that_is_written_in_part_is_not_forgotten_for_another_program(tmp_path: Path) -> None:
    """What Kafka has of it would be left out of another batch of its number; nothing is changed."""
    files, settle = FakeCheckpointFiles(), settling(tmp_path)
    files.write("p0.1/commits/4", b"v1\n{}")
    for batch in (3, 4, 5):
        files.write(f"p0.1/offsets/{batch}", log(NEW, OLD).to_bytes())
    settle(files, BESIDE, COUNT, written=6)
    with pytest.raises(CheckpointException, match="micro-batch 5 is partly written") as raised:
        settle(files, COUNT, BESIDE, written=6)
    assert "Start the program as it was before until that micro-batch is done" in str(raised.value)
    assert unfinished(files, "p0.1") is not None
    assert log_of(files, "p0.1") == log(NEW, OLD)
    settle(files, COUNT, BESIDE, written=5)
    assert unfinished(files, "p0.1") is None
    assert log_of(files, "p0.1") == log(OLD, NEW)
