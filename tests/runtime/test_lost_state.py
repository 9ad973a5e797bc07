"""Clients whose topics or checkpoints are not what they were, in a fake world."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fake_world import FakeWorld
from scenes import SOON, SOON_S, Handler, Make, ended, put_into
from waiting import wait_until

from millstream import (
    CheckpointException,
    IllegalStateException,
    KafkaStreams,
    LostCheckpointException,
    LostTopicException,
    MissingSourceTopicException,
    StreamsException,
    StreamThreadExceptionResponse,
)
from millstream.checkpoints.fencing import CheckpointClaims, LocalCheckpointFiles
from millstream.dsl.builder import StreamsBuilder
from millstream.model import TopicPartition
from millstream.ports import TopicDescription
from millstream.runtime.state.events import GroupLost
from millstream.states import State
from millstream.topology.names import markers_topic
from millstream.topology.topology import Topology

CHANGELOG = "app-counts-changelog"


def ran_once(make: Make, world: FakeWorld, tmp_path: Path, record: int = 1) -> None:
    """A client has run and counted, and left a checkpoint as Spark leaves it."""
    client = make()
    put_into(State.RUNNING, client, world)
    for part, content in (("offsets", 'v1\n{}\n{"lines":{"0":1}}'), ("commits", "v1\n{}")):
        path = tmp_path / "app" / "checkpoints" / "p0.1" / part
        path.mkdir(parents=True)
        (path / "0").write_text(content)
    for number in range(2):
        world.log.append(TopicPartition("lines", number), (b"k", b"v", 1), (b"k", b"v", 2))
        world.log.append(TopicPartition(CHANGELOG, number), (b"k", b"v", record), epoch=record)
    client.close(SOON)


LOST: dict[str, tuple[Callable[[FakeWorld], None], str]] = {
    "deleted": (lambda world: world.topics.delete([CHANGELOG]), "was deleted"),
    "created again": (lambda world: world.topics.recreate(CHANGELOG), "was deleted and created again"),
}


@pytest.mark.parametrize("what", LOST)
def test_a_lost_changelog_is_told_by_start_and_not_made_anew(
    make: Make, world: FakeWorld, tmp_path: Path, what: str
) -> None:
    """Unless it is to be rebuilt, which the engine is asked for under the claim, before the query starts."""
    lose, told = LOST[what]
    ran_once(make, world, tmp_path)
    lose(world)
    there = world.topics.names()
    created = len(world.topics.created)
    client = make()
    with pytest.raises(LostTopicException, match=told) as raised:
        client.start()
    assert raised.value.topics == (CHANGELOG,)
    assert client.state is State.ERROR
    assert world.topics.names() == there
    assert len(world.topics.created) == created
    mended = make(changelog__lost__policy="rebuild")
    put_into(State.RUNNING, mended, world)
    assert world.engine.rebuilt == [("p0", frozenset({CHANGELOG}))]
    mended.close(SOON)
    again = make()
    put_into(State.RUNNING, again, world)
    assert world.engine.rebuilt == [], "what was mended is noted"


def test_a_changelog_is_not_rebuilt_while_a_batch_is_written_in_part(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """The parts that are there are not written again, so their updates would be missing in it."""
    ran_once(make, world, tmp_path)
    (offsets,) = (tmp_path / "app" / "checkpoints").glob("p0.*/offsets")
    (offsets / "1").write_text('v1\n{}\n{"lines":{"0":2}}')
    world.topics.delete([CHANGELOG])
    handler = Handler(StreamThreadExceptionResponse.SHUTDOWN_CLIENT)
    client = make(changelog__lost__policy="rebuild")
    world.next_batch["p0"] = 2
    client.set_uncaught_exception_handler(handler)
    client.start()
    assert ended(client) is State.ERROR
    (error,) = handler.exceptions
    assert isinstance(error, CheckpointException)
    assert f"could not be rewritten: '{CHANGELOG}'" in str(error)
    assert "processing.guarantee=at_least_once" in str(error)
    assert world.engine.rebuilt == []
    client = make(changelog__lost__policy="rebuild")
    world.next_batch["p0"] = 1
    put_into(State.RUNNING, client, world)
    assert world.engine.rebuilt == [("p0", frozenset({CHANGELOG}))]


@pytest.mark.parametrize(
    ("policy", "told"),
    [("compact", "was emptied"), ("compact,delete", "has cleanup.policy 'compact,delete'")],
)
def test_a_changelog_that_forgets_by_its_own_policy_has_lost_nothing(
    make: Make, world: FakeWorld, tmp_path: Path, policy: str, told: str
) -> None:
    """As those of windows do, by their records' timestamps. This store has no windows, so that its changelog
    may not forget is said afterwards; that it was emptied is not."""
    world.checkpoints_lost = True  # changelogs begin where they do
    ran_once(make, world, tmp_path)
    there = world.topics._topics[CHANGELOG]
    world.topics._topics[CHANGELOG] = replace(there, configs={"cleanup.policy": policy})
    world.log.truncate(TopicPartition(CHANGELOG, 0), 1)
    with pytest.raises(StreamsException, match=told):
        make().start()


def test_a_changelog_that_nobody_noted_is_rebuilt_too(make: Make, world: FakeWorld, tmp_path: Path) -> None:
    """Versions before the notes left none; by the time of the claim the changelog is there, and empty."""
    ran_once(make, world, tmp_path)
    (tmp_path / "app" / "checkpoints" / "p0.topics.json").unlink()
    world.topics.delete([CHANGELOG])
    with pytest.raises(LostTopicException, match="was deleted"):
        make().start()
    mended = make(changelog__lost__policy="rebuild")
    put_into(State.RUNNING, mended, world)
    assert world.engine.rebuilt == [("p0", frozenset({CHANGELOG}))]


def test_a_source_that_was_deleted_is_waited_for_where_it_may_be_read_from_its_beginning(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """It is no lost cause before anything runs: the next try finds it."""
    world.checkpoints_lost = True  # changelogs begin where they do
    ran_once(make, world, tmp_path)
    world.topics.delete(["lines"])
    handler = Handler(StreamThreadExceptionResponse.REPLACE_THREAD)
    client = make(source__lost__policy="from-beginning")
    client.set_uncaught_exception_handler(handler)
    client.start()
    wait_until(lambda: handler.exceptions, "the handler is asked", SOON_S)
    (error, *_) = handler.exceptions
    assert isinstance(error, MissingSourceTopicException)
    assert error.deleted == ("lines",)
    world.topics.add("lines", 3)
    client.wait_until_running(SOON)
    assert client.failures[-1].response is StreamThreadExceptionResponse.REPLACE_THREAD
    offsets = (tmp_path / "app" / "checkpoints" / "p0.2" / "offsets" / "0").read_text()
    assert '{"lines":{"0":0,"1":0,"2":0}}' in offsets


def of_pattern() -> Topology:
    """One pipeline, of the topics `in-…`, which keeps nothing."""
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).to("out")
    return builder.build()


def reading_a_pattern(make: Make, world: FakeWorld) -> KafkaStreams:
    """A client that runs it; there is one topic that the pattern matches."""
    world.topics.add("in-1", 1)
    client = make(of_pattern())
    put_into(State.RUNNING, client, world)
    return client


def read_up_to(root: Path, claim: str, offsets: str) -> None:
    """What Spark leaves at a checkpoint when it has read so far."""
    for part, content in (("offsets", f"v1\n{{}}\n{offsets}"), ("commits", "v1\n{}")):
        path = root / claim / part
        path.mkdir(parents=True, exist_ok=True)
        (path / "0").write_text(content)


def test_a_topic_that_a_pattern_began_to_match_while_the_client_ran_is_known_by_its_id(
    make: Make, world: FakeWorld, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted and created again while no client runs, it is not read on at the old one's offsets."""
    root = tmp_path / "app" / "checkpoints"
    client = reading_a_pattern(make, world)
    world.topics.add("in-2", 1)
    wait_until(lambda: (root / "p0.1" / "topics-since.json").exists(), "it is noted", SOON_S)
    read_up_to(root, "p0.1", '{"in-1":{"0":0},"in-2":{"0":1}}')
    client.close(SOON)
    world.log.append(TopicPartition("in-2", 0), (b"k", b"v", 1), (b"k", b"v", 2))
    world.topics.recreate("in-2")
    with caplog.at_level(logging.WARNING):
        mended = make(of_pattern())
        put_into(State.RUNNING, mended, world)
    assert "'in-2' was deleted and created again" in caplog.text
    assert "is read from the beginning" in caplog.text
    assert '"in-2":{"0":0}' in (root / "p0.2" / "offsets" / "0").read_text()
    assert not (root / "p0.2" / "topics-since.json").exists(), "its notes have all of it"
    assert '"in-2"' in (root / "p0.topics.json").read_text()


def test_what_a_pattern_matched_a_moment_ago_is_noted_before_the_checkpoint_is_let_go(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """Spark has read it, and the client closes, perhaps before it has looked at the topics again."""
    root = tmp_path / "app" / "checkpoints"
    client = reading_a_pattern(make, world)
    read_up_to(root, "p0.1", '{"in-1":{"0":0},"in-2":{"0":1}}')
    world.topics.add("in-2", 1)
    client.close(SOON)
    assert '"in-2"' in (root / "p0.1" / "topics-since.json").read_text()


def test_what_a_client_notes_while_it_runs_never_replaces_the_notes_of_a_later_claim(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """Not even between its look whether the claim is held, and the writing."""
    root = tmp_path / "app" / "checkpoints"
    client = reading_a_pattern(make, world)
    read_up_to(root, "p0.1", '{"in-1":{"0":0}}')
    (old,) = world.engine.claims
    files = LocalCheckpointFiles(root)
    CheckpointClaims(files, str(root)).claim("p0", 0, "another")
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    topics = {"in-2": TopicDescription("in-2", 1, "id-2")}
    client._assembly.note_topics("p0", topics)
    reconciler = client._assembly._reconciler
    assert reconciler is not None
    with pytest.raises(StreamsException):
        reconciler.note_new(old, topics, files)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_nobody_waits_for_a_changelog_that_is_written_anew(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """That takes minutes where there is much. Meanwhile the group loses the client, which forgets its claims
    at once, and the client closes: the pipeline does not start, and no handler is asked about that.
    """
    ran_once(make, world, tmp_path)
    world.topics.delete([CHANGELOG])
    client = make(changelog__lost__policy="rebuild")
    handler = Handler(StreamThreadExceptionResponse.REPLACE_THREAD)
    client.set_uncaught_exception_handler(handler)
    before = world.engine_of("")
    world.gate.clear()
    client.start()
    wait_until(lambda: client._assembly.proofs(client._directory.process_id()), "claimed", SOON_S)
    assert client._assembly._claiming.locked(), "the changelog is being written"
    owner = client._owner
    told = threading.Thread(target=lambda: owner.call(GroupLost("the session is over")), daemon=True)
    told.start()
    told.join(SOON_S)
    assert not told.is_alive()
    assert client._assembly.proofs(client._directory.process_id()) == {}
    assert client.close(timedelta(0)) is False
    assert client.state is State.PENDING_SHUTDOWN
    world.gate.set()
    assert client.close(SOON)
    assert handler.exceptions == []
    engine = world.engine_of("")
    assert engine is not None
    assert engine is not before
    assert engine.started == []


def test_lost_checkpoints_are_told_by_start_and_a_clean_up_is_a_way_out(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """A clean-up deletes the group and the internal topics, those of another guarantee too; it is refused
    while the group has members.
    """
    world.checkpoints_lost = True
    ran_once(make, world, tmp_path)
    world.topics.commits["app"] = {TopicPartition("lines", 0): 1}
    (tmp_path / "app" / "checkpoints").rename(tmp_path / "elsewhere")
    client = make()
    with pytest.raises(LostCheckpointException) as raised:
        client.start()
    assert f"changelog '{CHANGELOG}' has records up to offset 1" in str(raised.value)
    assert "the group has committed 'lines' up to offset 1 in partition 0" in str(raised.value)
    world.topics.alive.add("app")
    markers = markers_topic("app")
    world.topics.add(markers, 1)
    with pytest.raises(IllegalStateException, match="members"):
        client.clean_up(checkpoints=True)
    assert CHANGELOG in world.topics.names()
    world.topics.alive.clear()
    client.clean_up(checkpoints=True)
    assert not {CHANGELOG, markers} & world.topics.names()
    assert world.topics.commits == {}
    put_into(State.RUNNING, make(), world)


def test_an_epoch_that_no_claim_can_have_had_ends_its_thread_and_is_not_believed(
    make: Make, world: FakeWorld, tmp_path: Path
) -> None:
    """The clock is in no epoch; the record is named by partition and offset."""
    world.checkpoints_lost = True  # changelogs begin where they do
    ran_once(make, world, tmp_path)
    client = make()
    epochs: list[int] = []

    def look(error: StreamsException) -> StreamThreadExceptionResponse:
        epochs.extend(store.epoch for store in world.stores if store.is_open)
        return StreamThreadExceptionResponse.SHUTDOWN_CLIENT

    client.set_uncaught_exception_handler(look)
    put_into(State.RUNNING, client, world)
    assert world.engine.claims[-1].epoch < 100
    world.log.append(TopicPartition(CHANGELOG, 1), (b"k", b"bogus", 3), epoch=2**40)
    with pytest.raises(StreamsException, match=rf"'{CHANGELOG}-1' has a record of epoch {2**40} at offset 1"):
        client.wait(SOON)
    assert epochs
    assert max(epochs) < 100
