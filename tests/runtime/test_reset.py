"""A reset: what is decided, and that it is done in an order that an interruption does not spoil."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_ports import FakeCheckpointFiles, FakeTopics
from fake_world import FakeWorld
from hypothesis import given
from hypothesis import strategies as st
from millstream.checkpoints.checkpoints import fingerprint
from millstream.checkpoints.fencing import CheckpointClaims, LocalCheckpointFiles
from millstream.checkpoints.identity import Noted, Notes, TopicRole
from millstream.checkpoints.starts import STARTS, Starts, TopicStart, begin, initial_offsets, read_starts
from scenes import SOON, Handler, Make, ended, running, word_count

from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import AutoOffsetReset, Consumed
from millstream.errors import ConfigException, IllegalStateException, LockException, StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.ports import TopicDescription
from millstream.runtime.reset.reset_plan import (
    ResetPlan,
    internal_topics,
    pipelines_in,
    point_in_time,
    positions,
)
from millstream.runtime.reset.resetter import Reset, reset_application
from millstream.runtime.state.failure import Response
from millstream.states import State
from millstream.stores.directory import StateDirectory
from millstream.topology.nodes import OffsetReset, OffsetResetByDuration
from millstream.topology.pipeline import Scan

A, B = TopicPartition("in", 0), TopicPartition("in", 1)


# --- what is decided ---------------------------------------------------------------------------------------


def at(to: Any, **given: Any) -> dict[TopicPartition, tuple[int, str]]:
    """Where two partitions are read from; one has offsets 10 to 20, the other one 0 to 5."""
    found = positions(
        to,
        {A: 10, B: 0},
        {A: 20, B: 5},
        at_time=given.get("at_time", {}),
        committed=given.get("committed", {}),
        shift=given.get("shift"),
    )
    return {each.at: (each.offset, each.note) for each in found}


def test_where_input_topics_are_read_from() -> None:
    """Each way to say it; what is not in a partition is put right, and said."""
    assert at("earliest") == {A: (10, ""), B: (0, "")}
    assert at("latest") == {A: (20, ""), B: (5, "")}
    assert at(7) == {A: (10, "7 was asked for"), B: (5, "7 was asked for")}
    assert at(timedelta(hours=1), at_time={A: 15}) == {A: (15, ""), B: (5, "")}
    assert at({B: 3}) == {B: (3, "")}
    assert at("earliest", shift=-4, committed={A: 18}) == {
        A: (14, ""),
        B: (0, "-4 was asked for"),
    }
    assert at("earliest", shift=2)[B] == (
        2,
        "the group has committed nothing; counted from the first",
    )
    with pytest.raises(ValueError, match="'earliest', 'latest', an offset or a time; got 'first'"):
        at("first")


@given(st.integers(-50, 50), st.integers(0, 20), st.integers(0, 20))
def test_a_position_is_always_in_its_partition(wanted: int, first: int, count: int) -> None:
    """It is what was requested, or the plan says so."""
    (found,) = positions(wanted, {A: first}, {A: first + count}, at_time={}, committed={})
    assert first <= found.offset <= first + count
    assert (found.offset == wanted) == (not found.note)


def test_a_time_is_in_utc_unless_it_says_another_zone() -> None:
    """A duration is before now."""
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert point_in_time(datetime(2026, 1, 1, 11), now) == point_in_time(timedelta(hours=1), now)
    assert point_in_time(now, now) == 1_767_268_800_000


def test_internal_topics_are_told_from_those_of_an_application_with_a_longer_name() -> None:
    """As far as its group is there; the longest name that fits has it."""
    existing = [
        "app-counts-changelog",
        "app-words-repartition",
        "app-b-counts-changelog",
        "app-out",
        "application-x-changelog",
        "in",
    ]
    assert internal_topics("app", existing, ["app", "app-b", "other"]) == (
        ("app-counts-changelog", "app-words-repartition"),
        {"app-b-counts-changelog": "app-b"},
    )
    assert internal_topics("app-b", existing, ["app"])[0] == ("app-b-counts-changelog",)


def test_pipelines_are_known_by_what_they_have_left() -> None:
    """They are in order, whatever is left."""
    names = ["p10.3", "p2", "p0.7.owner", "p1.topology.json", ".identity", "starts.json", "pp.1"]
    assert pipelines_in(names) == ("p0", "p1", "p2", "p10")


# --- where a pipeline begins -------------------------------------------------------------------------------

IN = TopicDescription("in", 2, "id-1")


def test_where_to_begin_outlives_being_written() -> None:
    """A file of another form is refused, so that reading does not begin elsewhere."""
    starts = Starts("noon", True, {"in": TopicStart("id-1", {0: 12, 1: 3})})
    files = FakeCheckpointFiles()
    assert read_starts(files, "here") is None
    files.write(STARTS, starts.to_bytes())
    assert read_starts(files, "here") == starts
    for content in (b"", b"[]", b'{"at": "x", "complete": true}', b'{"at": 1, "complete": 1, "topics": 5}'):
        files.write(STARTS, content)
        with pytest.raises(StreamsException, match=r"'here/starts.json'.* cannot be read"):
            read_starts(files, "here")


def test_a_source_begins_where_the_reset_said_or_where_it_would_anyway() -> None:
    """New partitions, other topics, and a topic that is another one by now; what is gone is warned of."""
    starts = Starts("noon", True, {"in": TopicStart("id-1", {0: 12, 1: 3})})
    other = TopicDescription("more", 1, "id-2")
    first = {A: 0, B: 5, TopicPartition("in", 2): 1, TopicPartition("more", 0): 4}
    last = {A: 20, B: 9, TopicPartition("in", 2): 2, TopicPartition("more", 0): 8}
    found, warnings = initial_offsets([IN, other], starts, OffsetReset.LATEST, first, last)
    assert found == {"in": {"0": 12, "1": 5}, "more": {"0": 8}}
    assert warnings == (
        "'in-1' was to be read from offset 3, as reset at noon, and begins at 5 by now: 2 records are gone",
    )
    grown = TopicDescription("in", 3, "id-1")
    assert initial_offsets([grown], starts, OffsetReset.EARLIEST, first, last)[0] == {
        "in": {"0": 12, "1": 5, "2": 1}
    }
    assert initial_offsets([other], starts, OffsetReset.LATEST, first, last) == (None, ())
    again, warnings = initial_offsets(
        [TopicDescription("in", 2, "id-9")], starts, OffsetReset.EARLIEST, first, last
    )
    assert again is None
    assert "'in' was deleted and created again after the reset of noon" in warnings[0]


def test_only_a_new_checkpoint_begins_there() -> None:
    """Each source of the query has its file, as Spark reads it; one that has begun is left alone."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    (pipeline,) = builder.build().pipelines
    topics = FakeTopics({"in": 2})
    sources = topics.look(["in"])
    files = FakeCheckpointFiles()
    starts = Starts("noon", True, {"in": TopicStart(sources["in"].topic_id, {0: 0})})
    files.write(STARTS, starts.to_bytes())

    def begun(directory: str) -> bytes | None:
        begin(
            pipeline,
            (Scan("other"), Scan("in"), Scan("in")),
            directory,
            files,
            "here",
            topics,
            sources,
            OffsetReset.EARLIEST,
        )
        assert not files.exists(f"{directory}/sources/0/0"), "the reset says nothing of it"
        assert files.read(f"{directory}/sources/1/0") == files.read(f"{directory}/sources/2/0")
        return files.read(f"{directory}/sources/1/0")

    content = begun("p0.1")
    assert content is not None
    assert content.startswith(b"\0v1\n")
    assert json.loads(content[4:]) == {"in": {"0": 0, "1": 0}}
    files.write("p0.2/offsets/0", b"v1")
    assert begun("p0.2") is None
    files.delete(STARTS)
    assert begun("p0.3") is None


def test_a_source_that_is_to_begin_nowhere_waits_for_a_reset() -> None:
    """AutoOffsetReset.none(): a checkpoint, or what a reset said, lets it begin."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed().with_offset_reset_policy(AutoOffsetReset.none())).to("out")
    (pipeline,) = builder.build().pipelines
    topics = FakeTopics({"in": 1})
    sources = topics.look(["in"])
    files = FakeCheckpointFiles()

    def begun(directory: str) -> bool:
        begin(pipeline, (Scan("in"),), directory, files, "here", topics, sources, OffsetReset.EARLIEST)
        return files.exists(f"{directory}/sources/0/0")

    with pytest.raises(
        StreamsException, match=r"pipeline p0: in has AutoOffsetReset.none\(\), and neither a checkpoint nor "
    ):
        begun("p0.1")
    files.write("p0.2/offsets/0", b"v1")
    assert not begun("p0.2")
    other = StreamsBuilder()
    other.stream("in").to("out")
    arguments = (other.build().pipelines[0], (Scan("in"),), "p0.3", files, "here", topics, sources)
    with pytest.raises(StreamsException, match=r"pipeline p0: in has auto\.offset\.reset=none, and"):
        begin(*arguments, OffsetReset.NONE)
    begin(*arguments, OffsetResetByDuration(1000))
    starts = Starts("noon", True, {"in": TopicStart(sources["in"].topic_id, {0: 0})})
    files.write(STARTS, starts.to_bytes())
    assert begun("p0.1")


# --- what is done ------------------------------------------------------------------------------------------


class Application:
    """One that has run: a checkpoint, state on this machine, internal topics, a group."""

    def __init__(self, world: FakeWorld, path: Path) -> None:
        self.world = world
        world.checkpoints_lost = True  # logs begin where they begin
        self.config = StreamsConfig(
            {"application.id": "app", "bootstrap.servers": "fake:9092", "state.dir": str(path)}
        )
        self.root = path / "app" / "checkpoints"
        self.files = LocalCheckpointFiles(self.root)
        self.claims = CheckpointClaims(self.files, str(self.root))
        self.steps: list[str] = []
        claim = self.claims.claim("p0", 7, "A")
        self.files.write(f"{claim.path.rpartition('/')[2]}/commits/0", b"v1")
        program = fingerprint(word_count().queries[0])
        self.files.write("p0.topology.json", json.dumps(asdict(program)).encode())
        notes = Notes({"lines": Noted("", 3, TopicRole.SOURCE), "out": Noted("", 1, TopicRole.OUTPUT)})
        self.files.write("p0.topics.json", notes.to_bytes())
        StateDirectory(path, "app").task_path(TaskId(0, 1)).mkdir(parents=True)
        world.topics.add("app-counts-changelog", 3)
        for number in range(3):
            world.log.append(TopicPartition("lines", number), *[(b"k", b"v", 1000 * n) for n in range(5)])
        world.topics.commits["app"] = {TopicPartition("lines", 0): 5, TopicPartition("old", 0): 1}

    def reset(self, *, dry_run: bool = False, **asked: Any) -> ResetPlan:
        return reset_application(
            self.config, self.world.parts(), Reset(**asked), dry_run=dry_run, report=self.steps.append
        )

    @property
    def is_there(self) -> tuple[bool, bool, bool]:
        """Its checkpoint, its changelog, its state."""
        return (
            any(path.is_dir() for path in self.root.iterdir()),
            "app-counts-changelog" in self.world.topics.names(),
            (self.root.parent / "0_1").exists(),
        )


@pytest.fixture
def application(world: FakeWorld, tmp_path: Path) -> Application:
    return Application(world, tmp_path)


def test_all_that_an_application_has_is_deleted_and_where_it_begins_is_kept(
    application: Application, world: FakeWorld
) -> None:
    """Its input topics are known from the checkpoint's notes; epochs go on growing; the group is told."""
    before = application.claims.owner("p0")
    assert before is not None
    shown = application.reset(dry_run=True, to=2)
    assert application.is_there == (True, True, True)
    assert application.steps == []
    assert application.files.read(STARTS) is None
    plan = application.reset(to=2)
    assert str(plan) == str(shown)
    assert application.is_there == (False, False, False)
    assert "  input 'lines' partition 0: read from offset 2 on (it has 0 to 5)" in plan.lines
    offsets = {TopicPartition("lines", number): 2 for number in range(3)}
    assert world.topics.commits["app"] == offsets
    starts = read_starts(application.files, "here")
    assert starts is not None
    assert starts.complete
    assert starts.topics["lines"].offsets == {0: 2, 1: 2, 2: 2}
    after = application.claims.claim("p0", 0, "B")
    assert after.epoch > before.epoch
    again = application.reset(to="latest")
    assert (again.internal, again.pipelines, again.tasks) == ((), (), 0)
    assert "  internal topics: none" in again.lines
    assert [step.partition(" ")[0] for step in application.steps[:4]] == [
        "fencing",
        "deleting",
        "deleting",
        "deleting",
    ]


def test_nothing_is_touched_while_somebody_is_there(application: Application, world: FakeWorld) -> None:
    """A member of the group, or whoever has the state directory; force takes members out, after fencing."""
    world.topics.alive.add("app")
    with pytest.raises(IllegalStateException, match=r"its group has 'app-1' at /fake.*--force"):
        application.reset()
    assert application.is_there == (True, True, True)
    assert application.files.read(STARTS) is None
    held = StateDirectory(application.config.state_dir, "app")
    with held, pytest.raises(LockException):
        application.reset(force=True)
    assert application.is_there == (True, True, True)
    application.reset(force=True)
    assert application.is_there == (False, False, False)
    assert world.topics.alive == set()
    shut_out, taken_out = (
        next(number for number, step in enumerate(application.steps) if word in step)
        for word in ("fencing", "from the group")
    )
    assert shut_out < taken_out


def test_checkpoints_that_are_elsewhere_are_reached_by_spark(world: FakeWorld, tmp_path: Path) -> None:
    """It is started for that, and ended."""
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "state.dir": str(tmp_path),
            "checkpoint.location": "hdfs://there/checkpoints",
        }
    )
    files = world.engine.checkpoint_files("hdfs://there/checkpoints/app")
    files.write("p0.3/commits/0", b"v1")
    files.create_file("p0.3.owner")
    told: list[str] = []
    plan = reset_application(config, world.parts(), Reset(inputs=["lines"]), report=told.append)
    assert plan.pipelines == ("p0",)
    assert told[0] == "starting Spark for the checkpoints in 'hdfs://there/checkpoints/app'"
    assert not any(is_directory for is_directory in files.list().values())
    starts = read_starts(files, "there")
    assert starts is not None
    assert starts.complete
    assert world.engine.closed


def test_a_topic_in_the_wrong_place_is_refused(application: Application) -> None:
    """The error is raised before anything is done; a missing topic is left out."""
    with pytest.raises(ConfigException, match="'app-counts-changelog': these are internal topics"):
        application.reset(inputs=["app-counts-changelog"])
    with pytest.raises(ConfigException, match=r"'lines'.* end with -changelog, -repartition or -"):
        application.reset(internals=["lines"])
    assert application.is_there == (True, True, True)
    plan = application.reset(inputs=["nowhere"], internals=["app-gone-changelog"], dry_run=True)
    assert (plan.missing, plan.internal, plan.positions) == (("nowhere",), (), ())
    assert "  input 'nowhere': does not exist, left out" in plan.lines
    with pytest.raises(ConfigException, match=r"for else-0, lines-7, which are not partitions"):
        application.reset(to={TopicPartition(name, at): 1 for name, at in (("else", 0), ("lines", 7))})
    assert application.is_there == (True, True, True)


def test_a_reset_takes_no_rights_from_the_group(application: Application, tmp_path: Path) -> None:
    """Clients need these rights."""
    application.config = application.config.replace({"allow.os.group.write.access": True})
    (tmp_path / "app").chmod(0o770)
    application.reset()
    assert (tmp_path / "app").stat().st_mode & 0o777 == 0o770


def test_a_first_start_after_a_reset_that_fails_has_lost_nothing(
    application: Application, make: Make, world: FakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group has offsets then, and the checkpoint has none: it begins once more, with another thread."""
    application.reset(to=3)
    handler = Handler(Response.REPLACE_THREAD)
    client = make()
    client.set_uncaught_exception_handler(handler)
    failures = [StreamsException("Kafka is away")]

    def at_the_second_try(*asked: Any) -> None:
        if failures:
            raise failures.pop()
        begin(*asked)

    monkeypatch.setattr("millstream.runtime.assembly.begin", at_the_second_try)
    client.start()
    client.wait_until_running(SOON)
    assert [str(error) for error in handler.exceptions] == ["Kafka is away"]


def test_an_interrupted_reset_is_finished_before_anything_starts(
    application: Application, world: FakeWorld, make: Make
) -> None:
    """It fails at each step; then the application starts as if nothing had happened."""

    def leave(step: str) -> None:
        world.topics.away = "internal topics" in step

    with pytest.raises(StreamsException, match="could not reach the cluster"):
        reset_application(application.config, world.parts(), Reset(), report=leave)
    world.topics.away = False
    assert application.is_there == (True, True, True)
    client = make()
    with pytest.raises(IllegalStateException, match=r"has not finished .*run it again: `millstream reset`"):
        client.start()
    assert ended(client) is State.ERROR
    application.reset()
    handler = Handler(Response.SHUTDOWN_CLIENT)
    client = make()
    client.set_uncaught_exception_handler(handler)
    running(client)
    assert handler.exceptions == []
    with pytest.raises(IllegalStateException, match="Cannot reset while running"):
        client.reset()
    assert client.close(SOON)
    done = client.reset("latest")
    assert {each.at.topic for each in done.positions} == set(word_count().source_topics)
