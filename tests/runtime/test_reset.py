"""A reset: what is decided, and that it is done in an order that an interruption does not spoil."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_world import FakeWorld
from hypothesis import given
from hypothesis import strategies as st
from scenes import SOON, Make, running, word_count

from millstream.config import StreamsConfig
from millstream.errors import ConfigException, IllegalStateException, LockException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.reset.reset_plan import ResetPlan, internal_topics, point_in_time, positions
from millstream.runtime.reset.resetter import Reset, reset_application
from millstream.stores.directory import StateDirectory

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


# --- what is done ------------------------------------------------------------------------------------------


class Application:
    """One that has run: state on this machine, a checkpoint of to_spark(), internal topics, a group."""

    def __init__(self, world: FakeWorld, path: Path) -> None:
        self.world = world
        self.config = StreamsConfig(
            {"application.id": "app", "bootstrap.servers": "fake:9092", "state.dir": str(path)}
        )
        self.root = path / "app"
        self.steps: list[str] = []
        (self.root / "checkpoints" / "p1").mkdir(parents=True)
        StateDirectory(path, "app").task_path(TaskId(0, 1)).mkdir(parents=True)
        world.topics.add("app-counts-changelog", 3)
        for number in range(3):
            world.log.append(TopicPartition("lines", number), *[(b"k", b"v", 1000 * n) for n in range(5)])
        self.committed = {TopicPartition("lines", 0): 5, TopicPartition("app-x-repartition", 0): 1}
        world.topics.commits["app"] = dict(self.committed)

    def reset(self, *, dry_run: bool = False, **asked: Any) -> ResetPlan:
        return reset_application(
            self.config, self.world.parts(), Reset(**asked), dry_run=dry_run, report=self.steps.append
        )

    @property
    def is_there(self) -> tuple[bool, bool, bool]:
        """Its checkpoint, its changelog, its state."""
        return (
            (self.root / "checkpoints").exists(),
            "app-counts-changelog" in self.world.topics.names(),
            (self.root / "0_1").exists(),
        )


@pytest.fixture
def application(world: FakeWorld, tmp_path: Path) -> Application:
    return Application(world, tmp_path)


def test_all_that_an_application_has_is_deleted_and_its_group_begins_there(
    application: Application, world: FakeWorld
) -> None:
    """Its input topics are those that its group has offsets of."""
    shown = application.reset(dry_run=True, to=2)
    assert application.is_there == (True, True, True)
    assert application.steps == []
    plan = application.reset(to=2)
    assert str(plan) == str(shown)
    assert application.is_there == (False, False, False)
    assert "  input 'lines' partition 0: read from offset 2 on (it has 0 to 5)" in plan.lines
    offsets = {TopicPartition("lines", number): 2 for number in range(3)}
    assert world.topics.commits["app"] == offsets
    again = application.reset(to="latest")
    assert (again.internal, again.has_checkpoints, again.tasks) == ((), False, 0)
    assert "  internal topics: none" in again.lines
    assert application.steps[:4] == [
        "deleting 1 internal topics",
        f"deleting the checkpoints of to_spark() in '{application.root / 'checkpoints'}'",
        f"deleting the local state in '{application.root}'",
        "setting the group's offsets of 3 partitions",
    ]


def test_nothing_is_touched_while_somebody_is_there(application: Application, world: FakeWorld) -> None:
    """A member of the group, or whoever has the state directory; force takes members out."""
    world.topics.alive.add("app")
    with pytest.raises(IllegalStateException, match=r"its group has 'app-1' at /fake.*--force"):
        application.reset()
    assert application.is_there == (True, True, True)
    held = StateDirectory(application.config.state_dir, "app")
    with held, pytest.raises(LockException):
        application.reset(force=True)
    assert application.is_there == (True, True, True)
    application.reset(force=True)
    assert application.is_there == (False, False, False)
    assert world.topics.alive == set()


@pytest.mark.parametrize("local", [True, False])
def test_checkpoints_of_ones_own_place_are_deleted_or_told_of(
    local: bool, application: Application, tmp_path: Path
) -> None:
    """What is on another file system is deleted with that one's tools."""
    place = tmp_path / "own place"
    (place / "app" / "p1").mkdir(parents=True)
    location = place.as_uri() if local else "hdfs://there/checkpoints"
    application.config = application.config.replace({"checkpoint.location": location})
    plan = application.reset()
    told = [line for line in plan.lines if f"{location}/app" in line]
    assert [line.split()[0] for line in told] == ["delete" if local else "leave"]
    assert (place / "app").exists() is not local


def test_a_topic_in_the_wrong_place_is_refused(application: Application) -> None:
    """The error is raised before anything is done; a missing topic is left out."""
    with pytest.raises(ConfigException, match="'app-counts-changelog': these are internal topics"):
        application.reset(inputs=["app-counts-changelog"])
    with pytest.raises(ConfigException, match=r"'lines'.* end with -changelog or -repartition"):
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


@pytest.mark.parametrize("step", ["internal topics", "checkpoints", "local state", "offsets"])
def test_an_interrupted_reset_leaves_the_offsets_which_know_the_deleted_topics(
    step: str, application: Application, world: FakeWorld
) -> None:
    """With them a task fails that finds other topics; a reset that is run again does the rest."""

    def leave(what: str) -> None:
        if step in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reset_application(application.config, world.parts(), Reset(), report=leave)
    assert world.topics.commits["app"] == application.committed
    application.reset(to=1)
    assert application.is_there == (False, False, False)
    assert set(world.topics.commits["app"].values()) == {1}


def test_a_client_resets_what_its_topology_reads(
    application: Application, world: FakeWorld, make: Make
) -> None:
    """While it does not run."""
    client = make()
    running(client)
    with pytest.raises(IllegalStateException, match="Cannot reset while running"):
        client.reset()
    assert client.close(SOON)
    done = client.reset("latest")
    assert {each.at.topic for each in done.positions} == set(word_count().source_topics)
    running(make())
