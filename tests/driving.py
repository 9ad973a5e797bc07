"""Shorthand for tests that drive a topology: records in as tuples, records out as tuples."""

from __future__ import annotations

from typing import Any

from millstream import Consumed, Serde, Serdes
from millstream.testing import TestRecord, TopologyTestDriver

__all__ = ["STRINGS", "pipe", "read", "records", "rows", "stamped"]

STRINGS = Consumed.with_(Serdes.string(), Serdes.string())


def pipe(
    driver: TopologyTestDriver,
    topic: str,
    *records: tuple[Any, ...],
    key: Serde | str = "string",
    value: Serde | str = "string",
) -> None:
    """One micro-batch of records: key, value, and if need be timestamp in ms and headers."""
    driver.create_input_topic(topic, key, value).pipe_record_list(TestRecord(*record) for record in records)


def records(
    driver: TopologyTestDriver, topic: str, key: Serde | str = "string", value: Serde | str = "string"
) -> list[TestRecord]:
    """What was written to a topic since it was read last, in order."""
    return driver.create_output_topic(topic, key, value).read_records_to_list()


def read(
    driver: TopologyTestDriver, topic: str, key: Serde | str = "string", value: Serde | str = "string"
) -> list[tuple[Any, Any]]:
    """Keys and values of it."""
    return [(record.key, record.value) for record in records(driver, topic, key, value)]


def rows(driver: TopologyTestDriver, store: str) -> dict[Any, Any]:
    """Everything that a store holds."""
    with driver.get_key_value_store(store).all() as entries:
        return dict(entries)


def stamped(driver: TopologyTestDriver, store: str) -> dict[Any, tuple[Any, int]]:
    """Everything that a store holds, with timestamps."""
    with driver.get_timestamped_key_value_store(store).all() as entries:
        return {key: tuple(value) for key, value in entries}
