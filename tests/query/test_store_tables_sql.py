"""SQL over live stores: what can be asked, what cannot, and that the answer is of one moment."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import json
import uuid
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from worlds import Client, key_in

import millstream.query.sql
from millstream.errors import (
    SerializationException,
    SetupException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsException,
    StreamsNotStartedException,
    StreamsRebalancingException,
    TimeoutException,
    UnknownStateStoreException,
)
from millstream.model import StoreKind, TaskId, TopicPartition
from millstream.query.provider import LocalStore, StoreDeclaration
from millstream.query.sql import POSITIONS, run_sql
from millstream.query.sql_program import decoded, encoded
from millstream.serdes.serdes import Serdes
from millstream.stores.keys import session_key, window_key
from millstream.stores.memory_store import MemoryStore
from millstream.stores.segments import SegmentedSessionStore, SegmentedWindowStore

WORDS = ["a", "aa", "ab", "b", "bbb", "c", "d"]


@pytest.fixture
def client() -> Client:
    made = Client()
    made.put(*WORDS)
    return made


def add(client: Client, declaration: StoreDeclaration, store: Any) -> Any:
    """Another store, in one partition, of the first thread."""
    snapshot = client.snapshot()
    part = LocalStore(TaskId(2, 0), store, "t0", changelog=TopicPartition(f"{declaration.name}-log", 0))
    client.change(
        stores={**snapshot.stores, declaration.name: declaration},
        local={**snapshot.local, declaration.name: [part]},
    )
    return store


def rows(client: Client, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in run_sql(client, query, parameters).to_pylist()]


# --- what can be asked -----------------------------------------------------------------------------------


def test_a_store_is_a_table(client: Client) -> None:
    """It has key, value and timestamp, and the answer is an Arrow table."""
    found = run_sql(client, "select key, value from counts where value > 1 order by 2 desc, 1")
    assert isinstance(found, pa.Table)
    assert found.to_pydict() == {"key": ["bbb", "aa", "ab"], "value": [3, 2, 2]}
    assert run_sql(client, "from counts").schema.names == ["key", "value", "timestamp"]
    assert rows(client, "select count(*), sum(value), max(epoch_ms(timestamp)) from COUNTS") == [(7, 11, 5)]


def test_values_go_in_as_parameters(client: Client) -> None:
    """They are given by place or by name, so that no value has to be put into the text."""
    assert rows(client, "select value from counts where key = ?", ["bbb"]) == [(3,)]
    assert rows(client, "select value from counts where key = $key", {"key": "'; drop"}) == []


def test_parameters_come_over_as_they_are() -> None:
    """Every type that one can have; others are refused by name."""
    values = [
        None,
        True,
        7,
        2**100,
        1.5,
        "ä'",
        b"\x00\xff",
        datetime.datetime(2026, 1, 1, 1, 2, 3, 4),
        datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        datetime.date(2026, 1, 1),
        datetime.time(1, 2, 3),
        datetime.timedelta(days=-1, microseconds=5),
        decimal.Decimal("1.50"),
        uuid.UUID(int=7),
        [1, "a", None],
        {"a": 1, "$": b"x", "is": {}},
    ]
    for value in values:
        assert decoded(encoded(value)) == value
        assert type(decoded(encoded(value))) is type(value)
    assert decoded(encoded({"named": values})) == {"named": values}
    for wrong in (object(), {1, 2}, {7: 1}, lambda: 1):
        with pytest.raises(TypeError, match=r"sql\(\) takes no parameters of type"):
            encoded(wrong)


def test_stores_can_be_joined_with_themselves_and_others(client: Client) -> None:
    """Subqueries and named ones included; names with dashes are quoted."""
    other = StoreDeclaration("totals-by-key", Serdes.string(), Serdes.double(), None, 1)
    store = add(client, other, MemoryStore("totals-by-key", TaskId(2, 0)))
    store.apply([(b"aa", Serdes.double().serialize(0.5), 1), (b"d", Serdes.double().serialize(2.5), 1)], 2)
    joined = """
        with many as (select * from counts where value >= 1)
        select m.key, m.value + t.value from many m join "totals-by-key" t using (key)
        where m.key in (select a.key from counts a join counts b on a.key = b.key) order by 1
    """
    assert rows(client, joined) == [("aa", 2.5), ("d", 3.5)]


def test_a_name_that_the_query_defines_is_no_store(client: Client) -> None:
    """It may even be the name of a store."""
    assert rows(client, "with mine as (select 1 as x) select x from mine") == [(1,)]
    assert rows(client, "with counts as (select 1 as x) select x from counts") == [(1,)]
    assert rows(client, "select 1 + 1") == [(2,)]


def test_a_window_store_has_its_windows_as_columns(client: Client) -> None:
    """The end of a window follows from its size."""
    declaration = StoreDeclaration(
        "per-minute", Serdes.string(), Serdes.long(), None, 1, StoreKind.WINDOW, 60_000, 3_600_000
    )
    store = add(client, declaration, SegmentedWindowStore(MemoryStore("per-minute", TaskId(2, 0)), 3_600_000))
    store.apply([(window_key(b"a", at), at.to_bytes(8, "big"), at + 1) for at in (0, 60_000)], 2)
    found = run_sql(client, 'select * from "per-minute" order by window_start')
    assert found.schema.names == ["key", "window_start", "window_end", "value", "timestamp"]
    assert rows(
        client,
        "select key, epoch_ms(window_start), epoch_ms(window_end), value, epoch_ms(timestamp) "
        'from "per-minute" order by 2',
    ) == [("a", 0, 60_000, 0, 1), ("a", 60_000, 120_000, 60_000, 60_001)]


def test_a_session_store_has_its_sessions_as_columns(client: Client) -> None:
    """They reach from the first record to the last."""
    declaration = StoreDeclaration(
        "visits", Serdes.string(), Serdes.long(), None, 1, StoreKind.SESSION, None, 10_000
    )
    store = add(client, declaration, SegmentedSessionStore(MemoryStore("visits", TaskId(2, 0)), 10_000))
    store.apply([(session_key(b"a", 5, 9), (7).to_bytes(8, "big"), 9)], 1)
    assert rows(client, "select key, epoch_ms(window_start), epoch_ms(window_end), value from visits") == [
        ("a", 5, 9, 7)
    ]


def test_fields_of_a_struct_can_be_named(client: Client) -> None:
    """The type follows the serde's schema: a field that no value has is null."""
    serde = Serdes.json("user STRING, amount DOUBLE, tags ARRAY<STRING>, note STRING")
    store = add(
        client, StoreDeclaration("orders", Serdes.long(), serde, None, 1), MemoryStore("orders", TaskId(2, 0))
    )
    assert rows(client, "select value.user from orders") == []
    data = serde.serialize({"user": "eva", "amount": 3, "tags": ["x", "y"]})
    store.apply([((1).to_bytes(8, "big"), data, 1)], 1)
    asked = (
        "select key, value.user, value.amount, value.tags[2], value.note from orders where value.amount > 2"
    )
    assert rows(client, asked) == [(1, "eva", 3.0, "y", None)]


def test_values_of_a_serde_without_a_schema_have_the_type_that_fits(client: Client) -> None:
    """What another client's json serde says of itself is its name alone."""
    serde = replace(Serdes.json("x INT"), schema=None)  # type: ignore[call-arg]
    store = add(
        client, StoreDeclaration("loose", Serdes.string(), serde, None, 1), MemoryStore("loose", TaskId(2, 0))
    )
    assert rows(client, "select key from loose") == []
    store.apply([(b"a", b'{"x":1}', 1), (b"b", b'{"y":"z"}', 1)], 2)
    assert rows(client, "select key, value.x, value.y from loose order by key") == [
        ("a", 1, None),
        ("b", None, "z"),
    ]


def test_a_column_that_is_not_asked_for_is_not_decoded(client: Client) -> None:
    """A value that cannot be read is in nobody's way until it is looked at."""
    client.stores[0].apply([(key_in(0).encode(), b"short", 1)], 99)
    assert rows(client, "select count(*) from counts where key >= 'a'") == [(8,)]
    assert len(rows(client, "select key from counts")) == 8
    with pytest.raises(SerializationException, match="a value of store 'counts'"):
        run_sql(client, "select key from counts where value = 1")


def test_an_empty_store_is_an_empty_table(client: Client) -> None:
    """It has its types."""
    found = run_sql(Client(), "select * from counts")
    assert found.num_rows == 0
    assert found.schema.field("value").type == pa.int64()


def test_many_entries_are_read_in_chunks(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer does not depend on where one ends."""
    monkeypatch.setattr(millstream.query.sql, "_CHUNK_ROWS", 3)
    client.put(*(f"k{number:05}" for number in range(1000)))
    asked = "select count(*), count(distinct key), min(key), max(key) from counts where value > 5"
    assert rows(client, asked) == [(1000, 1000, "k00000", "k00999")]


# --- one moment ------------------------------------------------------------------------------------------


def test_the_answer_tells_the_positions_of_what_it_saw(client: Client) -> None:
    """For each store, topic and partition, it has the offset of the last record in the answer."""
    local = client.snapshot().local["counts"]
    parts = [replace(part, changelog=TopicPartition("log", part.task_id.partition)) for part in local]
    client.change(local={"counts": parts})
    found = run_sql(client, "select 1 from counts")
    wanted = {str(number): (store.position or 0) - 1 for number, store in client.stores.items()}
    assert json.loads(found.schema.metadata[POSITIONS]) == {"counts": {"log": wanted}}


def test_all_stores_are_opened_before_any_is_read(client: Client) -> None:
    """What is written while the first is read is in none of the answer."""

    class Clumsy(MemoryStore):
        """Writes to all others when it is read."""

        def range(self, *bounds: Any, **options: Any) -> Any:
            entries = super().range(*bounds, **options)

            def writing() -> Any:
                client.put("later", "much later")
                yield from entries

            return writing()

    add(
        client,
        StoreDeclaration("a-first", Serdes.string(), Serdes.long(), None, 1),
        Clumsy("a-first", TaskId(2, 0)),
    )
    assert rows(client, 'select count(*) from counts, (select count(*) from "a-first")') == [(7,)]
    assert rows(client, "select count(*) from counts") == [(9,)]


# --- what cannot be asked --------------------------------------------------------------------------------


def test_a_table_that_is_no_store_is_an_unknown_store(client: Client) -> None:
    """The message has the names that exist. A variable of the program is no table."""
    count = pa.table({"x": [1]})
    assert count.num_rows == 1
    with pytest.raises(UnknownStateStoreException, match=r"no state store 'count' .*Did you mean 'counts'\?"):
        run_sql(client, "select * from count")


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/hostname')",
        "select * from read_text('/etc/hostname')",
        "select * from glob('/*')",
        "select * from parquet_scan('http://127.0.0.1:9/x')",
        "select * from sniff_csv('/etc/hostname')",
    ],
)
def test_files_and_the_network_are_out_of_reach(client: Client, query: str) -> None:
    """The connection has no access to anything but the stores."""
    with pytest.raises((ValueError, StreamsException), match=r"(?i)disabled|does not exist|cannot"):
        run_sql(client, query)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "selec 1",
        "select",
        "select 1; select 2",
        "insert into counts values ('a', 1)",
        "create table x as select 1",
        "copy counts to '/tmp/kafka-streams-x.csv'",
        "attach '/tmp/kafka-streams-x.db'",
        "install httpfs",
        "load httpfs",
        "set memory_limit = '64GB'",
        "pragma database_list",
        "call duckdb_settings()",
        "explain select 1",
        "select nothing from counts",
        "select key + interval 1 day from counts",
        "select * from counts where key = ?",
    ],
)
def test_only_one_select_that_makes_sense_is_taken(client: Client, query: str) -> None:
    """Anything else is a mistake of the caller's."""
    with pytest.raises(ValueError, match=r"the query|one SELECT"):
        run_sql(client, query)


def test_the_settings_are_locked(client: Client) -> None:
    """No function changes them either; and the files are shut."""
    settings = dict(rows(client, "select name, value from duckdb_settings()"))
    assert settings["lock_configuration"] == "true"
    assert settings["enable_external_access"] == "false"
    assert settings["python_enable_replacements"] == "false"


def test_a_query_is_text(client: Client) -> None:
    """Other types are refused."""
    with pytest.raises(TypeError, match="as text"):
        run_sql(client, 7)  # type: ignore[arg-type]


def test_names_that_differ_in_case_alone_cannot_be_in_one_query(client: Client) -> None:
    """SQL would take one for the other; each by itself can."""
    store = MemoryStore("Counts", TaskId(2, 0))
    add(client, StoreDeclaration("Counts", Serdes.string(), Serdes.long(), None, 1), store)
    assert rows(client, "select count(*) from counts") == [(7,)]
    assert rows(client, 'select count(*) from "Counts"') == [(0,)]
    with pytest.raises(ValueError, match="case-insensitive"):
        run_sql(client, 'select * from counts, "Counts"')


def test_without_duckdb_it_says_how_to_get_it(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message also says what works without it."""
    monkeypatch.setattr(millstream.query.sql, "find_spec", lambda name: None)
    with pytest.raises(SetupException, match=r"pip install 'millstream\[sql\]'"):
        run_sql(client, "select 1")


# --- what can go wrong -----------------------------------------------------------------------------------


def test_a_store_that_cannot_be_read_raises_its_leaf(client: Client) -> None:
    """The same as a read over all of it would; only for stores that the query names."""
    client.thread_is(1, "PARTITIONS_ASSIGNED")
    with pytest.raises(StreamsRebalancingException):
        run_sql(client, "from counts")
    assert rows(client, "select 1") == [(1,)]
    client.thread_is(1, "RUNNING")
    client.client_is("CREATED")
    with pytest.raises(StreamsNotStartedException):
        run_sql(client, "from counts")
    client.client_is("ERROR")
    with pytest.raises(StateStoreNotAvailableException):
        run_sql(client, "from counts")


def test_a_store_that_has_left_is_told(client: Client) -> None:
    """Closed before the query, or under it."""
    client.stores[2].close()
    with pytest.raises(StateStoreMigratedException):
        run_sql(client, "from counts")

    class Leaves(MemoryStore):
        def range(self, *bounds: Any, **options: Any) -> Any:
            entries = super().range(*bounds, **options)
            self.close()
            return entries

    store = Leaves("leaves", TaskId(2, 0))
    store.apply([(b"a", b"\0" * 8, 1)], 1)
    add(client, StoreDeclaration("leaves", Serdes.string(), Serdes.long(), None, 1), store)
    with pytest.raises(StateStoreMigratedException, match="under a query"):
        run_sql(client, "from leaves")


def test_no_iterator_stays_open(client: Client) -> None:
    """A query may succeed, fail or be interrupted."""
    for query in ("from counts", "select nothing from counts"):
        with contextlib.suppress(ValueError):
            run_sql(client, query)
    client.stores[2].close()
    with pytest.raises(StateStoreMigratedException):
        run_sql(client, "from counts")
    assert [len(client.stores[number]._iterators) for number in (0, 1)] == [0, 0]


def test_reading_the_stores_has_the_deadline_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that leaps: the time is up when the first chunk is there; and no iterator stays open."""
    monkeypatch.setattr(millstream.query.sql, "_CHUNK_ROWS", 1)

    class Leaping:
        def __init__(self) -> None:
            self.at = 0.0

        def now(self) -> float:
            self.at += 20.0
            return self.at

        def epoch_ms(self) -> int:
            return 0

    with pytest.raises(TimeoutException) as caught:
        run_sql(client, "from counts", clock=Leaping())
    assert caught.value.__traceback__ is not None, "what it has held is still referred to"
    assert [len(store._iterators) for store in client.stores.values()] == [0] * 3


def test_what_cannot_be_computed_is_duckdbs_failure(client: Client) -> None:
    """DuckDB's message is in an exception of ours."""
    with pytest.raises(StreamsException, match=r"failed in DuckDB.*Could not convert"):
        run_sql(client, "select key::int from counts")
