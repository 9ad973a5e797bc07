"""`millstream topics`: what a program needs, what exists, and what is created."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from cli_running import run
from fake_ports import FakeTopics

from millstream import Consumed, Materialized, Repartitioned, Serdes, StreamsBuilder
from millstream.broker import EmbeddedKafka
from millstream.cli.program_topics import look, needs_as_dict, needs_table, refuse_other_counts
from millstream.config import StreamsConfig
from millstream.errors import StreamsException
from millstream.ports import TopicDescription, Topics
from millstream.topology.topology import Topology

PROGRAM = """
from millstream import Consumed, Materialized, Serdes, StreamsBuilder

string = Serdes.string()
builder = StreamsBuilder()
words = builder.stream("topics-words", Consumed.with_(string, string))
words.group_by_key().count(Materialized.as_("counts")).to_stream().to("topics-counts")
"""


def program() -> Topology:
    """Reads `orders`, the table `prices` and what matches a pattern; writes `orders` too, and `totals`."""
    string = Serdes.string()
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(string, string))
    prices = builder.global_table("prices", Consumed.with_(string, string), Materialized.as_("prices"))
    orders.join(prices, lambda key, value: value, lambda value, price: price).to("orders")
    again = orders.repartition(Repartitioned.as_("again").with_number_of_partitions(4))
    again.group_by_key().count(Materialized.as_("n")).to_stream().to("totals")
    builder.stream(re.compile("log-.*"), Consumed.with_(string, string)).to("totals")
    return builder.build()


def config(**given: str) -> StreamsConfig:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return StreamsConfig({"application.id": "app", "bootstrap.servers": "fake:9092", **named})


def uses(topics: Topics, **given: str) -> dict[str, tuple[str, int | str]]:
    """Each topic with its uses, and its partitions, or what the table remarks."""
    needs, problems = look(program(), config(**given), topics, None)
    lines = needs_table(needs, [], problems).splitlines()[1:]
    return {
        each.name: (", ".join(each.uses), each.found.partitions if each.found else line.rpartition("  ")[2])
        for each, line in zip(needs, lines, strict=True)
    }


def test_each_topic_is_listed_once_with_its_uses() -> None:
    """Dead letters are written; what a pattern matches is read; internal topics are owned."""
    topics = FakeTopics({"orders": 3, "prices": 1, "log-a": 2, "app-n-changelog": 4, "other": 1})
    found = uses(topics, errors__dead__letter__queue__topic__name="dead")
    assert found == {
        "log-a": ("reads", 2),
        "orders": ("reads, writes", 3),
        "prices": ("reads", 1),
        "dead": ("writes", "missing; --create creates it"),
        "totals": ("writes", "missing; --create creates it"),
        "app-n-changelog": ("owns", 4),
        "app-again-repartition": ("owns", "the client creates it, with 4 partitions"),
    }


def test_partitions_of_owned_topics_follow_from_the_sources() -> None:
    """They are unknown while a source is missing. Without an application.id, the names are unknown too."""
    missing = "missing; --create creates it"
    assert uses(FakeTopics({"prices": 1}))["orders"] == ("reads, writes", missing)
    assert uses(FakeTopics({"prices": 1}))["app-n-changelog"] == ("owns", "the client creates it")
    unnamed = uses(FakeTopics({"orders": 3}), application__id="millstream-cli")
    assert unnamed["<application.id>-n-changelog"] == (
        "owns",
        "exists? name the application: --application-id",
    )


def test_what_exists_and_does_not_fit_is_a_problem() -> None:
    """The message is the one with which the client would end."""
    topics = FakeTopics(
        {"orders": 3, "prices": 1, "totals": 1, "app-n-changelog": 7, "app-again-repartition": 5}
    )
    needs, problems = look(program(), config(), topics, None)
    [wrong] = [each for each in needs if each.problem]
    assert (wrong.name, problems) == ("app-again-repartition", [])
    text = needs_table(needs, [], problems)
    assert "does not fit" in text
    assert "internal topic 'app-again-repartition' has 5 partitions; this topology needs 4" in text
    shown = {each["topic"]: each for each in needs_as_dict(needs, ["totals"], [])["topics"]}
    assert shown["app-n-changelog"]["planned_partitions"] == 7, "a changelog keeps what it has"
    assert shown["totals"] == {
        "topic": "totals",
        "uses": ["writes"],
        "exists": True,
        "partitions": 1,
        "replicas": None,
        "planned_partitions": None,
        "problem": None,
    }


def test_topics_can_be_chosen_and_only_those_of_the_program() -> None:
    """A name with a mistake in it is refused, with those that there are."""
    topics = FakeTopics({"orders": 3})
    needs, _ = look(program(), config(), topics, ["totals", "orders"])
    assert [each.name for each in needs] == ["orders", "totals"]
    with pytest.raises(typer.BadParameter, match="does not use topic 'order'; it uses 'orders', 'prices'"):
        look(program(), config(), topics, ["order"])


def test_what_exists_with_other_counts_is_refused() -> None:
    """All of it at once; owned topics have counts of their own."""
    topics = FakeTopics({"orders": 3, "prices": 1, "app-n-changelog": 3})
    needs, _ = look(program(), config(), topics, None)
    refuse_other_counts(needs, None, None)
    refuse_other_counts(needs, None, 2)  # where nobody knows how many there are
    with pytest.raises(StreamsException, match="'orders' has 3 partitions, not 4; 'prices' has 1 "):
        refuse_other_counts(needs, 4, None)
    [orders] = [each for each in needs if each.name == "orders"]
    replicated: Any = type(orders)("orders", ("reads",), TopicDescription("orders", 4, replicas=3))
    with pytest.raises(StreamsException, match="'orders' has 3 replicas, not 1"):
        refuse_other_counts([replicated], 4, 1)


def test_counts_are_for_what_is_created(tmp_path: Path) -> None:
    """Without --create they would have no effect, and nobody would notice."""
    code, text = run("topics", "any:topology", "--partitions", "3")
    assert (code, "give --create too" in text) == (2, True), text


@pytest.mark.kafka
def test_missing_topics_are_shown_and_created_on_a_real_broker(
    kafka: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code says whether one is missing; creating twice is no error; other counts are."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    (tmp_path / "cli_topics_app.py").write_text(PROGRAM)
    command = ("topics", "cli_topics_app:builder", "--app-dir", str(tmp_path), "-b", kafka.bootstrap_servers)
    code, text = run(*command, "-a", "topics-app")
    assert code == 1, text
    assert "missing; --create creates it" in text
    code, text = run(*command, "-a", "topics-app", "--create", "--partitions", "3", "--json")
    assert code == 0, text
    told = json.loads(text)
    assert told["created"] == ["topics-words", "topics-counts"]
    shown = {each["topic"]: each for each in told["topics"]}
    assert [shown["topics-words"][name] for name in ("exists", "partitions", "replicas")] == [True, 3, 1]
    owned = shown["topics-app-counts-changelog"]
    assert (owned["exists"], owned["planned_partitions"]) == (False, 3)
    code, text = run(*command, "--create", "--partitions", "3", "--replication-factor", "1", "--json")
    assert (code, json.loads(text)["created"]) == (0, []), text
    code, text = run(*command, "--create", "--partitions", "5", "--replication-factor", "2")
    assert code == 1
    assert "'topics-words' has 3 partitions, not 5 and 1 replica, not 2" in text
    code, text = run(*command)
    assert code == 0, text
    assert "<application.id>-counts-changelog" in text
