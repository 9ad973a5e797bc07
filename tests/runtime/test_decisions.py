"""The runtime's pure decisions: assignment, fingerprints, topic checks."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from fake_ports import FakeCheckpointFiles
from millstream.checkpoints.checkpoints import FORMAT, Checkpoints, Fingerprint, fingerprint
from scenes import two_pipelines, word_count

from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.errors import CheckpointException, StreamsException, TopologyException
from millstream.runtime.topics.preparation import missing_sources, sink_topics, source_topics
from millstream.topology.topology import Topology

# --- fingerprints and checkpoints --------------------------------------------------------------------------


def topology(
    topic: str = "lines", store: str = "counts", *, filtered: bool = False, out: str = "out"
) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(topic)
    if filtered:
        stream = stream.filter(lambda key, value: value)
    stream.group_by_key().count(Materialized.as_(store)).to_stream().to(out)
    return builder.build()


def checkpoints(tmp_path: Path, **options: str) -> Checkpoints:
    config = StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "h:1",
            "state.dir": str(tmp_path),
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    return Checkpoints(config, tmp_path / "app")


def run_once(where: Checkpoints, program: Topology) -> None:
    """As a client and Spark do."""
    where.check(program.pipelines)
    for pipeline in program.pipelines:
        Path(where.root, pipeline.name).mkdir(parents=True, exist_ok=True)


def test_a_fingerprint_has_what_spark_resumes_by_position() -> None:
    """Sources, stateful steps, internal topics."""
    (pipeline,) = word_count().pipelines
    assert fingerprint(pipeline) == Fingerprint(("lines",), ("Aggregate counts",), (), ("counts aggregate",))


def test_a_pattern_is_part_of_the_fingerprint() -> None:
    """By its text."""
    builder = StreamsBuilder()
    builder.stream(re.compile("lines-.*")).to("out")
    (pipeline,) = builder.build().pipelines
    assert fingerprint(pipeline).reads == ("pattern lines-.*",)


def test_the_same_program_resumes(tmp_path: Path) -> None:
    """Nothing is said."""
    run_once(checkpoints(tmp_path), topology())
    checkpoints(tmp_path).check(topology().pipelines)


def test_stateless_steps_and_outputs_may_change(tmp_path: Path) -> None:
    """Spark resumes without them."""
    run_once(checkpoints(tmp_path), topology())
    checkpoints(tmp_path).check(topology(filtered=True, out="elsewhere").pipelines)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (topology(topic="words"), "reads: was 'lines', now 'words'"),
        (topology(store="totals"), "fills stores: was 'Aggregate counts', now 'Aggregate totals'"),
        (two_pipelines(), "fills stores: was 'Aggregate counts', now none"),
    ],
)
def test_a_checkpoint_of_another_program_is_refused(changed: Topology, told: str, tmp_path: Path) -> None:
    """With what changed, and the ways out; the old fingerprint stays."""
    run_once(checkpoints(tmp_path), topology())
    for _ in range(2):
        with pytest.raises(TopologyException, match=told):
            checkpoints(tmp_path).check(changed.pipelines)


@pytest.mark.parametrize(("format", "made"), [(None, "an older"), (1, "an older"), (99, "a newer")])
def test_a_checkpoint_of_another_format_is_refused(format: int | None, made: str, tmp_path: Path) -> None:
    """Those that note none are the oldest; also where the program has changed besides. It stays as it is."""
    run_once(checkpoints(tmp_path), topology())
    file = tmp_path / "app" / "checkpoints" / "p0.topology.json"
    noted = json.loads(file.read_text())
    assert noted.pop("format") == FORMAT
    before = json.dumps(noted if format is None else {**noted, "format": format})
    file.write_text(before)
    for program in (topology(), two_pipelines()):
        with pytest.raises(TopologyException, match=f"made by {made} version.*`millstream reset`"):
            checkpoints(tmp_path).check(program.pipelines)
    assert file.read_text() == before
    checkpoints(tmp_path).delete()
    checkpoints(tmp_path).check(topology().pipelines)


def test_deleting_the_checkpoints_starts_afresh(tmp_path: Path) -> None:
    """Through `delete`, or by hand."""
    where = checkpoints(tmp_path)
    run_once(where, topology())
    where.delete()
    where.check(two_pipelines().pipelines)
    where.delete()
    where.delete()


def test_a_damaged_fingerprint_is_told_and_written_anew_once_it_is_deleted(tmp_path: Path) -> None:
    """Without it nobody knows whose offsets and state these are."""
    where = checkpoints(tmp_path)
    run_once(where, topology())
    file = tmp_path / "app" / "checkpoints" / "p0.topology.json"
    for content in ("", "[]", '{"reads": 3}'):
        file.write_text(content)
        with pytest.raises(
            CheckpointException, match=r"p0\.topology\.json'.*cannot be read.*delete it"
        ) as caught:
            where.check(topology().pipelines)
        assert caught.value.path == str(file)
        assert file.read_text() == content
    file.unlink()
    where.check(topology().pipelines)
    assert "counts" in file.read_text()


def test_a_location_of_ones_own_has_a_folder_for_each_application(tmp_path: Path) -> None:
    """A path, a file URI, or a URI that only Spark can reach."""
    assert checkpoints(tmp_path).root == str(tmp_path / "app" / "checkpoints")
    own = checkpoints(tmp_path, checkpoint_location=str(tmp_path / "cp") + "/")
    assert own.root == str(tmp_path / "cp" / "app")
    uri = checkpoints(tmp_path, checkpoint_location=f"file://{tmp_path}/cp")
    assert uri.root == str(tmp_path / "cp" / "app")
    remote = checkpoints(tmp_path, checkpoint_location="hdfs://nn:8020/cp")
    assert remote.root == "hdfs://nn:8020/cp/app"


def test_remote_checkpoints_are_checked_where_they_are_and_not_deleted(tmp_path: Path) -> None:
    """By whoever can reach them, which takes Spark: what another machine noted there is found."""
    remote = checkpoints(tmp_path, checkpoint_location="s3a://bucket/cp")
    remote.check(topology().pipelines)
    remote.check(two_pipelines().pipelines)
    assert not (tmp_path / "app").exists(), "nothing is kept on this machine"
    there = FakeCheckpointFiles()
    remote.check(topology().pipelines, there)
    there.write("p0.1/offsets/0", b"")
    with pytest.raises(TopologyException, match="s3a://bucket/cp/app/p0"):
        remote.check(two_pipelines().pipelines, there)
    with pytest.raises(StreamsException, match="not a local path"):
        remote.delete()


# --- topics ------------------------------------------------------------------------------------------------


def test_the_topics_of_a_program_are_found_in_its_pipelines() -> None:
    """Sources and tables, sinks with a name; those of patterns by what exists."""
    builder = StreamsBuilder()
    builder.stream(re.compile("logs-[0-9]+")).to("out")
    builder.stream(["b", "a"]).to(lambda key, value, record: value)
    builder.table("t")
    pipelines = builder.build().pipelines
    assert source_topics(pipelines) == ("a", "b", "t")
    assert sink_topics(pipelines) == ("out",)


def test_missing_topics_are_all_named() -> None:
    """Kafka's own internal topics are no suggestion."""
    internal = ["app-users-changelog", "users-changelog", "users-repartition"]
    error = missing_sources(["orders", "users"], ["order", "__users", "x", *internal], "h:1")
    assert error.topics == ("orders", "users")
    assert str(error) == (
        "source topics 'orders' (did you mean 'order'?), 'users' do not exist on 'h:1'; create them, "
        "or correct the topology. If the handler answers REPLACE_THREAD, the client checks again"
    )
