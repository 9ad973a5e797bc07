"""What a query asks for."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.model import StoreKind
from millstream.query.composite import QueryableStoreTypes
from millstream.query.parameters import StoreQueryParameters

TYPE = QueryableStoreTypes.key_value_store()


def test_parameters_are_values_and_each_method_makes_new_ones() -> None:
    """Kafka Streams does the same. They compare by their contents."""
    plain = StoreQueryParameters.from_name_and_type("counts", TYPE)
    narrowed = plain.with_partition(2).enable_stale_stores()
    assert (plain.partition, plain.stale_stores_enabled) == (None, False)
    assert (narrowed.store_name, narrowed.partition, narrowed.stale_stores_enabled) == ("counts", 2, True)
    assert narrowed.queryable_store_type == TYPE
    assert plain == StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())
    assert plain != narrowed
    assert hash(plain) != hash(narrowed)


@pytest.mark.parametrize("name", [None, "", 5, b"counts"])
def test_a_store_name_is_text(name: Any) -> None:
    """Kafka: NullPointerException."""
    with pytest.raises(TypeError, match="a store name must be a non-empty str"):
        StoreQueryParameters.from_name_and_type(name, TYPE)


@pytest.mark.parametrize("kind", [None, "key_value_store", QueryableStoreTypes.key_value_store])
def test_a_store_type_comes_from_queryable_store_types(kind: Any) -> None:
    """The commonest slip is to leave out the brackets; the error shows them."""
    with pytest.raises(TypeError, match=r"such as QueryableStoreTypes\.key_value_store\(\)"):
        StoreQueryParameters.from_name_and_type("counts", kind)


@pytest.mark.parametrize(("partition", "error"), [(-1, ValueError), ("1", TypeError), (True, TypeError)])
def test_a_partition_is_a_number(partition: Any, error: type[Exception]) -> None:
    """It is 0 or greater."""
    with pytest.raises(error, match="a partition must be"):
        StoreQueryParameters.from_name_and_type("counts", TYPE).with_partition(partition)


def test_the_types_fit_key_value_stores() -> None:
    """Plain and timestamped; no other kind."""
    for kind in (TYPE, QueryableStoreTypes.timestamped_key_value_store()):
        assert kind.accepts(StoreKind.KEY_VALUE)
        assert not kind.accepts(StoreKind.WINDOW)
        assert not kind.accepts(StoreKind.SESSION)
    assert repr(TYPE) == "QueryableStoreTypes.key_value_store()"
