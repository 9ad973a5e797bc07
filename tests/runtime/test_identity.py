"""What has become of the topics and the checkpoint that a pipeline's progress belongs to."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from millstream import (
    LostCheckpointException,
    LostTopicException,
    Materialized,
    MissingSourceTopicException,
    StreamsBuilder,
)
from millstream.checkpoints.identity import (
    Found,
    Noted,
    Notes,
    Policies,
    TopicRole,
    TopicUse,
    What,
    compare,
    dropped_sentence,
    error_of,
    fresh_changelogs,
    mendable,
    note,
    topics_of,
)
from millstream.model import TopicPartition
from millstream.topology.pipeline import Scan

USES = (
    TopicUse("in", TopicRole.SOURCE),
    TopicUse("out", TopicRole.OUTPUT),
    TopicUse("app-n-changelog", TopicRole.CHANGELOG),
)
THERE = {
    "in": Found("1", 2, (0, 0), (9, 9)),
    "out": Found("2", 1),
    "app-n-changelog": Found("3", 2, (0, 0), (4, 4)),
}
NOTED = note(USES, THERE)
READ = {TopicPartition("in", 0): 5, TopicPartition("in", 1): 9}


def test_every_topic_of_a_pipeline_has_its_roles() -> None:
    """What it reads, by name or by pattern, what it writes, and where its dead letters go."""
    builder = StreamsBuilder()
    lines = builder.stream(re.compile("lines-.*")).merge(builder.stream(["one", "other"]))
    lines.to("copy")
    lines.group_by(lambda key, value: value).count(Materialized.as_("n")).to_stream().repartition().to("out")
    builder.table("users", materialized=Materialized.as_("users"))
    pipelines = builder.build().pipelines
    uses = {
        (use.topic, use.role)
        for pipeline in pipelines
        for use in topics_of(pipeline, "app", ["lines-b", "lines-a", "else"], "letters")
    }
    (between,) = {topic for topic, role in uses if role is TopicRole.REPARTITION}
    assert between.startswith("app-")
    assert uses == {
        ("lines-a", TopicRole.SOURCE),
        ("lines-b", TopicRole.SOURCE),
        ("one", TopicRole.SOURCE),
        ("other", TopicRole.SOURCE),
        ("users", TopicRole.TABLE),
        (between, TopicRole.REPARTITION),
        (between, TopicRole.REPARTITION_READ),
        ("copy", TopicRole.OUTPUT),
        ("out", TopicRole.OUTPUT),
        ("app-n-changelog", TopicRole.CHANGELOG),
        ("letters", TopicRole.DEAD_LETTERS),
    }


def test_notes_are_read_as_they_were_written_and_a_damaged_one_is_none() -> None:
    """A changelog's first offsets are noted too; those of sources move by themselves."""
    assert NOTED["app-n-changelog"] == Noted("3", 2, TopicRole.CHANGELOG, (0, 0))
    assert NOTED["in"].starts == ()
    notes = Notes(NOTED, (Scan("in", ("n",)), Scan("in")), {"n": ("string", "long")})
    assert Notes.parse(notes.to_bytes()) == notes
    for damaged in (None, b"", b"{", b"[]", b'{"topics": {"a": {}}}', b'{"topics": {"a": 1}}'):
        assert Notes.parse(damaged) is None


CHANGES = {
    "nothing has changed": ({}, None),
    "records were added": ({"in": Found("1", 2, (0, 0), (50, 60))}, None),
    "partitions were added": ({"in": Found("1", 3, (0, 0, 0), (9, 9, 0))}, None),
    "what was read has gone": ({"in": Found("1", 2, (5, 9), (9, 9))}, None),
    "source gone": ({"in": None}, ("in", What.DELETED)),
    "source made anew": ({"in": Found("7", 2, (0, 0), (9, 9))}, ("in", What.RECREATED)),
    "unread records gone": ({"in": Found("1", 2, (6, 0), (9, 9))}, ("in", What.EMPTIED)),
    "log ends before what was read": ({"in": Found("1", 2, (0, 0), (9, 8))}, ("in", What.EMPTIED)),
    "fewer partitions": ({"in": Found("", 1, (0,), (9,))}, ("in", What.SHRUNK)),
    "changelog gone": ({"app-n-changelog": None}, ("app-n-changelog", What.DELETED)),
    "changelog made anew": (
        {"app-n-changelog": Found("8", 2, (0, 0), (0, 0))},
        ("app-n-changelog", What.RECREATED),
    ),
    "changelog emptied": (
        {"app-n-changelog": Found("3", 2, (0, 4), (4, 4))},
        ("app-n-changelog", What.EMPTIED),
    ),
    "changelog of windows forgets by itself": (
        {"app-n-changelog": Found("3", 2, (0, 4), (4, 4), forgets=True)},
        None,
    ),
    "output gone": ({"out": None}, ("out", What.DELETED)),
    "output made anew": ({"out": Found("9", 1)}, None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_has_happened_is_told_apart_and_named(change: str) -> None:
    """Deleted, created again, emptied, smaller; and what is no harm is not told."""
    changed, expected = CHANGES[change]
    found = {name: there for name, there in {**THERE, **changed}.items() if there is not None}
    findings = compare("p0", USES, NOTED, found, positions=READ)
    assert [(each.topic, each.what) for each in findings] == ([] if expected is None else [expected])
    error = error_of(findings, "/checkpoints")
    if expected is None:
        assert error is None
        return
    topic, what = expected
    kind = MissingSourceTopicException if topic == "in" else LostTopicException
    assert isinstance(error, kind)
    assert error.topics == (topic,)
    told = {What.DELETED: error.deleted, What.RECREATED: error.recreated, What.EMPTIED: error.emptied}
    assert what not in told or told[what] == (topic,)
    way_out = {"in": "source.lost.policy", "out": "create", "app-n-changelog": "changelog.lost.policy"}[topic]
    assert f"'{topic}'" in str(error)
    assert way_out in str(error)


def test_the_facts_are_in_the_sentence() -> None:
    """Ids, offsets and partitions, so that nobody has to look for them."""
    found = {**THERE, "in": Found("7", 1, (0,), (9,))}
    (finding,) = compare("p0", USES, NOTED, found, positions=READ)
    assert finding.sentence == (
        "source topic 'in' was deleted and created again (topic id 1 then, 7 now; read up to offset 5 in "
        "partition 0, offset 9 in partition 1 of the old one; 2 partitions then, 1 now)"
    )


def test_without_notes_what_cannot_be_is_told_all_the_same() -> None:
    """A checkpoint of a version that noted nothing: it has read `in`, so that was there, and so was `n`'s."""
    findings = compare("p0", USES, None, {"out": THERE["out"]}, positions=READ)
    assert [(each.topic, each.what) for each in findings] == [
        ("in", What.DELETED),
        ("app-n-changelog", What.DELETED),
    ]
    assert compare("p0", USES, None, THERE, positions=READ) == ()
    changelog = "app-n-changelog"
    empty = {**THERE, changelog: Found("8", 2, (0, 0), (0, 0))}
    assert fresh_changelogs(USES, None, empty, READ) == {changelog}, "it may have been deleted"
    assert fresh_changelogs(USES, NOTED, empty, READ) == frozenset(), "its id tells"
    assert fresh_changelogs(USES, None, THERE, READ) == frozenset()
    assert fresh_changelogs(USES, None, empty, {}) == fresh_changelogs(USES, None, empty, None) == frozenset()


def test_what_is_not_there_has_to_be_created_before_it_can_be_read() -> None:
    """A policy alone is no way out."""
    for change, told in (("source gone", True), ("source made anew", False)):
        changed, _ = CHANGES[change]
        found = {name: there for name, there in {**THERE, **changed}.items() if there is not None}
        error = error_of(compare("p0", USES, NOTED, found, positions=READ), "/checkpoints")
        assert ("create the missing topics, set source.lost.policy" in str(error)) is told


def test_a_topic_of_a_pattern_that_is_gone_is_told() -> None:
    """It is in no pattern's matches any more, only in the notes."""
    noted = {**NOTED, "in-2": Noted("6", 1, TopicRole.SOURCE)}
    (finding,) = compare("p0", USES, noted, THERE, positions=READ)
    assert (finding.topic, finding.what, finding.by_pattern) == ("in-2", What.DELETED, False)


PATTERN = (re.compile("in-.*"),)
OF_PATTERN = (
    TopicUse("in-1", TopicRole.SOURCE, by_pattern=True),
    TopicUse("in-2", TopicRole.SOURCE, by_pattern=True),
)
TWO = {"in-1": Noted("5", 1, TopicRole.SOURCE), "in-2": Noted("6", 1, TopicRole.SOURCE)}
LEFT = {"in-1": Found("5", 1, (0,), (7,))}
BOTH_READ = {TopicPartition("in-1", 0): 7, TopicPartition("in-2", 0): 3}


@pytest.mark.parametrize("noted", [TWO, {"in-1": TWO["in-1"]}])
def test_a_topic_that_only_a_pattern_matched_is_dropped(noted: dict[str, Noted]) -> None:
    """Whatever the configuration says; also one that was read and never noted."""
    (gone,) = compare("p0", OF_PATTERN[:1], noted, LEFT, positions=BOTH_READ, patterns=PATTERN)
    assert (gone.topic, gone.what, gone.is_dropped) == ("in-2", What.DELETED, True)
    assert mendable(gone, Policies())
    planned = {TopicPartition("in-2", 0): 5}
    told = dropped_sentence("p0", gone, ["in-1"], BOTH_READ, planned)
    assert "the pipeline continues with what the pattern matches now: 'in-1'" in told
    assert "read of it: up to offset 3 in partition 0; at least these offsets" in told
    assert told.endswith("had not been read: 2 of partition 0")


@pytest.mark.parametrize("now", [Found("9", 1, (0,), (20,)), Found("9", 2, (0, 0), (20, 2))])
def test_another_topic_of_a_patterns_name_is_seen_even_if_the_old_one_was_never_noted(now: Found) -> None:
    """It has fewer partitions, or ends before what was read: Spark would take that for lost records."""
    read = {TopicPartition("in-1", 0): 7, TopicPartition("in-2", 0): 3, TopicPartition("in-2", 1): 3}
    noted = {"in-1": TWO["in-1"]}
    (gone,) = compare("p0", OF_PATTERN, noted, {**LEFT, "in-2": now}, positions=read, patterns=PATTERN)
    assert (gone.topic, gone.what, gone.is_dropped) == ("in-2", What.RECREATED, True)
    same = {**LEFT, "in-2": Found("9", 2, (0, 0), (20, 3))}
    assert compare("p0", OF_PATTERN, noted, same, positions=read, patterns=PATTERN) == ()


def test_another_topic_of_a_patterns_name_is_dropped_and_one_that_is_emptied_is_not() -> None:
    """And nothing is dropped that a source names as well."""
    another = {**LEFT, "in-2": Found("9", 1, (0,), (1,))}
    (gone,) = compare("p0", OF_PATTERN, TWO, another, positions=BOTH_READ, patterns=PATTERN)
    assert (gone.what, gone.is_dropped, mendable(gone, Policies())) == (What.RECREATED, True, True)
    assert "is read from the beginning" in dropped_sentence("p0", gone, ["in-1", "in-2"], {}, {})
    named = (OF_PATTERN[0], TopicUse("in-2", TopicRole.SOURCE))
    (gone,) = compare("p0", named, TWO, another, positions=BOTH_READ, patterns=PATTERN)
    assert (gone.is_dropped, mendable(gone, Policies())) == (False, False)
    emptied = {**LEFT, "in-2": Found("6", 1, (5,), (6,))}
    (gone,) = compare("p0", OF_PATTERN, TWO, emptied, positions=BOTH_READ, patterns=PATTERN)
    assert (gone.what, gone.is_dropped, mendable(gone, Policies())) == (What.EMPTIED, False, False)


def test_a_checkpoint_that_is_gone_is_told_by_what_is_left_in_kafka() -> None:
    """Changelogs with records, or offsets of the group; not when neither is there."""
    fresh = {**THERE, "app-n-changelog": replace(THERE["app-n-changelog"], ends=(0, 0))}
    committed = {TopicPartition("in", 1): 9, TopicPartition("other", 0): 3}
    (gone,) = compare("p0", USES, None, THERE, positions=None)
    assert gone.what is What.CHECKPOINT_GONE
    assert "changelog 'app-n-changelog' has records up to offset 4" in gone.sentence
    (gone,) = compare("p0", USES, None, fresh, positions=None, committed=committed)
    assert "the group has committed 'in' up to offset 9 in partition 1" in gone.sentence
    error = error_of([gone], "/somewhere")
    assert isinstance(error, LostCheckpointException)
    assert "/somewhere" in str(error)
    assert "millstream reset" in str(error)
    assert compare("p0", USES, None, fresh, positions=None) == ()
    assert compare("p0", USES, NOTED, fresh, positions=None) == (), "claimed, and then nothing was processed"
