"""A task that nothing can break: killed, stopped, fenced, with a directory that is lost, old or damaged."""

from __future__ import annotations

import json
import resource
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as NativePartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from java_programs import KernelCommand
from task_world import NAME, TaskWorld, World, kill_at_random
from waiting import wait_until

from millstream.broker import EmbeddedKafka

pytestmark = pytest.mark.kafka


@pytest.fixture
def world(kafka: EmbeddedKafka, kernel_command: KernelCommand, tmp_path: Path) -> World:
    def make(**more: object) -> TaskWorld:
        return TaskWorld(kafka, kernel_command, tmp_path, **more)  # type: ignore[arg-type]

    return make


POINTS = ("opening", "sending", "committing", "logged", "offsets", "committed")


def killed_at_each_point(world: TaskWorld) -> None:
    """Killed once at each point; then, in a restore, with an empty directory."""
    for point in POINTS:
        world.send(30)
        world.arm(point)
        with world.process() as process:
            world.stopped_at(point, process)
            process.kill()
        world.disarm()
    world.lose_directory()
    world.arm("restoring")
    with world.process() as process:
        world.stopped_at("restoring", process)
        process.kill()
    world.disarm()
    world.send(30)


def test_a_count_is_exact_wherever_its_process_is_killed(world: World) -> None:
    """Exactly once: outputs, and two stores, one of them in memory."""
    counting = world(stores=("counts", "memory"))
    killed_at_each_point(counting)
    counting.assert_exact()


def test_at_least_once_the_stores_are_exact_wherever_its_process_is_killed(world: World) -> None:
    """Outputs may be repeated, and are not lost."""
    counting = world(exactly_once=False)
    killed_at_each_point(counting)
    counting.assert_stores_exact()


@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_a_count_is_exact_when_its_process_is_killed_at_any_time(world: World, exactly_once: bool) -> None:
    """Its directory is kept, lost, or an older copy of it comes back. By night there are more. At least once
    too, what only tasks read has each result once."""
    counting = world(exactly_once=exactly_once)
    if not exactly_once:
        counting.plan["internal"] = [counting.output]
    kill_at_random(counting, 4, seed=1)
    counting.assert_exact()


# --- two processes ---------------------------------------------------------------------------------------


def test_a_task_that_moves_while_it_runs_is_fenced_where_it_was(world: World, tmp_path: Path) -> None:
    """The second process has it from Kafka alone; the first one ends, with an exception that says so."""
    counting = world()
    counting.send(2000)
    with counting.process(pause_us=1000) as first:
        first.wait_for("committed", 3)
        with counting.process(pause_us=100, directory=tmp_path / "other") as second:
            second.wait_for("committed")
            assert first.failure().startswith("TaskMovedException: task 0_0 of 'app-")
            second.kill()
    counting.assert_exact()


def test_a_process_that_was_stopped_while_its_task_moved_changes_nothing(
    world: World, tmp_path: Path
) -> None:
    """It stands still in the middle of a commit; another one does the work; it goes on, and is refused."""
    for exactly_once in (True, False):
        counting = world(exactly_once=exactly_once)
        counting.send(300)
        counting.arm("logged")
        with counting.process() as zombie:
            counting.stopped_at("logged", zombie)
            zombie.send(signal.SIGSTOP)
            counting.disarm()
            counting.drained(tmp_path / f"other-{exactly_once}")
            zombie.send(signal.SIGCONT)
            assert zombie.failure().startswith("TaskMovedException")
        if exactly_once:
            counting.assert_exact()
        else:
            counting.assert_stores_exact()


def test_two_processes_with_one_directory_are_told_so(world: World) -> None:
    """The second one names the directory, and leaves what is in it alone."""
    counting = world()
    counting.send(100)
    with counting.process() as first:
        first.wait_for("committed")
        with counting.process(application="another", subtopology=0) as second:
            failure = second.failure()
        assert failure.startswith(
            f"IllegalStateException: the directory {counting.directory / NAME} is in use"
        )
        counting.send(100)
        first.wait_for("committed", 2)
    counting.assert_exact()


# --- the directory ---------------------------------------------------------------------------------------


def files(directory: Path, pattern: str) -> list[Path]:
    return list((directory / NAME / "rocksdb").glob(pattern))


def garble(directory: Path) -> None:
    for file in files(directory, "*.sst"):
        file.write_bytes(bytes(byte ^ 0x55 for byte in file.read_bytes()))


def truncate(directory: Path) -> None:
    for file in files(directory, "*.sst"):
        file.write_bytes(file.read_bytes()[:-100])


def lose_files(directory: Path) -> None:
    for file in files(directory, "*.sst"):
        file.unlink()


def garble_log(directory: Path) -> None:
    """What is damaged of the log was not committed, for RocksDB; the changelog has it."""
    for file in files(directory, "*.log"):
        file.write_bytes(file.read_bytes()[:-10] + b"0123456789")


def garble_manifest(directory: Path) -> None:
    for file in files(directory, "MANIFEST*"):
        file.write_bytes(b"no manifest" * 10)


def garble_task(directory: Path) -> None:
    (directory / NAME / "task").write_text("{")


def rename_in(field: str, value: object) -> Callable[[Path], None]:
    def rename(directory: Path) -> None:
        file = directory / NAME / "task"
        file.write_text(json.dumps({**json.loads(file.read_text()), field: value}))

    return rename


DAMAGES: Mapping[str, tuple[Callable[[Path], None], str | None]] = {
    "garbled log": (garble_log, None),
    "garbled": (garble, "RocksDB"),
    "truncated": (truncate, "RocksDB cannot open it"),
    "files are lost": (lose_files, "RocksDB cannot open it"),
    "no manifest": (garble_manifest, "RocksDB cannot open it"),
    "damaged description": (garble_task, "it does not say whose it is"),
    "another application": (rename_in("application", "other"), "it is of another application"),
    "another cluster": (rename_in("cluster", "other"), "it is of another cluster"),
    "other stores": (rename_in("stores", {"other": "t"}), "it is of another store"),
    "another format": (rename_in("format", 99), "it is of another format"),
}


@pytest.mark.timeout(240)  # a restore for each way
def test_a_directory_that_is_not_the_tasks_own_is_wiped(world: World) -> None:
    """One line of the log says why, and the state is restored from the changelog."""
    counting = world()
    counting.send(700)
    counting.drained()
    for damage, (harm, said) in DAMAGES.items():
        if not files(counting.directory, "*.sst"):
            counting.drained()  # it is opened, so what is in the log goes to files
        harm(counting.directory)
        counting.send(7)
        with counting.process("drain") as process:
            assert process.ended() == 0, f"{damage}: {process.text()}"
            wiped = [line for line in process.text().splitlines() if "is wiped" in line]
            assert len(wiped) == (0 if said is None else 1), f"{damage}: {process.text()}"
            assert said is None or said in wiped[0]
            found = counting.stores_of(process)["counts"]
        assert found == {key: str(count) for key, count in counting.sent.items()}, damage
    counting.assert_exact()


# --- standbys --------------------------------------------------------------------------------------------


def test_a_standby_that_has_followed_begins_without_a_restore(world: World) -> None:
    """It has what is committed, in stores on disk and in memory, and takes it over as it is."""
    counting = world(stores=("counts", "memory"))
    counting.send(300)
    counting.drained(counting.folder / "first")
    begin = counting.folder / "begin"
    counting.arm("restoring")
    with counting.process(str(begin)) as standby:
        standby.wait_for("followed")
        counting.send(30)
        begin.touch()
        standby.wait_for("opened")
        wait_until(lambda: standby.lines("committed")[-1:] == ["30"], "it goes on", 30)
        standby.kill()
    counting.disarm()
    counting.assert_exact()


def test_a_standby_takes_over_from_a_task_that_is_killed(world: World) -> None:
    """While records come in. Its directory is empty, then an old one of its own."""
    counting = world(stores=("counts", "memory"))
    for number, directory in enumerate(("one", "two", "one", "two")):
        begin = counting.folder / f"begin-{number}"
        with (
            counting.process(pause_us=500, directory=counting.folder / f"of-{number}") as owner,
            counting.process(str(begin), directory=counting.folder / directory) as standby,
        ):
            owner.wait_for("opened")
            standby.wait_for("followed")
            counting.send(200)
            owner.wait_for("committed", 3)
            owner.kill()
            begin.touch()
            standby.wait_for("opened")
            counting.send(20)
            standby.wait_for("committed", 2)
            standby.kill()
    counting.assert_exact()


def test_a_standby_without_changelogs_has_caught_up_at_once(world: World) -> None:
    """There is nothing to read, and nothing to say."""
    mapping = world(what="map", stores=())
    mapping.send(30)
    begin = mapping.folder / "begin"
    with mapping.process(str(begin)) as standby:
        standby.wait_for("followed")
        begin.touch()
        standby.wait_for("opened")
        wait_until(lambda: standby.lines("committed")[-1:] == ["30"], "it goes on", 30)
        assert "WARN" not in standby.text()
        standby.kill()


def test_a_standby_waits_for_a_directory_that_is_in_use(world: World) -> None:
    """Such as that of a task that is being closed, and says so once."""
    counting = world()
    counting.send(70)
    with counting.process() as owner:
        owner.wait_for("committed")
        verbose = ["-Dorg.apache.logging.log4j.level=INFO"]
        with counting.process(str(counting.folder / "begin"), options=verbose) as standby:
            wait_until(lambda: "cannot be followed yet" in standby.text(), "it waits", 60)
            owner.kill()
            standby.wait_for("followed")
            assert standby.text().count("cannot be followed yet") == 1
            standby.kill()
    counting.assert_exact()


def test_damage_that_is_found_while_it_runs_fails_the_task_and_the_next_one_recovers(world: World) -> None:
    """Blocks have checksums, so what is damaged is never served."""
    counting = world()
    counting.send(700)
    counting.drained()
    counting.drained()
    for file in files(counting.directory, "*.sst"):
        file.write_bytes(b"\0" * 40 + file.read_bytes()[40:])
    counting.send(7)
    with counting.process("drain") as process:
        failure = process.failure()
    assert "block checksum mismatch" in failure
    assert str(counting.directory / NAME / "rocksdb") in failure
    counting.assert_exact()


def test_a_directory_that_is_behind_the_beginning_of_its_changelog_is_wiped(world: World) -> None:
    """What was deleted there may have been deletions."""
    counting = world(settings={"commit_ms": 60_000})  # one transaction each time: 7 records, and its end
    early = Path()
    for turn in range(3):
        counting.send(7)
        counting.drained()
        early = early if turn else counting.copy_directory("early")
    client = AdminClient({"bootstrap.servers": counting.kafka.bootstrap_servers})
    (deleted,) = client.delete_records([NativePartition(counting.changelogs["counts"], 0, 10)]).values()
    deleted.result(30)
    counting.put_back(early)
    with counting.process("drain") as process:
        assert process.ended() == 0, process.text()
        assert "store 'counts' is at offset 7 of " in process.text()
        assert "which has those from 10 to 24" in process.text()
    counting.assert_exact()


def test_a_directory_from_the_future_is_wiped(world: World) -> None:
    """As after a restart of the whole cluster from an older copy of its data: the ids are the same."""
    counting, other = world(), world()
    counting.send(700)
    counting.drained()
    other.send(7)
    other.drained()
    task = (other.directory / NAME / "task").read_text()
    other.put_back(counting.directory)
    (other.directory / NAME / "task").write_text(task)
    with other.process("drain") as process:
        assert process.ended() == 0, process.text()
        assert len([line for line in process.text().splitlines() if "is wiped" in line]) == 1
        assert "store 'counts' is at offset " in process.text()
    other.assert_exact()


def test_a_disk_that_takes_no_more_fails_the_task_and_the_next_one_recovers(world: World) -> None:
    """The write that fails is behind the commit in Kafka; the error names the directory."""
    counting = world()
    counting.send(20_000, keys=20_000)
    memory = "-Dmillstream.kernel.memory=1m"  # so that RocksDB writes files soon
    with counting.process(options=[memory]) as process:
        process.wait_for("opened")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (4096, 4096))
        failure = process.failure()
    assert failure.startswith(f"IllegalStateException: RocksDB in {counting.directory / NAME / 'rocksdb'}: ")
    assert "File too large" in failure
    counting.assert_exact()


# --- source topics ---------------------------------------------------------------------------------------


def test_what_an_operator_notes_with_the_offsets_is_there_again(world: World, tmp_path: Path) -> None:
    """Also on a machine without the directory."""
    counting = world(sources=2)
    began = time.time_ns() // 1_000_000
    counting.send(10, keys=1)
    counting.drained()
    with counting.process("drain", directory=tmp_path / "other") as process:
        clock, stream_time = process.wait_for("opened").split()
    assert clock == "10"
    assert began <= int(stream_time) <= time.time_ns() // 1_000_000


def test_a_topic_with_fewer_partitions_is_not_read_by_the_tasks_beyond(world: World) -> None:
    """As in Kafka Streams: the number of tasks is the greatest number of partitions."""
    counting = world(sources=2, partitions=2)
    counting.send(70, partition=1)
    with counting.process("drain", partition=1) as process:
        assert process.ended() == 0, process.text()
        assert counting.stores_of(process)["counts"] == {f"k{i}": "10" for i in range(7)}


def test_a_directory_that_is_older_than_deletions_are_kept_is_wiped(world: World) -> None:
    """A compacted changelog forgets deletions after delete.retention.ms: what was deleted would stay."""
    counting = world(changelog={"cleanup.policy": "compact", "delete.retention.ms": "1"})
    counting.send(7)
    counting.drained()
    old = counting.copy_directory("early")
    counting.send(7)
    counting.drained()
    counting.put_back(old)
    with counting.process("drain", options=["-Dmillstream.kernel.recent.ms=0"]) as process:
        assert process.ended() == 0, process.text()
        assert "and its changelog does not keep deletions for so long" in process.text()
    counting.assert_exact()


def test_without_an_offset_the_policy_of_each_topic_decides(world: World) -> None:
    """`none` is an error that says what to do; `latest` reads what comes from then on."""
    counting = world(sources=2)
    counting.send(70)
    one, two = counting.sources
    with counting.process("drain", resets={two: "none"}) as process:
        failure = process.failure()
    assert failure.startswith(f"NoOffsetException: task 0_0: where to read {two}-0 is not known")
    assert "auto.offset.reset is none" in failure
    assert counting.drained(resets={one: "latest", two: "earliest"}) == {"counts": {}}


def test_an_offset_that_is_out_of_range_is_reset_as_the_topic_says(world: World) -> None:
    """Records were deleted before they were read: `earliest` goes on and warns, `none` is an error."""
    counting = world()
    counting.send(70)
    counting.drained()
    counting.send(70)
    client = AdminClient({"bootstrap.servers": counting.kafka.bootstrap_servers})
    (deleted,) = client.delete_records([NativePartition(counting.sources[0], 0, 133)]).values()
    deleted.result(30)
    with counting.process("drain", resets={counting.sources[0]: "none"}) as process:
        assert process.failure().startswith("NoOffsetException: task 0_0: where to read ")
    with counting.process("drain") as process:
        assert process.ended() == 0, process.text()
        assert "auto.offset.reset is earliest" in process.text()
        assert counting.stores_of(process)["counts"] == {f"k{i}": "11" for i in range(7)}


def test_what_is_committed_of_a_repartition_topic_is_deleted(world: World) -> None:
    """All of it, also what came while it ran; of other topics nothing."""
    counting = world(sources=2)
    inner, outer = counting.sources
    client = AdminClient({"bootstrap.servers": counting.kafka.bootstrap_servers})
    places = {NativePartition(topic, 0): OffsetSpec.earliest() for topic in (inner, outer)}

    def begins() -> list[int]:
        return [found.result(30).offset for found in client.list_offsets(places).values()]

    with counting.process(purged=[inner], purge_ms=50) as process:
        for round_ in (1, 2):
            for source in (0, 1):
                counting.send(70, source=source)
            wait_until(lambda n=round_ * 70: begins() == [n, 0], "committed records are deleted", 30)
        assert process.is_running()
    counting.drained()


def make_anew(world: TaskWorld, topic: str) -> None:
    world.kafka.delete_topic(topic)
    world.kafka.create_topic(topic, 1)


def test_a_topic_that_is_made_anew_while_the_task_runs_fails_it(world: World) -> None:
    """KIP-516, KIP-662: the exception has its name and both ids. One that is gone likewise."""
    counting = world(sources=2)
    counting.send(70)
    with counting.process() as process:
        process.wait_for("committed")
        make_anew(counting, counting.sources[1])
        failure = process.failure()
    assert failure.startswith(f"TopicLostException: topic '{counting.sources[1]}' ")
    with counting.process() as process:
        assert f"topic '{counting.sources[1]}' was deleted and made anew" in process.failure()
    counting.kafka.delete_topic(counting.sources[0])
    with counting.process() as process:
        assert process.failure() == f"TopicLostException: topic '{counting.sources[0]}' does not exist"


def test_a_topic_that_is_made_anew_while_no_client_runs_is_noticed(world: World, tmp_path: Path) -> None:
    """By the directory, or by the offsets of the other topics; else the state has no offsets."""
    counting = world(sources=2)
    counting.send(70)
    counting.drained()
    make_anew(counting, counting.sources[0])
    for directory in (counting.directory, tmp_path / "empty"):
        with counting.process(directory=directory) as process:
            failure = process.failure()
        assert failure.startswith(
            f"TopicLostException: topic '{counting.sources[0]}' was deleted and made anew"
        )
    alone = world()
    alone.send(70)
    alone.drained()
    make_anew(alone, alone.sources[0])
    with alone.process() as process:
        assert process.failure().startswith("TopicLostException")
    with alone.process(directory=tmp_path / "nothing") as process:
        assert process.failure().startswith(
            "NoOffsetException: task 0_0: store 'counts' has entries, but group"
        )


def test_a_changelog_that_is_made_anew_is_noticed(world: World, tmp_path: Path) -> None:
    """What was counted is lost, which is never silent: not with the directory, nor without."""
    counting = world()
    counting.send(70)
    counting.drained()
    make_anew(counting, counting.changelogs["counts"])
    for directory in (counting.directory, tmp_path / "empty"):
        with counting.process(directory=directory) as process:
            failure = process.failure()
        assert failure.startswith(f"TopicLostException: topic '{counting.changelogs['counts']}' was deleted")
