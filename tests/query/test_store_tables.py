"""Stores in Arrow: the type of each column, batches, and what becomes of a store that leaves."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
)
from windowed_worlds import MINUTE, WindowedClient, now
from worlds import PARTITIONS, Client, partition_of

from millstream.errors import (
    SerializationException,
    StateStoreMigratedException,
    StateStoreNotAvailableException,
    StreamsRebalancingException,
)
from millstream.model import StoreKind
from millstream.query.schemas import arrow_type
from millstream.serdes.formats import JsonSerde
from millstream.serdes.serde import Serde
from millstream.serdes.serdes import Serdes

TIMESTAMP = pa.timestamp("ms", tz="UTC")


def client_with(key_serde: Serde, value_serde: Serde, *entries: tuple[Any, Any]) -> Client:
    """A client whose store `counts` has these serdes and entries, in one partition."""
    client = Client([0], routed=False)
    declaration = replace(client.snapshot().stores["counts"], key_serde=key_serde, value_serde=value_serde)
    client.change(stores={"counts": declaration})
    data = [(key_serde.serialize(key) or b"", value_serde.serialize(value), 5) for key, value in entries]
    client.stores[0].apply(data, len(data))
    return client


# --- types -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("serde", "values", "kind"),
    [
        (Serdes.bytes(), [b"", b"\xff"], pa.binary()),
        (Serdes.string(), ["", "x", "ü€😀"], pa.string()),
        (Serdes.short(), [-(2**15), 2**15 - 1], pa.int16()),
        (Serdes.integer(), [-(2**31), 2**31 - 1], pa.int32()),
        (Serdes.long(), [-(2**63), -1, 0, 2**63 - 1], pa.int64()),
        (Serdes.float(), [0.5, -1.25], pa.float32()),
        (Serdes.double(), [0.1, -1e300, float("inf")], pa.float64()),
        (Serdes.boolean(), [True, False], pa.bool_()),
    ],
)
def test_each_serde_has_the_type_that_holds_its_values(
    serde: Serde, values: list[Any], kind: pa.DataType
) -> None:
    """This holds for keys and values. The values are those that the handle returns."""
    store = client_with(serde, serde, *((value, value) for value in values)).store(timestamped=True)
    table = store.to_arrow()
    assert table.schema == pa.schema([("key", kind), ("value", kind), ("timestamp", TIMESTAMP)])
    entries = list(store.all())
    assert table["key"].to_pylist() == [key for key, _ in entries]
    assert table["value"].to_pylist() == [value.value for _, value in entries]
    assert sorted(table["value"].to_pylist()) == sorted(values)


def test_a_uuid_is_its_text() -> None:
    """Spark does the same."""
    one = uuid.uuid4()
    table = client_with(Serdes.uuid(), Serdes.uuid(), (one, one)).store().to_arrow()
    assert table.to_pydict() == {"key": [str(one)], "value": [str(one)]}
    assert table.schema.field("value").type == pa.string()


def test_text_that_is_not_utf_8_is_read_as_its_serde_does() -> None:
    """It is read with U+FFFD, without an error."""
    client = client_with(Serdes.string(), Serdes.string())
    client.stores[0].apply([(b"k\xff", b"\xfe", 1), (b"l", b"fine", 1)], 2)
    assert client.store().to_arrow().to_pydict() == {"key": ["k\ufffd", "l"], "value": ["\ufffd", "fine"]}


@pytest.mark.parametrize("data", [b"", b"short", b"much too long", b"twice as long as"])
def test_bytes_of_another_serde_are_told(data: bytes) -> None:
    """The error has the store's name, even if the total size of all values would fit."""
    client = client_with(Serdes.string(), Serdes.long())
    client.stores[0].apply([(b"a", data, 1), (b"b", b"x" * max(8 * (len(data) == 16), 16 - len(data)), 1)], 2)
    with pytest.raises(SerializationException, match="a value of store 'counts' cannot be read"):
        client.store().to_arrow()


def test_an_unreadable_value_names_its_key_and_partition() -> None:
    """One of many, whichever way the store is read: so that it can be replaced."""
    client = client_with(Serdes.string(), Serdes.long())
    good = (7).to_bytes(8, "big")
    client.stores[0].apply([(b"a", good, 1), (b"bad", b"abc", 1), (b"c", good, 1)], 3)
    said = r"a value of store 'counts' cannot be read: .*3.* \(key 'bad', partition 0; a new record of"
    for read in (client.store().to_arrow, lambda: list(client.store().all())):
        with pytest.raises(SerializationException, match=said):
            read()


def test_json_values_have_the_fields_of_their_schema() -> None:
    """Fields without any value are included. Numbers have the declared types; objects with any keys are maps.
    Fields without any value are included. Numbers have the declared types; objects with any keys are maps."""
    serde = Serdes.json("x DOUBLE, note STRING, tags ARRAY<INT>, of MAP<STRING, BIGINT>, at TIMESTAMP")
    values = [("a", {"x": 1, "of": {"k": 7}}), ("b", {"tags": [1], "at": "2026-01-01T00:00:00.000Z"})]
    table = client_with(Serdes.string(), serde, *values).store().to_arrow()
    nothing = {"x": None, "note": None, "tags": None, "of": None, "at": None}
    assert table["value"].to_pylist() == [
        {**nothing, "x": 1.0, "of": [("k", 7)]},
        {**nothing, "tags": [1], "at": "2026-01-01T00:00:00.000Z"},
    ]
    assert pa.types.is_map(table.schema.field("value").type.field("of").type)


@pytest.mark.parametrize("schema", ["s STRING, of MAP<STRING, STRING>", None])
def test_a_store_is_a_table_whatever_texts_its_records_have(schema: str | None) -> None:
    """Half of a surrogate pair is a text in JSON, and in Python, and nowhere else."""
    serde = JsonSerde(schema=schema)
    client = client_with(serde, serde)
    half = rb'{"s":"\ud83d!","of":{"\udc00":"\ud83c\udf89"}}'
    client.stores[0].apply([(half, half, 5)], 1)
    table = client.store().to_arrow()
    (row,) = table["value"].to_pylist()
    assert row["s"] == "\ufffd!"
    assert "\ufffd" in dict(row["of"])
    assert dict(row["of"])["\ufffd"] == "🎉"
    assert table["key"].to_pylist() == [row]


def test_a_json_serde_without_a_schema_has_the_fields_of_its_values() -> None:
    """What another client tells of it is its name."""
    table = client_with(Serdes.string(), JsonSerde(), ("a", {"x": 1}), ("b", {"y": "t"})).store().to_arrow()
    assert table.schema.field("value").type == pa.struct([("x", pa.int64()), ("y", pa.string())])


def test_values_without_a_common_shape_are_text() -> None:
    """Nothing is lost."""
    table = client_with(Serdes.string(), JsonSerde(), ("a", {"x": 1}), ("b", {"x": [1]})).store().to_arrow()
    assert table["value"].to_pylist() == ['{"x": 1}', '{"x": [1]}']


@pytest.mark.parametrize("timestamped", [False, True])
def test_an_empty_store_has_its_types(timestamped: bool) -> None:
    """The code that reads it does not break."""
    table = Client().store(timestamped=timestamped).to_arrow()
    assert table.num_rows == 0
    fields = [("key", pa.string()), ("value", pa.int64()), ("timestamp", TIMESTAMP)]
    assert table.schema == pa.schema(fields[: 3 if timestamped else 2])


SCHEMAS = [
    ("a INT", pa.struct([("a", pa.int32())])),
    ("a: INT, b:string", pa.struct([("a", pa.int32()), ("b", pa.string())])),
    ("struct<a: TINYINT, b: smallint>", pa.struct([("a", pa.int8()), ("b", pa.int16())])),
    ("struct INT", pa.struct([("struct", pa.int32())])),
    ("`a b` BIGINT NOT NULL COMMENT 'it''s', c FLOAT", None),
    ("`a b` BIGINT NOT NULL COMMENT 'its', c FLOAT", pa.struct([("a b", pa.int64()), ("c", pa.float32())])),
    ("a ARRAY<STRUCT<b: DOUBLE>>", pa.struct([("a", pa.list_(pa.struct([("b", pa.float64())])))])),
    ("a MAP<STRING, ARRAY<BOOLEAN>>", pa.struct([("a", pa.map_(pa.string(), pa.list_(pa.bool_())))])),
    ("a DECIMAL(10, 2), b VARCHAR(5)", pa.struct([("a", pa.float64()), ("b", pa.string())])),
    ("a DATE, b BINARY", pa.struct([("a", pa.string()), ("b", pa.string())])),
    ("a VARIANT", None),
    ("?", None),
]


@pytest.mark.parametrize(("schema", "kind"), SCHEMAS)
def test_a_ddl_schema_has_an_arrow_type(schema: str, kind: pa.DataType | None) -> None:
    """None where it is not understood: then the values tell."""
    assert arrow_type(Serdes.json(schema)) == kind


def test_a_struct_type_has_the_same_arrow_type() -> None:
    """It equals that of its DDL, and that of Spark's JSON form."""
    schema = StructType(
        [
            StructField("a", IntegerType()),
            StructField("b", MapType(StringType(), ArrayType(DoubleType()))),
            StructField(
                "c", StructType([StructField("d", DecimalType(10, 2)), StructField("e", DateType())])
            ),
        ]
    )
    same = "a INT, b MAP<STRING, ARRAY<DOUBLE>>, c STRUCT<d: DECIMAL(10, 2), e: DATE>"
    assert arrow_type(Serdes.json(schema)) == arrow_type(Serdes.json(same))
    assert arrow_type(Serdes.json(same)) is not None
    assert arrow_type(Serdes.json(StructType([StructField("a", NullType())]))) is None


# --- batches ---------------------------------------------------------------------------------------------


@pytest.fixture
def client() -> Client:
    made = Client()
    made.put(*(f"k{number:03}" for number in range(100)))
    return made


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_batches_are_the_table_in_order(client: Client, rows: int) -> None:
    """None is larger than asked for; keys are in order over all partitions."""
    batches = list(client.store(timestamped=True).to_arrow_batches(rows))
    assert max(map(len, batches)) <= rows
    table = pa.Table.from_batches(batches)
    assert table.equals(client.store(timestamped=True).to_arrow())
    assert table["key"].to_pylist() == [f"k{number:03}" for number in range(100)]


def test_large_entries_come_in_small_batches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by bytes, not by rows alone."""
    monkeypatch.setattr("millstream.query.store_tables._CHUNK_BYTES", 200)
    sizes = [len(batch) for batch in client.store().to_arrow_batches(50)]
    assert sizes[0] == 50
    assert max(sizes[1:]) < 20
    assert sum(sizes) == 100


def test_batches_are_a_snapshot(client: Client) -> None:
    """What is written later is in none of them."""
    reader = client.store().to_arrow_batches(10)
    client.put("later", "k000x")
    assert reader.read_all().num_rows == 100


def test_an_empty_store_has_a_batch_with_its_types() -> None:
    """No rows."""
    reader = Client().store().to_arrow_batches()
    assert reader.schema == pa.schema([("key", pa.string()), ("value", pa.int64())])
    assert reader.read_all().num_rows == 0


def test_a_reader_that_is_read_or_dropped_leaves_nothing_open(client: Client) -> None:
    """Iterators of a store are counted."""
    client.store().to_arrow_batches(10).read_all()
    half = client.store().to_arrow_batches(10)
    half.read_next_batch()
    del half
    assert [len(store._iterators) for store in client.stores.values()] == [0] * PARTITIONS


def test_a_store_that_leaves_under_the_reader_raises_its_leaf(client: Client) -> None:
    """An iterator raises the same."""
    reader = client.store().to_arrow_batches(1)
    reader.read_next_batch()
    client.move_away(0)
    client.move_away(1)
    client.move_away(2)
    with pytest.raises(StateStoreMigratedException, match="iterator"):
        reader.read_all()
    client.client_is("ERROR")
    with pytest.raises(StateStoreNotAvailableException):
        client.store()


def test_what_cannot_be_read_now_raises_at_once(client: Client) -> None:
    """The error is raised before there is a reader or a table."""
    store = client.store()
    client.thread_is(0, "PARTITIONS_REVOKED")
    for read in (store.to_arrow, store.to_arrow_batches, lambda: store.to_spark(Session())):
        with pytest.raises(StreamsRebalancingException):
            read()


@pytest.mark.parametrize("rows", [0, -1, True, 1.5, None])
def test_a_batch_has_rows(client: Client, rows: Any) -> None:
    """One or more."""
    with pytest.raises(ValueError, match="rows must be at least 1"):
        client.store().to_arrow_batches(rows)


def test_later_batches_fit_the_first_or_say_so() -> None:
    """Batches can differ only if the type is known from values alone."""
    serde = JsonSerde()
    loose = client_with(Serdes.string(), serde, ("a", {"x": 1}), ("b", {"x": 2}), ("c", {"x": [1]}))
    reader = loose.store().to_arrow_batches(1)
    assert reader.read_next_batch()["value"].to_pylist() == [{"x": 1}]
    assert reader.read_next_batch()["value"].to_pylist() == [{"x": 2}]
    with pytest.raises(SerializationException, match=r"to_arrow\(\)"):
        reader.read_next_batch()


# --- windows, sessions -----------------------------------------------------------------------------------


def test_windows_are_columns_in_batches_too() -> None:
    """The order is by key, then by start."""
    client = WindowedClient(StoreKind.WINDOW)
    for key in "ba":
        for start in (now, now - MINUTE):
            client.add(key, start)
    client.keep_time()
    batches = list(client.windowed(timestamped=True).to_arrow_batches(3))
    assert [len(batch) for batch in batches] == [3, 1]
    table = pa.Table.from_batches(batches)
    assert table.column_names == ["key", "window_start", "window_end", "value", "timestamp"]
    starts = [int(at.timestamp() * 1000) for at in table["window_start"].to_pylist()]
    assert list(zip(table["key"].to_pylist(), starts, strict=True)) == [
        ("a", now - MINUTE),
        ("a", now),
        ("b", now - MINUTE),
        ("b", now),
    ]
    assert {
        (end - start).total_seconds()
        for start, end in zip(table["window_start"].to_pylist(), table["window_end"].to_pylist(), strict=True)
    } == {60.0}


def test_sessions_are_columns_in_batches_too() -> None:
    """Their ends are their own."""
    client = WindowedClient(StoreKind.SESSION)
    client.add("a", now - 5, now)
    client.keep_time()
    (row,) = client.windowed().to_arrow_batches().read_all().to_pylist()
    assert (row["window_end"] - row["window_start"]).microseconds == 5000
    assert row["value"] == 1


# --- other frames ----------------------------------------------------------------------------------------


@dataclass
class Session:
    """What to_spark() asks of a SparkSession; the real one is in test_store_tables_spark.py."""

    made: Any = None

    def createDataFrame(self, data: Any) -> Any:
        self.made = data
        return self


def test_to_spark_hands_over_a_table(client: Client) -> None:
    """An object without createDataFrame is no session."""
    session = Session()
    assert client.store().to_spark(session) is session
    assert session.made.equals(client.store().to_arrow())
    with pytest.raises(TypeError, match="SparkSession"):
        client.store().to_spark("local[*]")


def test_a_partition_can_be_a_table(client: Client) -> None:
    """What the handle is for is what is in it."""
    keys = client.store(partition=1).to_arrow()["key"].to_pylist()
    assert keys == sorted(key for key in keys if partition_of(key.encode()) == 1)
    assert 0 < len(keys) < 100
