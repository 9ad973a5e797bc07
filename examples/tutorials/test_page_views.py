"""Tests of the two programs. They need no broker: pytest test_page_views.py."""

from datetime import UTC, datetime, timedelta

from first_program import topology as page_views
from windows_and_joins import topology as section_views

from millstream import Serdes
from millstream.testing import TopologyTestDriver

NINE = datetime(2026, 7, 1, 9, 0, tzinfo=UTC)


def test_views_are_counted_per_page():
    with TopologyTestDriver(page_views) as driver:
        views = driver.create_input_topic("views", Serdes.string(), Serdes.string())
        counts = driver.create_output_topic("view-counts", Serdes.string(), Serdes.long())

        views.pipe_input("ann", "/home")
        views.pipe_input("bob", "/home")
        views.pipe_input("ann", "/cart")

        assert counts.read_key_values_to_list() == [("/home", 1), ("/home", 2), ("/cart", 1)]
        assert driver.get_key_value_store("views-per-page").get("/home") == 2


def test_a_window_takes_late_views_until_its_grace_is_over():
    with TopologyTestDriver(section_views) as driver:
        sections = driver.create_input_topic("sections", Serdes.string(), Serdes.string())
        views = driver.create_input_topic("views", Serdes.string(), Serdes.string())
        counts = driver.create_output_topic("section-views", Serdes.string(), Serdes.long())

        sections.pipe_input("/cart", "shop")
        for second in (10, 70, 50, 100, 55):  # the last one comes more than 30 s after its minute
            views.pipe_input("ann", "/cart", timestamp=NINE + timedelta(seconds=second))

        assert counts.read_key_values_to_list() == [
            ("09:00 shop", 1),
            ("09:01 shop", 1),
            ("09:00 shop", 2),
            ("09:01 shop", 2),
        ]


def test_a_page_without_a_section_is_not_counted():
    with TopologyTestDriver(section_views) as driver:
        views = driver.create_input_topic("views", Serdes.string(), Serdes.string())
        counts = driver.create_output_topic("section-views", Serdes.string(), Serdes.long())

        views.pipe_input("ann", "/unknown")

        assert counts.is_empty
