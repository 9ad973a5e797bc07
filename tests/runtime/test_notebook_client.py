"""A client in a notebook: what it shows, and that a cell which is run again replaces what it has started."""

from __future__ import annotations

import logging
import sys
from html.parser import HTMLParser

import pytest
from fake_world import FakeWorld
from scenes import SOON, Make, ended, global_only, put_into, running, with_global_table, word_count

from millstream.errors import LockException, PipelineException
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters
from millstream.query.request import KeyQuery, RangeQuery, StateQueryRequest
from millstream.runtime.client import KafkaStreams
from millstream.states import State

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


class Shown(HTMLParser):
    """Well-formed HTML: its text, and that nothing in it runs, is fetched, or is left open.

    Attributes:
        text: what a reader sees.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "style", "link", "iframe", "object", "b"), tag
        for name, value in attrs:
            assert not name.startswith("on")
            if name in ("src", "href"):
                assert value is not None
                assert value.startswith("data:image/svg+xml;base64,")
        if tag != "img":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody types lines or cells: Python and IPython say so by `sys.ps1`."""
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)


@pytest.mark.parametrize("state", list(State))
def test_a_client_shows_how_it_is(state: State, make: Make, world: FakeWorld) -> None:
    """In every state it shows its health, its threads and its stores, and failures if there are any."""
    client = make(word_count())
    put_into(state, client, world)
    shown = Shown(client._repr_html_()).text
    for piece in (client.client_id, state.name, client.health.status, "counts"):
        assert piece in shown
    assert ("poison" in shown or "PipelineException" in shown or "failures: 1" in shown) == (
        state in (State.ERROR, State.PENDING_ERROR)
    )
    health = Shown(client.health._repr_html_()).text
    assert client.health.reason in health


def test_what_a_running_client_answers_is_shown(make: Make, world: FakeWorld) -> None:
    """Metrics, answers of queries, stores, and the topology with its descriptions."""
    world.topics.add("users", 2)
    client = make(with_global_table())
    running(client)
    assert "StreamThread-1" in Shown(client._repr_html_()).text
    metrics = client.metrics()
    assert "alive-stream-threads" in Shown(metrics._repr_html_()).text
    assert "stream-metrics: alive-stream-threads {client-id=" in str(metrics)
    one = client.query(StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a")), wait=SOON)
    assert "partition" in Shown(one._repr_html_()).text
    many = client.query(StateQueryRequest.in_store("counts").with_query(RangeQuery.with_no_bounds()))
    assert "read it to the end" in Shown(many._repr_html_()).text
    assert [list(each.value) for each in many.partition_results.values() if each.value] == [[], [], []]
    for missing in (0, 7):
        request = StateQueryRequest.in_store("counts").with_query(KeyQuery.with_key("a"))
        shown = Shown(client.query(request.with_partitions([missing]))._repr_html_()).text
        assert ("DOES_NOT_EXIST" in shown) == (missing == 7)
    assert "key-value store counts It is empty." in " ".join(
        Shown(client.store(COUNTS)._repr_html_()).text.split()
    )
    store = client.store(COUNTS)
    assert client.close(SOON)
    assert "StateStoreNotAvailableException" in Shown(store._repr_html_()).text


def test_a_topology_is_a_drawing_with_its_texts() -> None:
    """The drawing is an image, whose styles stay within it; names from outside are only text."""
    topology = with_global_table()
    shown = Shown(topology._repr_html_()).text
    assert str(topology.describe()).split("\n")[1] in shown
    assert "Pipelines:" in shown
    nodes = Shown(topology.describe()._repr_html_()).text
    for subtopology in topology.describe().subtopologies:
        assert all(node.name in nodes for node in subtopology.nodes)
    assert "KTABLE-SOURCE-" in nodes, "global tables too"


def test_a_cell_that_is_run_again_replaces_its_client(
    typed: None, make: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """What has the same state directory closes first, and a warning says so; then the new one runs."""
    first = make(word_count())
    running(first)
    assert KafkaStreams.running() == (first,)
    with caplog.at_level(logging.WARNING):
        second = make(word_count())
        assert first.state is State.RUNNING, "not when it is made"
        running(second)
    assert ended(first) is State.NOT_RUNNING
    assert f"replaces client '{first.client_id}'" in caplog.text
    assert KafkaStreams.running() == (second,)
    assert second.close(SOON)
    assert KafkaStreams.running() == ()


def test_a_program_replaces_nothing(make: Make, world: FakeWorld) -> None:
    """Outside a notebook, two clients on one state directory are a mistake, and the first one continues."""
    first, second = make(word_count()), make(word_count())
    running(first)
    with pytest.raises(LockException):
        second.start()
    assert first.state is State.RUNNING


def test_clients_that_can_run_side_by_side_do(
    typed: None, member: Make, world: FakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Another application, and another client of the same one with a directory of its own, are left alone."""
    first, second = member("A"), member("B")
    world.topics.add("users", 2)
    other = member("A", global_only(), application__id="another")
    running(first, second, other)
    assert KafkaStreams.running() == (first, second, other)
    assert "replaces" not in caplog.text


def test_a_client_that_has_failed_is_not_in_the_way(typed: None, make: Make, world: FakeWorld) -> None:
    """It has ended, so nothing is replaced, and the cell can be run again."""
    first = make(word_count())
    running(first)
    world.engine.end("p0")
    with pytest.raises(PipelineException):
        first.wait(SOON)
    assert KafkaStreams.running() == ()
    second = make(word_count())
    running(second)
    assert second.state is State.RUNNING
