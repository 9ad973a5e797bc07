"""The watch over source topics (KIP-662): what counts as news, and who is told what, once."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from fake_ports import FakeTopics
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from millstream.broker import EmbeddedKafka
from millstream.config import StreamsConfig
from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.errors import LostTopicException, MissingSourceTopicException
from millstream.kafka.topics import KafkaTopics
from millstream.ports import TopicDescription
from millstream.runtime.topics.topic_news import (
    TopicNews,
    Written,
    compare,
    lost_errors,
    matching_topics,
    missing_error,
    source_patterns,
    written_topics,
)
from millstream.runtime.topics.topic_uses import TopicRole
from millstream.runtime.topics.topic_watch import TopicWatch, pause_after

LOGS = re.compile("logs-.*")


def there(**topics: str | tuple[str, int]) -> dict[str, TopicDescription]:
    """Topics by name, each with its id, or its id and its partitions."""
    found = {}
    for key, value in topics.items():
        name = key.replace("_", "-")
        topic_id, partitions = (value, 1) if isinstance(value, str) else value
        found[name] = TopicDescription(name, partitions, topic_id)
    return found


# --- what counts as news -----------------------------------------------------------------------------------

CASES: dict[str, tuple[Any, Any, tuple[str, ...], tuple[re.Pattern[str], ...], TopicNews]] = {
    "nothing": (there(a="1"), there(a="1"), ("a",), (), TopicNews()),
    "never there": ({}, {}, ("b", "a"), (), TopicNews(missing=("a", "b"))),
    "one of two deleted": (
        there(a="1", b="2"),
        there(a="1"),
        ("a", "b"),
        (),
        TopicNews(deleted=("b",)),
    ),
    "re-created": (there(a="1"), there(a="9"), ("a",), (), TopicNews(recreated={"a": ("1", "9")})),
    "re-created with more partitions": (
        there(a="1"),
        there(a=("9", 5)),
        ("a",),
        (),
        TopicNews(recreated={"a": ("1", "9")}),
    ),
    "an id that is not known": (there(a=""), there(a="9"), ("a",), (), TopicNews()),
    "grown": (there(a="1"), there(a=("1", 4)), ("a",), (), TopicNews(grown={"a": (1, 4)})),
    "arrived": ({}, there(a="1"), ("a",), (), TopicNews(arrived=("a",))),
    "a pattern's new topic": (
        there(logs_1="1"),
        there(logs_1="1", logs_2=("2", 3)),
        (),
        (LOGS,),
        TopicNews(appeared={"logs-2": 3}),
    ),
    "one of a pattern's topics": (
        there(logs_1="1", logs_2="2"),
        there(logs_1="1"),
        (),
        (LOGS,),
        TopicNews(dropped=("logs-2",)),
    ),
    "one of a pattern's topics that a source also names": (
        there(logs_1="1", logs_2="2"),
        there(logs_1="1"),
        ("logs-2",),
        (LOGS,),
        TopicNews(deleted=("logs-2",)),
    ),
    "a pattern's topic that is another one now": (
        there(logs_1="1", logs_2="2"),
        there(logs_1="1", logs_2=("9", 3)),
        (),
        (LOGS,),
        TopicNews(dropped=("logs-2",), appeared={"logs-2": 3}),
    ),
    "one of two patterns without topics": (
        there(logs_1="1", other_1="2"),
        there(other_1="2"),
        (),
        (LOGS, re.compile("logs-1|other-.*")),
        TopicNews(deleted=("logs-1",), unmatched=("logs-.*",)),
    ),
    "a pattern without topics": (
        there(logs_1="1"),
        {},
        (),
        (LOGS,),
        TopicNews(deleted=("logs-1",), unmatched=("logs-.*",)),
    ),
    "a pattern that never matched": ({}, {}, (), (LOGS,), TopicNews()),
}


@pytest.mark.parametrize("case", CASES)
def test_the_news_is_what_has_changed_since_the_start(case: str) -> None:
    """Each row of the table."""
    known, now, names, patterns, expected = CASES[case]
    assert compare(known, now, names=names, patterns=patterns) == expected


TOPICS = st.dictionaries(
    st.sampled_from(["a", "b", "logs-1", "logs-2"]), st.tuples(st.sampled_from("123"), st.integers(1, 3))
)


@given(TOPICS, TOPICS)
def test_each_topic_is_in_one_kind_of_news_at_most(
    before: Mapping[str, tuple[str, int]], after: Mapping[str, tuple[str, int]]
) -> None:
    """And nothing is bad exactly when every topic of before, and every named one, is there as it was, but
    for those that a pattern can do without.
    """
    known = {name: TopicDescription(name, count, each) for name, (each, count) in before.items()}
    now = {name: TopicDescription(name, count, each) for name, (each, count) in after.items()}
    news = compare(known, now, names=["a", "b"], patterns=[LOGS])
    kinds = [*news.missing, *news.deleted, *news.recreated, *news.grown, *news.appeared, *news.arrived]
    assert len(kinds) == len(set(kinds))
    changed = {name for name, old in known.items() if name not in now or now[name].topic_id != old.topic_id}
    rest = any(name.startswith("logs-") for name in now)
    assert set(news.dropped) == ({name for name in changed if name.startswith("logs-")} if rest else set())
    assert set(news.dropped) & now.keys() <= news.appeared.keys()
    fine = changed <= set(news.dropped) and all(name in now for name in ("a", "b"))
    assert (missing_error(news, "h:1") is None) == (not news.incident) == fine


def test_the_exception_names_each_topic_and_what_happened_to_it() -> None:
    """It also has the servers, both ids, and what to do next."""
    error = missing_error(
        TopicNews(("m",), ("d", "e"), {"r": ("id1", "id2")}, ("logs-.*",)), "one:9092,two:9092"
    )
    assert error is not None
    assert (error.topics, error.deleted, error.recreated) == (("d", "e", "m", "r"), ("d", "e"), ("r",))
    text = str(error)
    assert text.startswith(
        "source topics on 'one:9092,two:9092': 'm' does not exist; 'd', 'e' were deleted while the client "
        "was running; 'r' was deleted and created again (topic id id1 then, id2 now); no topic matches the "
        "pattern 'logs-.*' any longer. Next: create the missing ones"
    )
    assert "millstream reset" in text
    assert "KafkaStreams.reset()" in text
    tables = missing_error(TopicNews(deleted=("u",)), "h:1", of_global_tables=True)
    assert tables is not None
    assert str(tables).startswith("topics of global tables on 'h:1': 'u' was deleted while the client was")
    assert "refills the table" in str(tables)
    assert "reset" not in str(tables)
    assert missing_error(TopicNews(grown={"a": (1, 2)}), "h:1") is None


def test_patterns_match_neither_kafkas_topics_nor_the_applications_own() -> None:
    """Spark does not read those either."""
    names = [
        "a",
        "__consumer_offsets",
        "app-counts-changelog",
        "app-x-repartition",
        "app-x",
        "other-y-changelog",
    ]
    assert matching_topics([re.compile(".*")], names, "app") == ("a", "app-x", "other-y-changelog")


def test_the_patterns_of_a_program_are_those_of_its_sources() -> None:
    """Each once."""
    builder = StreamsBuilder()
    builder.stream(LOGS).to("out")
    builder.stream("a").to("out")
    assert source_patterns(builder.build().pipelines) == (LOGS,)


# --- what is written ---------------------------------------------------------------------------------------


def test_what_a_program_writes_with_its_roles_and_pipelines() -> None:
    """Outputs, changelogs, repartition topics and dead letters; a topic that is also read is a source."""
    builder = StreamsBuilder()
    lines = builder.stream("a")
    lines.to("out")
    lines.to("a-too")
    builder.stream("a-too").to("out")
    first = lines.group_by(lambda r: r.value).count(Materialized.as_("first"))
    first.to_stream().group_by(lambda r: r.key).count(Materialized.as_("second"))
    topology = builder.build()
    found = written_topics(topology.pipelines, "app", dead_letters="dead", sources=topology.source_topics)
    kept = [[store.name for store in pipeline.stores] for pipeline in topology.pipelines]
    assert kept == [[], [], ["first"], ["second"]]
    assert [(each.called, sorted(each.pipelines)) for each in found if "repartition" not in each.name] == [
        ("changelog 'app-first-changelog'", ["p2"]),
        ("changelog 'app-second-changelog'", ["p3"]),
        ("dead letter topic 'dead'", ["p0", "p1", "p2", "p3"]),
        ("output topic 'out'", ["p0", "p1"]),
    ]
    between = [each for each in found if each.role is TopicRole.REPARTITION]
    assert [sorted(each.pipelines) for each in between] == [["p0", "p2"], ["p2", "p3"]]


def test_each_pipeline_is_told_what_it_loses_and_what_to_do() -> None:
    """The message has the role of each topic; an internal topic matters more than an output."""
    written = (
        Written("out", TopicRole.OUTPUT, frozenset({"p0", "p1"})),
        Written("dead", TopicRole.DEAD_LETTERS, frozenset({"p1"})),
        Written("app-s-changelog", TopicRole.CHANGELOG, frozenset({"p0"})),
        Written("app-r-repartition", TopicRole.REPARTITION, frozenset({"p2"})),
    )
    news = TopicNews(
        deleted=("app-r-repartition", "out"), recreated={"app-s-changelog": ("1", "2"), "dead": ("3", "4")}
    )
    errors = lost_errors(news, written, "h:1")
    assert list(errors) == ["p0", "p1", "p2"]
    assert (errors["p0"].topics, errors["p0"].deleted, errors["p0"].recreated) == (
        ("out", "app-s-changelog"),
        ("out",),
        ("app-s-changelog",),
    )
    for pipeline, sentences in {
        "p0": (
            "on 'h:1': output topic 'out' was deleted while",
            "'app-s-changelog' was deleted and created again (topic",
        ),
        "p1": ("dead letter topic 'dead' was deleted and created again", "REPLACE_THREAD"),
        "p2": ("repartition topic 'app-r-repartition' was deleted", "`millstream reset`"),
    }.items():
        assert all(sentence in str(errors[pipeline]) for sentence in sentences), errors[pipeline]
    assert lost_errors(TopicNews(grown={"out": (1, 2)}), written, "h:1") == {}


# --- who is told what --------------------------------------------------------------------------------------


class Told:
    """What a watch has told, in order."""

    def __init__(self) -> None:
        self.missing: list[MissingSourceTopicException] = []
        self.grown: list[Mapping[str, tuple[int, TopicDescription]]] = []
        self.cleared: list[tuple[str, ...]] = []
        self.lost: list[tuple[str, LostTopicException]] = []
        self.dropped: list[tuple[tuple[str, ...], int]] = []


class Looks(FakeTopics):
    """Counts looks, and can give a wrong answer once."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        super().__init__(topics)
        self.looks = 0
        self.lie = False

    def look(self, names: Any, *, patient: bool = False) -> dict[str, TopicDescription]:
        found = super().look(names, patient=patient)
        self.looks += 1
        if self.lie:
            self.lie = False
            return {}
        return found


Start = Callable[..., tuple[TopicWatch, Told]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts watches that look every few milliseconds, and closes them."""
    made: list[TopicWatch] = []

    def start(topics: Any, *names: str, patterns: Any = (), **options: Any) -> tuple[TopicWatch, Told]:
        told = Told()
        watch = TopicWatch(
            topics,
            client_id="app-1",
            application_id="app",
            names=names,
            patterns=patterns,
            servers="fake:9092",
            **{
                "on_missing": told.missing.append,
                "on_grown": told.grown.append,
                "on_cleared": told.cleared.append,
                "on_dropped": lambda names, number: told.dropped.append((names, number)),
                "on_lost": lambda pipeline, error: told.lost.append((pipeline, error)),
                "interval_s": 0.005,
                "list_every_s": 0.01,
                **options,
            },
        )
        made.append(watch)
        watch.baseline(
            topics.describe(
                {
                    *names,
                    *(each.name for each in options.get("written", ())),
                    *matching_topics(patterns, topics.names() if patterns else (), "app"),
                }
            )
        )
        watch.start()
        return watch, told

    yield start
    for watch in made:
        assert watch.close()


def looked(topics: Looks, times: int = 5) -> None:
    """Wait for some more looks."""
    before = topics.looks
    wait_until(lambda: topics.looks >= before + times, "more looks")


def test_a_deleted_topic_is_told_once(start: Start) -> None:
    """Later looks do not repeat it; `look_now` and `missing_topics` report it."""
    topics = Looks({"a": 1, "b": 1})
    watch, told = start(topics, "a", "b")
    assert watch.look_now() is None
    assert watch.missing_topics() == ()
    topics.remove("b")
    wait_until(lambda: told.missing, "told")
    looked(topics)
    (error,) = told.missing
    assert (error.topics, error.deleted) == (("b",), ("b",))
    assert watch.look_now() is error
    assert watch.missing_topics() == ("b",)


def test_more_of_it_is_told_again_and_less_is_not(start: Start) -> None:
    """Each time with all topics concerned; a topic that is created again is news, too."""
    topics = Looks({"a": 1, "b": 1})
    watch, told = start(topics, "a", "b", "m")
    wait_until(lambda: len(told.missing) == 1, "m is missing")
    topics.remove("a")
    wait_until(lambda: len(told.missing) == 2, "a is deleted")
    assert told.missing[1].topics == ("a", "m")
    topics.add("m", 2)
    wait_until(lambda: told.cleared, "m is there")
    assert told.cleared == [("m",)]
    assert watch.missing_topics() == ("a",)
    topics.add("a", 1)
    wait_until(lambda: len(told.missing) == 3, "a is another topic")
    assert told.missing[2].recreated == ("a",)
    looked(topics)
    assert (len(told.missing), told.cleared, told.grown) == (3, [("m",)], [])


def test_a_topic_that_was_recreated_between_two_looks_is_seen(start: Start) -> None:
    """Its id is another one."""
    topics = Looks({"a": 1})
    _, told = start(topics, "a")
    topics.recreate("a")
    wait_until(lambda: told.missing, "told")
    assert told.missing[0].recreated == ("a",)


def test_a_missing_topic_that_comes_and_is_deleted_is_deleted(start: Start) -> None:
    """Once it exists, it is one of the topics that are read."""
    topics = Looks({})
    _, told = start(topics, "a")
    wait_until(lambda: told.missing, "missing")
    topics.add("a", 1)
    wait_until(lambda: told.cleared, "there")
    topics.remove("a")
    wait_until(lambda: len(told.missing) == 2, "deleted")
    assert [error.deleted for error in told.missing] == [(), ("a",)]


def test_one_wrong_answer_is_no_alarm(start: Start) -> None:
    """The second look has it right."""
    topics = Looks({"a": 1})
    watch, told = start(topics, "a")
    for _ in range(5):
        topics.lie = True
        looked(topics, 3)
    assert told.missing == []
    assert watch.missing_topics() == ()


def test_partitions_that_are_added_are_told_once(start: Start) -> None:
    """The report has the old number and the topic; a pattern's new topic had none."""
    topics = Looks({"a": 1, "logs-1": 2})
    _, told = start(topics, "a", patterns=(LOGS,))
    topics.grow("a", 3)
    wait_until(lambda: told.grown, "grown")
    topics.add("logs-2", 4)
    wait_until(lambda: len(told.grown) == 2, "appeared")
    looked(topics)
    now = topics.look(["a", "logs-2"])
    assert [now[name].partitions for name in ("a", "logs-2")] == [3, 4]
    assert told.grown == [{"a": (1, now["a"])}, {"logs-2": (0, now["logs-2"])}]
    assert told.missing == []


def test_one_of_a_patterns_topics_that_is_gone_is_dropped_and_a_new_one_of_its_name_is_new(
    start: Start,
) -> None:
    """Also one that was created again between two looks; and no incident is left behind."""
    topics = Looks({"logs-1": 1, "logs-2": 1})
    watch, told = start(topics, patterns=(LOGS,))
    topics.remove("logs-2")
    wait_until(lambda: told.dropped, "told that it is gone")
    assert (watch.dropped(), watch.look_now()) == (("logs-2",), None)
    topics.add("logs-2", 3)
    wait_until(lambda: told.grown, "told that there is a new one")
    topics.recreate("logs-1")
    wait_until(lambda: len(told.grown) == 2, "told that there is another one")
    assert told.dropped == [(("logs-2",), 1), (("logs-1",), 2)]
    assert [(name, then) for grown in told.grown for name, (then, _) in grown.items()] == [
        ("logs-2", 0),
        ("logs-1", 0),
    ]
    assert (told.missing, watch.dropped(5)) == ([], ("logs-2", "logs-1"))


def test_a_pattern_that_no_longer_matches_any_topic_is_told(start: Start) -> None:
    """The error has the pattern."""
    topics = Looks({"logs-1": 1})
    _, told = start(topics, patterns=(LOGS,))
    topics.remove("logs-1")
    wait_until(lambda: told.missing, "told")
    assert told.missing[0].deleted == ("logs-1",)
    assert "no topic matches the pattern 'logs-.*' any longer" in str(told.missing[0])


def test_a_cluster_that_is_away_tells_nothing(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however long; what has happened meanwhile is told when it is back."""
    topics = Looks({"a": 1})
    watch, told = start(topics, "a")
    topics.away = True
    with caplog.at_level("INFO", "millstream.runtime.topics.topic_watch"):
        wait_until(lambda: watch._failed_looks >= 3, "several failed looks")
        assert watch.look_now() is None
        topics.remove("a")
        topics.away = False
        wait_until(lambda: told.missing, "told")
    assert [record.levelname for record in caplog.records if "be checked" in record.message] == [
        "WARNING",
        "INFO",
    ]


def test_an_output_that_is_gone_is_told_until_it_is_back(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Its writers hear of it once each time. Any topic of that name is written to."""
    out = Written("out", TopicRole.OUTPUT, frozenset({"p1"}))
    topics = Looks({"a": 1, "out": 1})
    watch, told = start(topics, "a", written=(out,))
    assert watch.lost("p1") is None
    with caplog.at_level("INFO", "millstream.runtime.topics.topic_watch"):
        for times in (1, 2):
            topics.remove("out")
            wait_until(lambda: len(told.lost) == times, "told that it is gone")  # noqa: B023
            assert (told.lost[-1][0], told.lost[-1][1].deleted) == ("p1", ("out",))
            assert isinstance(watch.lost("p1"), LostTopicException)
            assert (watch.lost("p0"), watch.look_now()) == (None, None), "nobody else is concerned"
            topics.add("out", 3)
            assert watch.lost("p1") is None
    assert "output topics exist again: 'out'" in caplog.text
    topics.recreate("out")
    wait_until(lambda: len(told.lost) == 3, "told that it is another one")
    assert told.lost[-1][1].recreated == ("out",)
    looked(topics)
    assert watch.lost("p1") is None, "whoever begins anew writes to the new one"
    topics.grow("out", 5)
    looked(topics)
    assert (len(told.lost), told.missing, told.grown, told.cleared) == (3, [], [], [])


def test_an_internal_topic_that_is_gone_stays_an_incident(start: Start) -> None:
    """A new one of its name has not what was in it: whoever begins anew is told, too."""
    changelog = Written("app-s-changelog", TopicRole.CHANGELOG, frozenset({"p0"}))
    topics = Looks({"a": 1, "app-s-changelog": 2})
    watch, told = start(topics, "a", written=(changelog,))
    topics.recreate("app-s-changelog")
    wait_until(lambda: told.lost, "told")
    looked(topics)
    ((pipeline, error),) = told.lost
    assert (pipeline, error.recreated) == ("p0", ("app-s-changelog",))
    assert isinstance(watch.look_now(), LostTopicException)
    assert isinstance(watch.lost("p0"), LostTopicException)
    assert watch.missing_topics() == (), "no source is missing"


def test_an_output_that_comes_later_is_watched_from_then_on(start: Start) -> None:
    """It need not exist before records reach it."""
    topics = Looks({"a": 1})
    watch, told = start(topics, "a", written=(Written("out", TopicRole.OUTPUT, frozenset({"p0"})),))
    looked(topics)
    assert (told.lost, watch.lost("p0")) == ([], None)
    topics.add("out", 1)
    looked(topics)
    topics.remove("out")
    wait_until(lambda: told.lost, "told")


def test_very_many_topics_are_looked_at_in_slices(start: Start) -> None:
    """Each of them in turn; who asks gets an answer about all."""

    class Counting(Looks):
        most = 0

        def look(self, names: Any, *, patient: bool = False) -> dict[str, TopicDescription]:
            self.most = max(self.most, len(set(names)))
            return super().look(names, patient=patient)

    written = tuple(Written(f"out-{n:04}", TopicRole.OUTPUT, frozenset({"p0"})) for n in range(1200))
    topics = Counting({"a": 1, **{each.name: 1 for each in written}})
    watch, told = start(topics, "a", written=written, slice_size=100)
    looked(topics, 20)
    for name in ("out-0000", "out-0777", "out-1199"):
        topics.remove(name)
        wait_until(lambda: told.lost and name in told.lost[-1][1].topics, name)  # noqa: B023
    topics.remove("out-0500")
    lost = watch.lost("p0")
    assert lost is not None
    assert lost.deleted == ("out-0000", "out-0500", "out-0777", "out-1199")
    assert topics.most == 100
    assert (pause_after(0.001, 0.1), pause_after(0.5, 0.1)) == (0.1, 2.0)


def test_looking_now_does_not_wait_for_the_next_look(start: Start) -> None:
    """It sees the change before the watch reports it."""
    topics = Looks({"a": 1})
    watch, _ = start(topics, "a", interval_s=3600)
    topics.remove("a")
    error = watch.look_now(20)
    assert error is not None
    assert error.deleted == ("a",)


def test_looking_now_ends_at_its_deadline(start: Start) -> None:
    """It returns what was confirmed last."""
    held = threading.Event()

    class Slow(Looks):
        def look(self, names: Any, *, patient: bool = False) -> dict[str, TopicDescription]:
            held.wait(20)
            return super().look(names, patient=patient)

    watch, _ = start(Slow({"a": 1}), "a")
    before = time.monotonic()
    assert watch.look_now(0.05) is None
    assert time.monotonic() - before < 5
    held.set()


def test_who_is_told_may_fail_ask_and_close(start: Start) -> None:
    """The watch goes on after a failure, and nobody waits for himself."""
    topics = Looks({"a": 1, "b": 1})
    seen: list[MissingSourceTopicException | None] = []

    def take(error: MissingSourceTopicException) -> None:
        seen.append(watch.look_now(20))
        if len(seen) == 2:
            assert watch.close(20) is False
        raise RuntimeError("not taken in")

    watch, _ = start(topics, "a", "b", on_missing=take)
    topics.remove("a")
    wait_until(lambda: len(seen) == 1, "told of a")
    topics.remove("b")
    wait_until(lambda: len(seen) == 2, "told of b")
    assert [error and error.topics for error in seen] == [("a",), ("a", "b")]
    assert watch.close()


def test_closing_ends_it_in_any_state(start: Start) -> None:
    """It is closed before the start, twice, and while it waits; nothing is reported afterwards."""
    topics = Looks({"a": 1})
    watch, told = start(topics, "a", interval_s=3600)
    before = time.monotonic()
    assert watch.close()
    assert watch.close()
    assert time.monotonic() - before < 5
    topics.remove("a")
    assert watch.look_now() is None
    nothing, _ = start(topics)
    assert nothing.close()
    assert told.missing == []


def test_a_new_baseline_begins_anew(start: Start) -> None:
    """What the client now starts with is what counts."""
    topics = Looks({"a": 1})
    watch, told = start(topics, "a")
    topics.recreate("a")
    wait_until(lambda: told.missing, "told")
    watch.baseline(topics.describe(["a"]))
    assert watch.missing_topics() == ()
    looked(topics)
    assert len(told.missing) == 1
    topics.recreate("a")
    wait_until(lambda: len(told.missing) == 2, "told of the new incident")


# --- on a real broker --------------------------------------------------------------------------------------


@pytest.mark.kafka
def test_a_deletion_is_told_within_half_a_second(kafka: EmbeddedKafka, start: Start) -> None:
    """From when the deletion is asked for, of what is read and of what is written; and looking has not
    brought the topic back.
    """
    config = StreamsConfig({"application.id": "watch", "bootstrap.servers": kafka.bootstrap_servers})
    topics = KafkaTopics(config)
    took = []
    try:
        for number in range(20):
            source, output = f"watched-{number}", f"written-{number}"
            kafka.create_topic(source, 3)
            kafka.create_topic(output, 2)
            seen = threading.Event()
            written = (Written(output, TopicRole.OUTPUT, frozenset({"p0"})),)
            watch, _ = start(
                topics,
                source,
                written=written,
                interval_s=0.1,
                on_missing=lambda error, seen=seen: seen.set(),
                on_lost=lambda pipeline, error, seen=seen: seen.set(),
            )
            assert (watch.look_now(10), watch.lost("p0", 10)) == (None, None)
            name = source if number % 2 else output
            before = time.monotonic()
            kafka.delete_topic(name)
            assert seen.wait(10)
            took.append(time.monotonic() - before)
            error = watch.look_now(10) or watch.lost("p0", 10)
            assert error is not None
            assert error.deleted == (name,)
            assert name not in topics.names()
            assert watch.close()
    finally:
        topics.close()
    took.sort()
    print(f"deletion to the callback: p50 {took[10] * 1000:.0f} ms, max {took[-1] * 1000:.0f} ms")
    assert took[10] < 0.5
