"""The runtime's pure decisions: assignment, supervision, fingerprints, topic checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenes import two_pipelines, word_count

from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.errors import StreamsException, TopologyException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.assignment import StorePart, distribute
from millstream.runtime.checkpoints import Checkpoints, Fingerprint, fingerprint
from millstream.runtime.preparation import matched_topics, missing_sources, sink_topics, source_topics
from millstream.runtime.states import State
from millstream.runtime.supervision import CloseToError, Failure, LogFailure, Response, View, decide
from millstream.topology.nodes import Store
from millstream.topology.topology import Topology

# --- assignment --------------------------------------------------------------------------------------------


def part(subtopology: int, partition: int, store: str = "s") -> StorePart:
    return StorePart(
        TaskId(subtopology, partition), Store(store), TopicPartition(f"{store}-changelog", partition)
    )


@settings(max_examples=100, deadline=None)
@given(
    pipelines=st.integers(0, 6),
    tasks=st.sets(st.tuples(st.integers(0, 3), st.integers(0, 7)), max_size=20),
    stores=st.integers(1, 3),
    threads=st.integers(1, 5),
)
def test_everything_is_given_once_and_evenly(
    pipelines: int, tasks: set[tuple[int, int]], stores: int, threads: int
) -> None:
    """Each pipeline and task has one owner, a task stays whole, and loads differ by one at most."""
    names = [f"p{number}" for number in range(pipelines)]
    parts = [part(*task, store=f"s{number}") for task in tasks for number in range(stores)]
    shares = distribute(names, parts, [f"t{number}" for number in range(threads)])
    assert sorted(name for share in shares.values() for name in share.pipelines) == names
    owned = [task for share in shares.values() for task in share.tasks]
    assert sorted(owned) == sorted({each.task_id for each in parts})
    assert sum(len(share.parts) for share in shares.values()) == len(parts)
    loads = [len(share.pipelines) + len(share.tasks) for share in shares.values()]
    assert max(loads) - min(loads) <= 1


def test_the_order_in_which_parts_are_given_does_not_matter() -> None:
    """The same client always makes the same assignment."""
    parts = [part(0, number) for number in range(5)]
    assert distribute(["p0"], parts, ["a", "b"]) == distribute(["p0"], parts[::-1], ["a", "b"])


def test_no_threads_get_nothing() -> None:
    """There is nobody to give it to."""
    assert distribute(["p0"], [part(0, 0)], []) == {}


# --- supervision -------------------------------------------------------------------------------------------

FAILURE = Failure("t1", StreamsException("poison"))


@pytest.mark.parametrize("state", [State.RUNNING, State.REBALANCING])
def test_shutdown_client_logs_and_closes_to_error(state: State) -> None:
    """KIP-671's default, in upstream's words."""
    log, close = decide(Response.SHUTDOWN_CLIENT, FAILURE, View(state, 1))
    assert log == LogFailure(
        "Encountered the following exception during processing and the registered exception handler opted to "
        "SHUTDOWN_CLIENT. The streams client is going to shut down now."
    )
    assert close == CloseToError()


@pytest.mark.parametrize("state", [state for state in State if not state.is_running_or_rebalancing])
def test_a_failure_while_closing_is_only_logged(state: State) -> None:
    """The client ends anyway, and as what it was going to."""
    (log,) = decide(Response.SHUTDOWN_CLIENT, FAILURE, View(state, 1))
    assert isinstance(log, LogFailure)
    assert f"while the client is {state}" in log.message


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
    assert fingerprint(pipeline) == Fingerprint(("lines",), ("Aggregate counts",), ())


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


def test_deleting_the_checkpoints_starts_afresh(tmp_path: Path) -> None:
    """Through `delete`, or by hand."""
    where = checkpoints(tmp_path)
    run_once(where, topology())
    where.delete()
    where.check(two_pipelines().pipelines)
    where.delete()
    where.delete()


def test_a_damaged_fingerprint_is_written_anew(tmp_path: Path) -> None:
    """It is a safeguard, not the data."""
    where = checkpoints(tmp_path)
    run_once(where, topology())
    file = tmp_path / "app" / "checkpoints" / "p0.topology.json"
    for content in ("", "[]", '{"reads": 3}'):
        file.write_text(content)
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


def test_remote_checkpoints_are_checked_and_not_deleted(tmp_path: Path) -> None:
    """Their fingerprints are in the state directory."""
    remote = checkpoints(tmp_path, checkpoint_location="s3a://bucket/cp")
    remote.check(topology().pipelines)
    with pytest.raises(TopologyException, match="s3a://bucket/cp/app/p0"):
        remote.check(two_pipelines().pipelines)
    with pytest.raises(StreamsException, match="not a path of this machine"):
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
    assert matched_topics(pipelines, ["logs-1", "logs-x", "my-logs-1", "logs-22"]) == ("logs-1", "logs-22")


def test_missing_topics_are_all_named() -> None:
    """Kafka's own internal topics are no suggestion."""
    error = missing_sources(["orders", "users"], ["order", "__users", "x"], "h:1")
    assert error.topics == ("orders", "users")
    assert str(error) == (
        "source topics 'orders' (did you mean 'order'?), 'users' do not exist on 'h:1'; create them, "
        "or correct the topology, then start a new client"
    )
