"""docs/how-to: each snippet runs, with what its page says before it as what is there already."""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from waiting import wait_until
from world import World

import millstream
import millstream.server
from millstream import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder, Topology
from millstream.server import RemoteStore
from millstream.testing import TopologyTestDriver

PAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "how-to"
RUN = {
    "add-a-field.md": 1,
    "handle-bad-records.md": 1,
    "join-with-a-changing-table.md": 1,
    "read-a-store-from-fastapi.md": 2,
    "test-a-topology.md": 2,
}
"""How many snippets of each page run here."""

STRING = Serdes.string()
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
TOKEN = "a-token-for-tests"


def snippets(page: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_each_snippet_is_run_here() -> None:
    """A new one is to be run, too."""
    shown = {page.name: len(snippets(page.name)) for page in PAGES.glob("*.md")}
    assert {name: count for name, count in shown.items() if count} == RUN


def run(page: str, number: int = 0, **there: Any) -> dict[str, Any]:
    """The names that a snippet leaves; `last` is the value of its last line, if that is an expression."""
    names: dict[str, Any] = {"__name__": "a_how_to", **there}
    tree = ast.parse(snippets(page)[number])
    end = tree.body[-1]
    if isinstance(end, ast.Expr):
        tree.body[-1] = ast.parse("last = 0").body[0]
        tree.body[-1].value = end.value  # type: ignore[attr-defined]
    exec(compile(ast.fix_missing_locations(tree), page, "exec"), names)
    return names


def module(monkeypatch: pytest.MonkeyPatch, name: str, **names: Any) -> None:
    """Something to import from."""
    made = ModuleType(name)
    made.__dict__.update(names)
    monkeypatch.setitem(sys.modules, name, made)


def orders_of_customers() -> Topology:
    """The program of `orders.py`: a store `totals`, by customer."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(STRING, Serdes.double()))
    orders.group_by_key().reduce(lambda total, amount: total + amount, Materialized.as_("totals"))
    return builder.build()


@pytest.mark.spark
def test_a_field_that_older_records_do_not_have() -> None:
    """They get the default, and newer ones keep theirs."""
    builder = StreamsBuilder()
    schema = re.search(r'Serdes\.json\("(.*?)"\)', snippets("add-a-field.md")[0])
    assert schema
    orders = builder.stream("orders", Consumed.with_(STRING, Serdes.json(schema[1])))
    run("add-a-field.md", orders=orders)["last"].to("currencies")
    with TopologyTestDriver(builder.build()) as driver:
        raw = driver.create_input_topic("orders", STRING, STRING)
        raw.pipe_key_value_list(
            [
                ("o1", '{"customer": "ann", "amount": 1.5}'),
                ("o2", '{"customer": "bob", "amount": 2.5, "currency": "CHF", "more": 1}'),
            ]
        )
        found = driver.create_output_topic("currencies", STRING, STRING)
        assert found.read_key_values_to_map() == {"o1": "EUR", "o2": "CHF"}


@pytest.mark.spark
def test_a_handler_puts_bad_records_aside() -> None:
    """Comments are dropped; what else cannot be read becomes a dead letter."""
    config: dict[str, Any] = {}
    run("handle-bad-records.md", config=config)
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(STRING, Serdes.json("amount double")))
    orders.map_values(lambda order: order.amount).to("amounts")
    with TopologyTestDriver(builder.build(), config) as driver:
        raw = driver.create_input_topic("orders", STRING, STRING)
        raw.pipe_key_value_list([("o1", '{"amount": 2}'), ("o2", "# a comment"), ("o3", "no JSON")])
        amounts = driver.create_output_topic("amounts", STRING, Serdes.double())
        assert amounts.read_key_values_to_list() == [("o1", 2.0)]
        dead = driver.create_output_topic("orders-dead", STRING, STRING)
        assert dead.read_key_values_to_list() == [("o3", "no JSON")]


@pytest.mark.spark
def test_an_order_gets_the_price_of_its_time() -> None:
    """At once from the table with a history; with a grace period also a price that comes later."""
    builder = StreamsBuilder()
    numbers = Consumed.with_(STRING, Serdes.double())
    orders = builder.stream("orders", numbers)
    run("join-with-a-changing-table.md", builder=builder, numbers=numbers, orders=orders)
    with TopologyTestDriver(builder.build()) as driver:
        prices = driver.create_input_topic("prices", STRING, Serdes.double())
        quantities = driver.create_input_topic("orders", STRING, Serdes.double())

        def at(minute: int) -> datetime:
            return NOON + timedelta(minutes=minute)

        prices.pipe_input("tea", 2.0, timestamp=at(0))
        prices.pipe_input("tea", 3.0, timestamp=at(10))
        quantities.pipe_input("tea", 5.0, timestamp=at(9))  # an order of before the change
        prices.pipe_input("tea", 2.5, timestamp=at(8))  # a price that comes later
        quantities.pipe_input("tea", 1.0, timestamp=at(20))  # by which time the grace period is over
        payments = driver.create_output_topic("payments", STRING, Serdes.double())
        assert payments.read_key_values_to_list() == [("tea", 10.0), ("tea", 3.0)]
        exact = driver.create_output_topic("exact-payments", STRING, Serdes.double())
        assert exact.read_key_values_to_list() == [("tea", 12.5)]


@pytest.mark.spark
def test_the_fixture_and_the_driver_of_the_recipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver for each test; and one in which every record gives an update."""
    module(monkeypatch, "orders", topology=orders_of_customers(), config={"client.id": "orders"})
    module(monkeypatch, "pytest", fixture=contextmanager)
    names = run("test-a-topology.md")
    with names["driver"]() as driver:
        driver.create_input_topic("orders", STRING, Serdes.double()).pipe_input("ann", 2.0)
        assert driver.get_key_value_store("totals").get("ann") == 2.0
    run("test-a-topology.md", 1, **names)["last"].close()


class FastAPI:
    """As much of it as the page uses: what is served, and the lifespan."""

    def __init__(self, *, lifespan: Any) -> None:
        self.lifespan = lifespan
        self.routes: dict[str, Any] = {}

    def get(self, path: str) -> Any:
        return lambda function: self.routes.setdefault(path, function)


class HTTPException(Exception):
    def __init__(self, status_code: int, detail: str) -> None:
        super().__init__(detail)
        self.status_code = status_code


@pytest.fixture
def web(world: World, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names of the page's first program; its client is one of this test's broker."""
    clients: list[KafkaStreams] = []

    def client(topology: Topology, config: dict[str, str]) -> KafkaStreams:
        assert config.keys() == {"application.id", "bootstrap.servers"}
        server = {"query_server_enabled": "true", "query_server_token": TOKEN}
        clients.append(world.created(topology, **server))
        return clients[0]

    builder = StreamsBuilder()
    orders = builder.stream(world.topic("orders"), Consumed.with_(STRING, STRING))
    orders.group_by_key().count(Materialized.as_("totals"))
    module(monkeypatch, "fastapi", FastAPI=FastAPI, HTTPException=HTTPException)
    module(monkeypatch, "orders", topology=builder.build())
    monkeypatch.setattr(millstream, "KafkaStreams", client)
    return SimpleNamespace(**run("read-a-store-from-fastapi.md"))


@pytest.mark.kafka
@pytest.mark.spark
def test_an_application_reads_its_store_here_and_over_http(
    world: World, web: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the client runs the endpoint says 503; then both programs give the same total."""
    total, health = web.app.routes["/totals/{customer}"], web.app.routes["/healthz"]
    with pytest.raises(HTTPException) as refused:
        total("ann")
    assert refused.value.status_code == 503

    async def served() -> None:
        async with web.app.lifespan(web.app):
            world.produce(world.name("orders"), [(b"ann", b"o1"), (b"ann", b"o2")])
            client = web.streams
            await client.wait_until_queryable_async("totals")
            await asyncio.to_thread(wait_until, lambda: total("ann") == 2, "both orders are counted")
            # The store follows its changelog, so it may have them before the micro-batch has ended.
            await asyncio.to_thread(wait_until, lambda: health()["ready"], "the first micro-batch has ended")
            there = RemoteStore(client.query_server_url, "totals", token=TOKEN)
            monkeypatch.setattr(millstream.server, "RemoteStore", lambda *_, **__: there)
            other = FastAPI(lifespan=None)
            names = run("read-a-store-from-fastapi.md", 1, app=other)
            assert await names["total"]("ann") == 2
            assert "/totals/{customer}" in other.routes
            there.close()

    asyncio.run(served())
