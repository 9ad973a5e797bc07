"""docs/tutorials and examples/tutorials: pages show programs as they are in their files, and each runs."""

from __future__ import annotations

import http.client
import json
import re
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from waiting import wait_until
from world import World

from millstream import KafkaStreams, Serdes
from millstream.testing import TopologyTestDriver

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs" / "tutorials"
PROGRAMS = ROOT / "examples" / "tutorials"
NAMES = sorted(path.name for path in PROGRAMS.glob("*") if path.is_file())
SHOWN = re.compile(r'^```\w+ title="([^"]+)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def test_a_page_shows_programs_as_they_are() -> None:
    """What a page shows under a file's name is that file; and every file is shown on some page."""
    shown: dict[str, str] = {}
    for page in PAGES.glob("*.md"):
        shown |= dict(SHOWN.findall(page.read_text(encoding="utf-8")))
    assert shown == {name: (PROGRAMS / name).read_text(encoding="utf-8") for name in NAMES}


@pytest.mark.parametrize("folder", ["tutorials", "how-to"])
def test_the_first_page_leads_to_each_other(folder: str) -> None:
    """The site's navigation consists of its links, so it has every page."""
    pages = ROOT / "docs" / folder
    links = re.findall(r"^- \[.+\]\(([\w-]+\.md)\)", (pages / "README.md").read_text("utf-8"), re.MULTILINE)
    assert sorted([*links, "README.md"]) == sorted(path.name for path in pages.glob("*.md"))


def test_the_page_reads_what_the_program_serves(program: Any) -> None:
    """The page's address and origin are those of the tutorial."""
    page = (PROGRAMS / "page.html").read_text(encoding="utf-8")
    config = program("web_queries.py")["config"]
    assert (
        f'new EventSource("http://{config["application.server"]}/v1/stores/views-per-page/entries")' in page
    )
    tutorial = (PAGES / "web-page.md").read_text(encoding="utf-8")
    assert f"{config['query.server.cors.origins']}/page.html" in tutorial


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a file of examples/tutorials, without its main part; the names in it.

    What it imports of the other files is made in the same way: Spark's workers, which have started long ago,
    could not import it.
    """
    monkeypatch.setattr(sys, "argv", ["tutorial"])
    for name in ("first_program", "windows_and_joins", "processors"):
        module = ModuleType(name)
        module.__dict__.update(runpy.run_path(str(PROGRAMS / f"{name}.py")))
        monkeypatch.setitem(sys.modules, name, module)
    return lambda name: runpy.run_path(str(PROGRAMS / name))


@pytest.mark.parametrize("name", ["failures.py", "several_clients.py", "web_queries.py", "exactly_once.py"])
def test_a_client_takes_the_configuration_of_a_program(name: str, program: Any, tmp_path: Path) -> None:
    """Every key is one, and the topology can run with it."""
    names = program(name)
    config = {**names["config"], **names.get("skip", {}), "state.dir": str(tmp_path)}
    config["checkpoint.location"] = str(tmp_path / "checkpoints")
    KafkaStreams(names["topology"], config)


TESTS = {
    "test_page_views.py": (
        "test_views_are_counted_per_page",
        "test_a_window_takes_late_views_until_its_grace_is_over",
        "test_a_page_without_a_section_is_not_counted",
    ),
    "test_processors.py": (
        "test_the_third_refusal_within_ten_minutes_is_a_warning",
        "test_a_card_that_was_quiet_for_ten_minutes_is_forgotten",
    ),
}


@pytest.mark.spark
@pytest.mark.parametrize("file", TESTS)
def test_the_tests_of_the_tutorials_pass(file: str, program: Any) -> None:
    """All of them; one with another name would not be run here, and is missed."""
    names = program(file)
    assert tuple(name for name in names if name.startswith("test_")) == TESTS[file]
    for name in TESTS[file]:
        names[name]()


@pytest.mark.spark
def test_bad_records_become_dead_letters(program: Any) -> None:
    """This takes --skip; the other records get their price."""
    names = program("failures.py")
    with TopologyTestDriver(names["topology"], names["config"] | names["skip"]) as driver:
        orders = driver.create_input_topic("orders", Serdes.string(), Serdes.string())
        with driver.one_batch():
            orders.pipe_input("o1", '{"customer": "ann", "total": 30, "items": 3}')
            orders.pipe_input("o2", "this is no JSON")
            orders.pipe_input("o3", '{"customer": "bob", "total": 30, "items": 0}')
            orders.pipe_input("o4", '{"customer": "cat", "total": 10, "items": 4}')
        prices = driver.create_output_topic("prices", Serdes.string(), Serdes.double())
        assert prices.read_key_values_to_map() == {"o1": 10.0, "o4": 2.5}
        dead = driver.create_output_topic("orders-dead", Serdes.string(), Serdes.string())
        assert {record.key for record in dead.read_records_to_list()} == {"o2", "o3"}


@pytest.mark.spark
def test_the_other_topologies_give_what_their_pages_say(program: Any) -> None:
    """A receipt for each payment, counted; and large amounts alone."""
    names = program("exactly_once.py")
    with TopologyTestDriver(names["topology"], names["config"]) as driver:
        payments = driver.create_input_topic("payments", Serdes.string(), names["payment"])
        payments.pipe_input("p1", {"customer": "c1", "amount": 7.5})
        receipts = driver.create_output_topic("receipts", Serdes.string(), names["receipt"])
        assert receipts.read_value()["text"] == "payment p1: 7.50"
        assert driver.get_key_value_store("receipts-per-customer").get("c1") == 1
    with TopologyTestDriver(program("latency.py")["topology"]) as driver:
        amounts = driver.create_input_topic("amounts", Serdes.string(), Serdes.long())
        amounts.pipe_key_value_list([("a", 100), ("b", 500)])
        large = driver.create_output_topic("large-orders", Serdes.string(), Serdes.long())
        assert large.read_key_values_to_list() == [("b", 500)]


@pytest.mark.kafka
@pytest.mark.spark
def test_a_web_page_sees_counts_change(world: World, program: Any) -> None:
    """web_queries.py on a real broker, asked as page.html asks it: what there is, then what changes."""
    names = program("web_queries.py")
    for topic in ("views", "view-counts"):
        world.kafka.create_topic(topic, 2)
    config = {key: value for key, value in names["config"].items() if key.startswith("query.server.")}
    client = world.client(names["topology"], **config)
    assert client.query_server_url is not None
    world.produce("views", [(b"ann", b"/home"), (b"bob", b"/home"), (b"ann", b"/cart")])
    store = client.store("views-per-page")
    wait_until(lambda: dict(store.all()) == {"/home": 2, "/cart": 1}, "the three views are counted")

    connection = http.client.HTTPConnection(client.query_server_url.removeprefix("http://"), timeout=60)
    origin = names["config"]["query.server.cors.origins"]
    headers = {"Accept": "text/event-stream", "Origin": origin}
    connection.request("GET", "/v1/stores/views-per-page/entries", headers=headers)
    answer = connection.getresponse()
    assert answer.headers["access-control-allow-origin"] == origin
    assert _event(answer)["entries"] != []
    world.produce("views", [(b"fay", b"/cart")])
    changed = _event(answer)
    assert [(entry["key"], entry["value"]) for entry in changed["entries"]] == [("/cart", 2)]
    connection.close()


def _event(answer: http.client.HTTPResponse) -> dict[str, Any]:
    """The data of the next event."""
    for line in iter(answer.readline, b""):
        if line.startswith(b"data: "):
            told: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
            return told
    raise AssertionError("the answer has ended")
