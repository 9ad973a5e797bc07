"""The dashboard in a real browser: every view, the commands, the keyboard, colours, and a phone.

The clients and their servers are real; Kafka and Spark are fakes (`tests/contracts` holds these to their
ports). `tests/cli/test_program_on_kafka.py` looks at a client on the real ones.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from browsing import Seen, chromium, width_of
from fake_world import FakeWorld
from playwright.sync_api import Browser, Dialog, Locator, Page, expect
from waiting import wait_until

from millstream import (
    Consumed,
    KafkaStreams,
    Materialized,
    Serdes,
    SessionWindows,
    StreamsBuilder,
    StreamsException,
    TimeWindows,
)
from millstream.model import BatchReport, OperatorReport, TopicPartition
from millstream.query.metadata import default_partition
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.wiring import real_parts
from millstream.states import State
from millstream.topology.topology import Topology

pytestmark = pytest.mark.disk

TOKEN = "a-token-for-tests"
VIEWS = ("Overview", "Topology", "Stores", "Failures", "Spark", "Clients", "Metrics")
SOON = timedelta(seconds=20)
FIRST_MS = 1_782_907_200_000  # 2026-07-01T12:00:00Z
MINUTE_MS = 60_000
WORDS = [f"word-{number:03}" for number in range(120)]


def word_count() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed.with_(Serdes.string(), Serdes.string())).group_by_key()
    words.count(Materialized.as_("counts")).to_stream().to("totals")
    minutes = TimeWindows.of_size_and_grace(timedelta(minutes=1), timedelta(hours=1))
    words.windowed_by(minutes).count(Materialized.as_("per-minute"))
    gap = SessionWindows.of_inactivity_gap_and_grace(timedelta(minutes=5), timedelta(hours=1))
    words.windowed_by(gap).count(Materialized.as_("sittings"))
    return builder.build()


def fill(world: FakeWorld) -> None:
    """The changelogs: each word has a count, two windows and a session."""
    for number, word in enumerate(WORDS):
        key, value = word.encode(), (number + 1).to_bytes(8, "big")
        partition = default_partition(key, 2)

        def put(store: str, stored: bytes, at: int, *, value: bytes = value, to: int = partition) -> None:
            world.log.append(TopicPartition(f"app-{store}-changelog", to), (stored, value, at))

        put("counts", key, FIRST_MS)
        for start in (FIRST_MS, FIRST_MS + MINUTE_MS):
            put("per-minute", key + start.to_bytes(8, "big") + bytes(4), start)
        end = FIRST_MS + 7_000
        put("sittings", key + end.to_bytes(8, "big") + FIRST_MS.to_bytes(8, "big"), end)


@dataclass
class Application:
    """Two clients, each with half of the partitions, and with standbys of the other half."""

    world: FakeWorld
    clients: list[KafkaStreams]
    runner: KafkaStreams
    """Who runs the pipeline."""

    @property
    def url(self) -> str:
        """Where the dashboard of the runner is."""
        return f"{self.runner.query_server_url}/ui/"

    def report(self, batch: int) -> None:
        """Spark reports a micro-batch."""
        report = BatchReport(
            "p0",
            batch_id=batch,
            read={TopicPartition("words", 0): 1_200, TopicPartition("words", 1): 1_100},
            lag={TopicPartition("words", 0): 40, TopicPartition("words", 1): 2},
            parts={"triggerExecution": 180, "addBatch": 120, "walCommit": 20, "latestOffset": 4},
            state=(OperatorReport("0-transformWithState", updated=120, memory_bytes=48_000),),
            dropped={("late", "COUNT"): 3},
            input_rate=2_300.0,
            processed_rate=12_700.0,
        )
        engine = self.world.engine_of(self.runner.client_id)
        assert engine is not None
        engine.progress("p0", {}, batch)
        engine.report(report)

    def close(self) -> None:
        for client in self.clients:
            client.close(SOON)
        self.world.close()


def started(folder: Path, *, token: str | None = TOKEN, clients: int = 2) -> Application:
    """It has run for a while: there is something to see in each view."""
    world = FakeWorld({"words": 2, "totals": 2})
    fill(world)
    made = []
    for number in range(clients):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = {
            "application.id": "app",
            "bootstrap.servers": "fake:9092",
            "client.id": f"orders-{number + 1}",
            "state.dir": str(folder / str(number)),
            "checkpoint.location": str(folder / "checkpoints"),
            "num.standby.replicas": clients - 1,
            "application.server": f"127.0.0.1:{port}",
            "ui.enabled": True,
            "query.server.sql.enabled": True,
            **({} if token is None else {"query.server.token": token}),
        }
        client = KafkaStreams(
            word_count(), config, parts=replace(world.parts(), query_server=real_parts().query_server)
        )
        client.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace())
        client.start()
        made.append(client)
    for client in made:
        client.wait_until_running(SOON)
    world.group.wait_until_quiet()
    wait_until(
        lambda: all(len(client.metadata_for_all_streams_clients()) == clients for client in made),
        "all know of all",
        20,
    )
    names = wait_until(lambda: world.runners("p0"), "somebody runs the pipeline", 20)
    runner = next(client for client in made if client.client_id == names[0])
    found = Application(world, made, runner)
    world.engine_of(runner.client_id).end("p0", StreamsException("the disk is full"))  # type: ignore[union-attr]
    wait_until(lambda: world.runners("p0"), "somebody runs the pipeline again", 20)
    wait_until(lambda: runner.state is State.RUNNING and runner.health.ready, "it runs again", 20)
    for batch in range(3):
        found.report(batch)
    return found


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """Nobody changes it but by reading."""
    made = started(tmp_path_factory.mktemp("application"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def seen(browser: Browser, application: Application) -> Iterator[Seen]:
    """A page that is logged in, at a desk, in the light."""
    page = Seen(browser, application.url, viewport={"width": 1280, "height": 900})
    page.log_in(TOKEN)
    yield page
    page.close()


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("region", name=title, exact=True)


def row(page: Page | Locator, *words: str) -> Locator:
    """The row of a table that has all of these words."""
    found = page.get_by_role("row")
    for word in words:
        found = found.filter(has_text=word)
    return found.first


def test_a_wrong_token_shows_nothing(browser: Browser, application: Application) -> None:
    """No token shows nothing, either; the page says so."""
    page = Seen(browser, application.url)
    page.page.get_by_role("textbox", name="Token").fill("another")
    page.page.get_by_role("button", name="Show the dashboard").click()
    expect(page.page.get_by_role("alert")).to_have_text("That is not this server's token.")
    assert "orders-1" not in page.page.content()
    assert page.page.url == application.url
    page.close()


def test_the_overview_shows_health_states_threads_tasks_and_pipelines(
    seen: Seen, application: Application
) -> None:
    """What the client is, why, who runs what, and how far that is."""
    page, name = seen.show("Overview"), application.runner.client_id
    expect(page.get_by_role("banner")).to_contain_text(f"{name} RUNNING")
    expect(card(page, "Health")).to_contain_text("1 pipeline runs here, on 1 thread")
    expect(card(page, "Health")).to_contain_text("Last failure")
    machine = page.get_by_role("img", name="State machine of the client; it is RUNNING now")
    expect(machine).to_contain_text("PENDING_SHUTDOWN")
    threads = card(page, "Threads and pipelines")
    expect(row(threads, f"{name}-StreamThread", "RUNNING")).to_contain_text("0_")
    expect(row(threads, "p0", "runs").get_by_role("cell").nth(5)).to_have_text("2")


def test_the_topology_is_drawn_with_rates_and_lag(seen: Seen) -> None:
    """Tables and text have the same facts."""
    page = seen.show("Topology")
    drawing = page.get_by_role("region", name="Drawing of the topology")
    expect(drawing).to_contain_text("Subtopology 0 · pipeline p0")
    expect(drawing).to_contain_text("42 behind")
    expect(row(card(page, "Topics"), "words")).to_contain_text("42")
    expect(row(card(page, "Processors"), "COUNT")).to_contain_text("9")
    page.get_by_text("What describe() prints").click()
    expect(page.get_by_text("Sub-topology: 0")).to_be_visible()


def read(page: Page, store: str, **fields: str) -> Locator:
    """Fill the form as a person does, and read; the table of what was read."""
    page.get_by_role("combobox", name="Store").select_option(store)
    names = {"key": "Key", "from_": "From key", "to": "To key", "start": "From time", "end": "To time"}
    for field, label in names.items():
        box = page.get_by_role("textbox", name=label, exact=True)
        if box.is_visible():
            box.fill(fields.get(field, ""))
    page.get_by_role("button", name="Read", exact=True).click()
    return card(page, "Read").get_by_role("table", name="Entries")


def test_stores_are_listed_with_what_is_here(seen: Seen) -> None:
    """Their kinds, serdes, partitions, and which of these are standbys."""
    page = seen.show("Stores")
    for store, kind in (("counts", "key-value"), ("per-minute", "window"), ("sittings", "session")):
        expect(row(card(page, "All stores"), store, kind)).to_contain_text("standby")


def test_a_key_and_a_range_are_read_page_by_page_of_all_clients(seen: Seen) -> None:
    """Whoever has them; and what is not there is told."""
    page = seen.show("Stores")
    for number in (6, 7, 8, 9):
        expect(row(read(page, "counts", key=WORDS[number]), WORDS[number])).to_contain_text(str(number + 1))
    read(page, "counts", key="nobody")
    expect(card(page, "Read").get_by_role("status")).to_have_text("this key has no value")
    table = read(page, "counts", from_="word-010", to="word-019")
    expect(table.get_by_role("row")).to_have_count(11)
    table = read(page, "counts")
    expect(table.get_by_role("row")).to_have_count(51)
    page.get_by_role("button", name="Next page").click()
    expect(row(table, "word-050")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(table.get_by_role("row")).to_have_count(21)
    expect(page.get_by_role("button", name="Next page")).to_be_hidden()
    page.get_by_role("checkbox", name="last first").check()
    expect(row(read(page, "counts"), "word-119")).to_be_visible()
    page.get_by_role("checkbox", name="last first").uncheck()


def test_windows_and_sessions_are_read_by_key_and_time(seen: Seen) -> None:
    """A wrong time is told with the server's own words."""
    page = seen.show("Stores")
    table = read(page, "per-minute", key="word-007")
    expect(table.get_by_role("row")).to_have_count(3)
    table = read(page, "per-minute", key="word-007", start="2026-07-01T12:01:00Z")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(row(table, "word-007").get_by_role("cell").nth(2)).to_have_text("8")
    table = read(page, "sittings", key="word-007")
    expect(row(table, "word-007").locator("time").nth(1)).to_have_attribute(
        "datetime", "2026-07-01T12:00:07.000Z"
    )
    table = read(page, "sittings", start="2026-07-01T12:00:08Z")
    expect(card(page, "Read").get_by_role("status")).to_have_text("no entries")
    read(page, "per-minute", start="yesterday")
    expect(card(page, "Read").get_by_role("status")).to_contain_text("'from' must be a time")
    seen.wrong.clear()  # the browser notes the refusal, too


def test_sql_selects_from_the_stores_of_all_clients(seen: Seen) -> None:
    """One query selects from stores of each kind; errors are shown."""
    page = seen.show("Stores")
    sql = card(page, "SQL")
    sql.get_by_role("textbox", name="Query").fill(
        "select count(*), (select count(*) from \"per-minute\" where window_end > '2026-07-01T12:01:30Z'), "
        "(select sum(epoch_ms(window_end) - epoch_ms(window_start)) from sittings), max(value) from counts"
    )
    sql.get_by_role("button", name="Run").click()
    cells = sql.get_by_role("table").get_by_role("row").nth(1).get_by_role("cell")
    expect(cells).to_have_text(["120", "120", str(120 * 7_000), "120"])
    sql.get_by_role("textbox", name="Query").fill("select nothing from counts")
    sql.get_by_role("button", name="Run").click()
    expect(sql.get_by_role("status")).to_contain_text("nothing")
    seen.wrong.clear()  # the browser notes the refusal, too


def test_failures_are_told_with_what_was_decided(seen: Seen) -> None:
    """The link to them counts them."""
    page = seen.show("Failures")
    failed = row(card(page, "History"), "StreamThread-1")
    expect(failed).to_contain_text("StreamsException")
    expect(failed).to_contain_text("REPLACE_THREAD")
    expect(page.get_by_label("1 failures")).to_be_visible()


def test_batches_of_spark_are_told_and_drawn(seen: Seen, application: Application) -> None:
    """They are updated while the page is open."""
    page = seen.show("Spark")
    pipeline = card(page, "Pipeline p0")
    expect(row(pipeline, "addBatch")).to_contain_text("120 ms")
    expect(row(pipeline, "transformWithState")).to_contain_text("48 kB")
    expect(pipeline.get_by_role("img", name="Duration of the batches of p0")).to_be_visible()
    expect(pipeline.get_by_role("definition").first).to_have_text("2")
    application.report(3)
    expect(pipeline.get_by_role("definition").first).to_have_text("3")


def test_clients_are_told_with_the_group_and_the_standbys(seen: Seen, application: Application) -> None:
    """Each client with its health; each partition with where it is active, and where on standby."""
    page = seen.show("Clients")
    expect(card(page, "Group").get_by_role("definition").first).to_have_text("2")
    hosts = [str(client.query_server_url).removeprefix("http://") for client in application.clients]
    for host in hosts:
        expect(row(card(page, "Clients"), host, "running")).to_be_visible()
    found = row(card(page, "Partitions"), "app-counts-changelog-0").get_by_role("cell").all_inner_texts()
    assert sorted(found[1:]) == sorted(hosts)


def test_metrics_are_found_by_words(seen: Seen) -> None:
    """All of them are there, by Kafka Streams' names."""
    page = seen.show("Metrics")
    table = page.get_by_role("table", name="Metrics of this client")
    expect(row(table, "alive-stream-threads")).to_contain_text("1")
    page.get_by_role("searchbox", name="Words in name").fill("lag words partition=0")
    expect(table.get_by_role("row")).to_have_count(2)
    expect(row(table, "records-lag")).to_contain_text("40")


ROLES = "button|textbox|combobox|checkbox|link|img|searchbox"


def test_it_is_used_by_keyboard_alone(seen: Seen) -> None:
    """Tab and Enter reach every view; the content gets the focus; every field and button has a name."""
    page = seen.page
    page.get_by_role("link", name="Skip to the content").focus()
    names = []
    for _ in range(1 + len(VIEWS)):
        page.keyboard.press("Tab")
        names.append(page.evaluate("() => document.activeElement.textContent").rstrip("0123456789"))
    assert names == ["Forget the token", *VIEWS]
    page.get_by_role("link", name="Topology").focus()
    page.keyboard.press("Enter")
    page.get_by_role("heading", level=1, name="Topology").wait_for()
    assert page.evaluate("() => document.activeElement.id") == "content"
    for view in VIEWS:
        seen.show(view)
        said = page.locator("body").aria_snapshot()  # all at once: charts are drawn anew
        named = [line for line in said.splitlines() if re.match(rf"\s*- '?({ROLES})\b", line)]
        assert named, said
        for line in named:
            assert re.match(rf"\s*- '?({ROLES}) [\"/]", line), f"in {view} something has no name: {line}"
        levels = page.evaluate(
            "() => [...document.querySelectorAll('h1,h2,h3')].filter((each) => each.checkVisibility())"
            ".map((each) => +each.tagName[1])"
        )
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels)), (view, levels)


CONTRASTS = """() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue].map((each) => each / 255)
    .map((each) => (each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4))
    .reduce((sum, each, at) => sum + each * [.2126, .7152, .0722][at], 0);
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const back = channels(getComputedStyle(each).backgroundColor);
      if (back.length < 4 || back[3] > 0) return back;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const node of document.querySelectorAll("body *")) {
    const own = [...node.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
    if (!own || !node.checkVisibility() || node.closest("svg")) continue;
    const [one, other] = [light(channels(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(one, other) + .05) / (Math.min(one, other) + .05);
    if (ratio < 4.5) poor.push(`${node.textContent.slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_can_be_read_and_a_phone_scrolls_down_only(
    browser: Browser, application: Application, scheme: Literal["light", "dark"]
) -> None:
    """Every view: text has the contrast that WCAG asks for (1.4.3), and nothing is wider than a phone."""
    page = Seen(browser, application.url, viewport={"width": 375, "height": 800}, color_scheme=scheme)
    page.log_in(TOKEN)
    for view in VIEWS:
        shown = page.show(view)
        if view == "Stores":
            expect(read(shown, "counts").get_by_role("row")).to_have_count(51)
        assert shown.evaluate(CONTRASTS) == [], view
        width, window = width_of(shown)
        assert width <= window, view
    back = page.page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(243, 246, 249)", "dark": "rgb(16, 21, 26)"}[scheme]
    page.close()


def test_nothing_went_wrong_on_the_page(seen: Seen) -> None:
    """No script failed, and nothing was asked for that the page's policy forbids; but for being let in."""
    assert [each for each in seen.wrong if "401" not in each] == []


def test_commands_do_what_they_say_and_closing_is_told(browser: Browser, tmp_path: Path) -> None:
    """Pause, resume, one thread more and fewer, close; each that is grave asks first."""
    alone = started(tmp_path, clients=1)
    client = alone.runner
    page = Seen(browser, alone.url)
    asked: list[str] = []

    def yes(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.page.on("dialog", yes)
    try:
        page.log_in(TOKEN)
        commands = card(page.page, "Commands")
        commands.get_by_role("button", name="Pause").click()
        expect(page.page.get_by_role("banner")).to_contain_text("RUNNING, paused")
        assert client.is_paused
        commands.get_by_role("button", name="Resume").click()
        expect(commands.get_by_role("button", name="Pause")).to_be_visible()
        commands.get_by_role("button", name="Add a thread").click()
        threads = card(page.page, "Threads and pipelines")
        expect(threads.get_by_role("row").filter(has_text="StreamThread")).to_have_count(2)
        commands.get_by_role("button", name="Remove a thread").click()
        expect(threads.get_by_role("row").filter(has_text="StreamThread")).to_have_count(1)
        assert len(asked) == 2
        commands.get_by_role("button", name="Close the client").click()
        expect(page.page.get_by_text(re.compile(r"no connection: .*; this is from \d\d:"))).to_be_visible()
        expect(page.page.locator("#view")).to_have_css("filter", "grayscale(1)")
        wait_until(lambda: client.state is State.NOT_RUNNING, "it is closed", 20)
        assert "the client does not restart" in asked[-1]
    finally:
        page.close()
        alone.close()


def test_without_a_token_there_are_no_buttons(browser: Browser, tmp_path: Path) -> None:
    """Everybody on the machine could press them; the page says what to set."""
    alone = started(tmp_path, token=None, clients=1)
    page = Seen(browser, alone.url)
    try:
        expect(page.page.get_by_text("Set query.server.token")).to_be_visible()
        expect(card(page.page, "Commands").get_by_role("button")).to_have_count(0)
        page.show("Stores")
        expect(card(page.page, "SQL")).to_contain_text("A server without a token answers no SQL")
        assert page.wrong == []
    finally:
        page.close()
        alone.close()
