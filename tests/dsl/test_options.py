"""Options are frozen, copy themselves with changes, and refuse what they cannot hold."""

from dataclasses import FrozenInstanceError
from datetime import timedelta

import pytest

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import (
    AutoOffsetReset,
    Branched,
    Consumed,
    Grouped,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    StoreType,
)
from millstream.errors import TopologyException
from millstream.serdes.serdes import Serdes
from millstream.topology.nodes import OffsetReset

WITH_SERDES = [Consumed, Produced, Grouped, Repartitioned, Materialized]


@pytest.mark.parametrize("option", WITH_SERDES)
def test_with_takes_serdes_and_the_methods_change_them(option):
    """`with_(key, value)`, `with_key_serde`, `with_value_serde`."""
    made = option.with_(Serdes.string(), Serdes.long())
    assert (made.key_serde, made.value_serde) == (Serdes.string(), Serdes.long())
    changed = made.with_key_serde(Serdes.uuid()).with_value_serde(None)
    assert (changed.key_serde, changed.value_serde) == (Serdes.uuid(), None)
    assert made.key_serde == Serdes.string()


@pytest.mark.parametrize("option", WITH_SERDES)
def test_options_are_frozen_values(option):
    """Nothing can be set; equal ones are equal."""
    assert option.with_(Serdes.string()) == option.with_(key_serde=Serdes.string())
    with pytest.raises(FrozenInstanceError):
        option.with_().key_serde = Serdes.long()


@pytest.mark.parametrize("option", WITH_SERDES)
@pytest.mark.parametrize("serde", ["string", Serdes, Serdes.string], ids=["a name", "Serdes", "a method"])
def test_what_is_no_serde_is_refused(option, serde):
    """A name or a class in place of a serde is a slip, found at once."""
    with pytest.raises(TopologyException, match=f"key_serde of {option.__name__} is a serde"):
        option.with_(serde)


@pytest.mark.parametrize("option", [Named, Consumed, Produced, Grouped, Repartitioned, Branched])
def test_as_names_and_with_name_renames(option):
    """`as_(name)`, `with_name(name)`."""
    assert option.as_("a").name == "a"
    assert option.as_("a").with_name("b").name == "b"


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("", "empty"),
        (".", '"."'),
        ("..", '"."'),
        ("a" * 250, "250"),
        ("two words", "two words"),
        ("straße", "straße"),
        ("a/b", "a/b"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_names_that_no_topic_could_have_are_refused(name, what):
    """Kafka's rule, Named.validate."""
    for option in (Named, Consumed, Produced, Grouped, Repartitioned, Branched, Materialized):
        with pytest.raises(TopologyException) as caught:
            option.as_(name)
        assert what in str(caught.value), option


def test_a_name_of_249_characters_is_taken():
    """The longest that Kafka allows."""
    assert Named.as_("a" * 249).name == "a" * 249


def test_materialized_with_everything():
    """Name, configs of the changelog, type."""
    made = (
        Materialized.as_("counts")
        .with_logging_enabled({"retention.ms": "1000"})
        .with_store_type(StoreType.IN_MEMORY)
        .with_caching_disabled()
    )
    assert made.store_name == "counts"
    assert made.topic_config == {"retention.ms": "1000"}
    assert made.store_type is StoreType.IN_MEMORY
    assert not made.caching_enabled
    assert made.with_caching_enabled().caching_enabled


def test_logging_disabled_forgets_the_configs():
    """As Kafka Streams does."""
    made = Materialized.as_("counts").with_logging_enabled({"retention.ms": "1000"}).with_logging_disabled()
    assert (made.logging_enabled, made.topic_config) == (False, {})


def test_materialized_as_a_store_type_has_no_name():
    """`Materialized.as_(StoreType.IN_MEMORY)`: a kind of store, not a name."""
    assert Materialized.as_(StoreType.IN_MEMORY) == Materialized.with_().with_store_type(StoreType.IN_MEMORY)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Materialized.as_("a").with_store_type("rocksDB"),
        lambda: Materialized.as_("a").with_logging_enabled({"retention.ms": 1000}),
        lambda: Consumed.with_().with_offset_reset_policy("earliest"),
        lambda: Repartitioned.with_(number_of_partitions=0),
        lambda: Repartitioned.as_("a").with_number_of_partitions("3"),
        lambda: Repartitioned.as_("a").with_number_of_partitions(True),
        lambda: Produced.with_().with_stream_partitioner(3),
        lambda: Repartitioned.with_().with_stream_partitioner(3),
        lambda: Produced.with_().with_stream_partitioner(lambda: 3),
        lambda: Branched.with_function(lambda: None),
        lambda: Branched.with_consumer("branch"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(make):
    """At the line where they are given."""
    with pytest.raises(TopologyException):
        make()


def test_a_source_can_begin_so_far_back_or_not_at_all():
    """By a duration, which is not negative; two sources of a topic agree on it."""
    hour = AutoOffsetReset.by_duration(timedelta(hours=1))
    assert hour == AutoOffsetReset.by_duration(timedelta(minutes=60))
    assert Consumed().with_offset_reset_policy(AutoOffsetReset.none()).offset_reset_policy is OffsetReset.NONE
    builder = StreamsBuilder()
    for _ in range(2):
        builder.stream(
            "in", Consumed.with_(offset_reset_policy=AutoOffsetReset.by_duration(timedelta(hours=1)))
        )
    with pytest.raises(TopologyException, match="can't configure different offset reset policies"):
        builder.stream("in", Consumed.with_(offset_reset_policy=AutoOffsetReset.none()))
    with pytest.raises(TopologyException, match="Duration cannot be negative"):
        AutoOffsetReset.by_duration(timedelta(hours=-1))
    with pytest.raises(TopologyException, match=r"of AutoOffsetReset.by_duration\(\) is a timedelta"):
        AutoOffsetReset.by_duration(3600)


def test_offset_resets_go_through():
    """`AutoOffsetReset.earliest()` and the constants are the same."""
    consumed = Consumed.with_(offset_reset_policy=AutoOffsetReset.latest())
    assert consumed.offset_reset_policy is AutoOffsetReset.LATEST
    earliest = consumed.with_offset_reset_policy(AutoOffsetReset.earliest())
    assert earliest.offset_reset_policy is AutoOffsetReset.EARLIEST
