"""StreamsBuilder.global_table under the TopologyTestDriver: a topic piped in is a table to be queried."""

from __future__ import annotations

import pytest
from driving import STRINGS, pipe, read, rows, stamped

from millstream.dsl.builder import StreamsBuilder
from millstream.dsl.options import Materialized
from millstream.errors import TopologyException
from millstream.testing.driver import TopologyTestDriver


def test_global_tables_alone_need_no_spark() -> None:
    """A null value deletes, a null key is skipped; a generated name is for queries too."""
    builder = StreamsBuilder()
    builder.global_table("users", STRINGS, Materialized.as_("by-id"))
    towns = builder.global_table("towns", STRINGS)
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "users", ("a", "1", 10), ("b", "1", 20), (None, "x", 30), ("a", "2", 5), ("b", None, 40))
        assert stamped(driver, "by-id") == {"a": ("2", 5)}
        assert rows(driver, towns.queryable_store_name) == {}
        pipe(driver, "towns", ("k", "v"))
        assert rows(driver, towns.queryable_store_name) == {"k": "v"}
        with pytest.raises(ValueError, match="it reads 'towns', 'users'"):
            driver.create_input_topic("other", "string", "string")


def test_a_global_table_without_serdes_is_refused() -> None:
    """The error shows where they go; the configured defaults do too."""
    builder = StreamsBuilder()
    builder.global_table("users", Materialized.as_("by-id"))
    with pytest.raises(TopologyException, match="no key serde for the global table of topic 'users'"):
        TopologyTestDriver(builder.build())
    defaults = {"default.key.serde": "string", "default.value.serde": "string"}
    with TopologyTestDriver(builder.build(), defaults) as driver:
        pipe(driver, "users", ("a", "1"))
        assert rows(driver, "by-id") == {"a": "1"}


@pytest.mark.spark
def test_a_global_table_has_what_the_program_writes_to_its_topic() -> None:
    """As in a cluster: a topic is a topic, whoever writes it."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).filter(lambda value: value != "no").to("users")
    builder.global_table("users", STRINGS, Materialized.as_("by-id"))
    with TopologyTestDriver(builder.build()) as driver:
        pipe(driver, "in", ("a", "1"), ("b", "no"))
        assert read(driver, "users") == [("a", "1")]
        assert rows(driver, "by-id") == {"a": "1"}
