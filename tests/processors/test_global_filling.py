"""A global store with a processor of its own, in a client: what queries read is what the processor puts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from millstream import Consumed, Processor, Record, Serdes, Stores, StreamsBuilder, Topology, processor
from millstream.errors import StreamsException, TopologyException
from millstream.model import TaskId, TopicPartition
from millstream.processors.filling import filled
from millstream.registry.registry_settings import RegistrySettings
from millstream.serdes.registered import bound
from millstream.stores.opening import open_store
from millstream.stores.store_base import to_stored

STRINGS = (Serdes.string(), Serdes.string())


class Upper(Processor):
    """Keeps values in capitals, and under each key's first letter what the last one was."""

    def init(self, context: Any) -> None:
        self.store = context.get_state_store("global")

    def process(self, record: Record) -> None:
        if record.value == "wrong":
            raise ValueError("told to")
        value = record.value and record.value.upper()
        self.store.put(record.key, value)
        self.store.put(record.key[0], f"{self.store.get(record.key[0]) or ''}{value}")
        with self.store.range("a", "b") as entries:
            self.store.put("count", str(len(list(entries))))


def topology(builder: Any = None) -> Topology:
    supplier = Stores.in_memory_key_value_store("global")
    builder = StreamsBuilder()
    store = Stores.key_value_store_builder(supplier, *STRINGS)
    builder.add_global_store(store, "g", Consumed.with_(*STRINGS), Upper)
    builder.global_table("plain")
    return builder.build()


def opened(built: Topology, name: str, registry: RegistrySettings | None = None) -> Any:
    inner = open_store(built.global_stores[name], TaskId(0, 0), None)
    return filled(
        inner,
        built,
        TopicPartition("g", 0),
        application_id="a",
        config={},
        default=(None, None),
        bound=partial(bound, settings=registry, topic="g"),
    )


def test_what_is_read_goes_through_the_processor() -> None:
    """In a batch it sees what it put before; a batch is kept as a whole, with its offset."""
    store = opened(topology(), "global")
    store.apply([(b"ab", b"x", 1), (b"ac", b"y", 2)], 2)
    store.apply([(b"ab", None, 3), (b"ad", b"z", 4)], 4)
    assert store.get(b"ab") is None
    assert store.get(b"ac") == to_stored(b"Y", 2)
    assert store.get(b"a") == to_stored(b"XYNoneZ", 4)
    assert store.get(b"count") == to_stored(b"3", 4)
    assert [key for key, _ in store.range(None, None)] == [b"a", b"ac", b"ad", b"count"]
    assert (store.name, store.position) == ("global", 4)


def test_serdes_with_a_registry_have_that_of_the_configuration() -> None:
    """Those of the topic, and those of the store, which may be others."""
    registry = RegistrySettings.of({"schema.registry.url": "mock://filling"}, "a")
    schema = {"type": "record", "name": "Name", "fields": [{"name": "name", "type": "string"}]}
    avro = Serdes.avro(schema)

    @processor(store="global")
    def named(record: Record, store: Any) -> None:
        store.put(record.key, {"name": record.value["name"].title()})

    for of_store in (avro, Serdes.json("name STRING")):
        builder = StreamsBuilder()
        store = Stores.key_value_store_builder(
            Stores.in_memory_key_value_store("global"), Serdes.string(), of_store
        )
        builder.add_global_store(store, "g", Consumed.with_(Serdes.string(), avro), named)
        filling = opened(builder.build(), "global", registry)
        name = bound(avro, registry, "g").serialize({"name": "ann"})
        filling.apply([(b"a", name, 1)], 1)
        written = bound(of_store, registry, "g").serialize({"name": "Ann"})
        assert filling.get(b"a") == to_stored(written, 1)


def test_a_global_table_is_kept_as_it_is_read() -> None:
    """Nothing is in between."""
    built = topology()
    (name,) = (each for each in built.global_stores if each != "global")
    assert type(opened(built, name)).__module__.startswith("millstream.stores")


def test_what_the_processor_raises_ends_the_thread_that_fills_the_store() -> None:
    """Nothing of the batch is kept."""
    store = opened(topology(), "global")
    with pytest.raises(
        StreamsException, match="of the global store 'global', raised ValueError: told to, at a"
    ):
        store.apply([(b"ab", b"x", 1), (b"ac", b"wrong", 2)], 2)
    assert store.get(b"ab") is None
    assert store.position is None


def test_only_key_value_stores_are_filled_by_processors() -> None:
    """Entries have the timestamps of the topic."""
    from datetime import timedelta

    sessions = Stores.session_store_builder(Stores.in_memory_session_store("s", timedelta(1)))
    with pytest.raises(
        TopologyException, match="the global store 's' is a key-value store without a history"
    ):
        StreamsBuilder().add_global_store(sessions, "g", None, Upper)
    plain = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"))
    own = Consumed().with_timestamp_extractor(lambda value: value)
    with pytest.raises(TopologyException, match="a global store takes no timestamp extractor"):
        StreamsBuilder().add_global_store(plain, "g", own, Upper)
