"""Tests of the processor. They need no broker: pytest test_processors.py."""

from datetime import UTC, datetime, timedelta

from processors import topology

from millstream import Serdes
from millstream.testing import TopologyTestDriver

NINE = datetime(2026, 7, 1, 9, 0, tzinfo=UTC)


def test_the_third_refusal_within_ten_minutes_is_a_warning():
    with TopologyTestDriver(topology) as driver:
        cards = driver.create_input_topic("cards", Serdes.string(), Serdes.string())
        warnings = driver.create_output_topic("warnings", Serdes.string(), Serdes.string())

        for minute in (0, 2, 4, 5):
            cards.pipe_input("1234", "declined", timestamp=NINE + timedelta(minutes=minute))
        for minute in (6, 12, 17):
            cards.pipe_input("5678", "declined", timestamp=NINE + timedelta(minutes=minute))

        assert warnings.read_key_values_to_list() == [("1234", "declined 3 times")]


def test_a_card_that_was_quiet_for_ten_minutes_is_forgotten():
    with TopologyTestDriver(topology) as driver:
        cards = driver.create_input_topic("cards", Serdes.string(), Serdes.string())

        cards.pipe_input("1234", "declined", timestamp=NINE)
        assert driver.get_key_value_store("declined").get("1234") is not None

        cards.pipe_input("5678", "paid", timestamp=NINE + timedelta(minutes=11))
        assert driver.get_key_value_store("declined").get("1234") is None
