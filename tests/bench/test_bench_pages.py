"""The summary, the pages and the plots: what they say about figures that are made up here."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from bench import latency, starts, throughput
from bench.contest import Outcome, Run
from bench.figures import Goal, Report, Table
from bench.page import bars, machine, markdown, page, plots
from bench.scale import Point, again
from bench.scale import report as scale_report
from bench.sizing import Costs, costs, need, pod
from bench.sizing import page as sizing_page
from bench.starts import Start
from bench.summary import rows, table
from bench.traffic import FORMATS, latencies_ms


def _outcome(seconds: float, memory: float = 700.0) -> Outcome:
    return Outcome((Run(seconds, 1_000_000, 500_000, 4.0, memory),))


def _found() -> dict[str, Any]:
    """A run in which Millstream is six times as fast as Java, just slower than Spark."""
    rates = throughput.report(
        {
            "words": {
                "millstream": _outcome(2.0),
                "java": _outcome(12.0, 400.0),
                "spark": _outcome(1.9, 650.0),
                "quix": Outcome(why="it fell over"),
            }
        }
    )
    waits = latency.report(
        {"map": {"millstream": {"single": [40.0] * 9}, "spark": {"single": [50.0] * 9}}}, {}
    )
    begun = starts.report(
        {"millstream": [Start(4.0, 9.0, 500.0)], "java": [Start(2.0, 2.0, 200.0)], "spark": [], "quix": []},
        [(0.4, Start(1.0, 1.0, 90.0))],
        {"quix": "it fell over"},
    )
    restored = Report(
        "restore",
        (),
        (Goal("changelog to RocksDB", 250_000.77, 200_000, "records/s", True),),
        {"records": 1000, "seconds": {"to RocksDB": [2.0, 4.0, 3.0]}, "java_filled_s": 10.0},
    )
    growth = scale_report(
        {"keys": [Point(10_000, 80.0, 0.4, 900.0)]}, {"keys of 9": "there was no time left"}
    )
    return {one.name: one.as_json() for one in (rates, waits, begun, restored, growth)}


def _by_what() -> dict[str, Any]:
    return {row.what: row for row in rows(_found())}


def test_each_row_has_the_figures_of_all_and_a_verdict() -> None:
    """If one of several goals is missed, that is the row's verdict."""
    lines = _by_what()
    words = lines["word count, lines/s"]
    assert (words.millstream, words.others) == ("500,000", ("83,333", "526,316", "-"))
    assert [check.met for check in words.checks] == [False, True]
    assert words.verdict == "missed"
    assert lines["memory with its JVM, MB"].verdict == "missed"
    assert lines["start of the process to the first output, s"].verdict == "met"
    assert lines["the same, CPU seconds"].verdict == "missed"
    assert lines["a client without pipelines, start() to RUNNING, s"].verdict == "met"
    assert lines["a table filled from a topic, records/s"].cells()[1:3] == ("333", "100")
    restored = lines["restore: changelog to RocksDB, records/s"]
    assert (restored.millstream, restored.checks[0].text, restored.verdict) == ("250,001", "≥ 200,000", "met")


def test_what_was_not_measured_is_neither_met_nor_missed() -> None:
    """Here one at a time has figures, and others have none."""
    lines = _by_what()
    assert not any("50/s" in what for what in lines)
    single = lines["map, one at a time, p50 / p90 / p99 ms"]
    assert (single.millstream, single.verdict) == ("40.0 / 40.0 / 40.0", "missed")


def test_latency_is_held_to_its_limits() -> None:
    """The limits apply to both percentiles."""
    found = latency.report({"count": {"millstream": {"single": [4.0] * 95 + [30.0] * 5}}}, {})
    (line, *_) = rows({"latency": found.as_json()})
    assert [(check.text, check.met) for check in line.checks] == [("p50 ≤ 5", True), ("p99 ≤ 12", False)]


def test_a_part_that_failed_is_a_note_with_its_reason() -> None:
    """The table is made from the other parts."""
    whole = table({**_found(), "reads": Report("reads", failed="TimeoutError: no store").as_json()})
    assert "reads was not measured: TimeoutError: no store" in whole.notes
    assert whole.notes[0].startswith("3 goals met, 4 missed")


def test_the_report_of_an_earlier_run_is_made_again_from_its_figures() -> None:
    """It says where and when they were measured."""
    growth = scale_report(
        {"keys": [Point(10_000, 80.0, 0.4, 900.0)]}, {"keys of 9": "there was no time left"}
    )
    made = again(growth.data, "2 cores, in May")
    assert [table.rows for table in made.tables] == [table.rows for table in growth.tables]
    assert made.tables[0].notes == ("Scale was measured in a run of its own: 2 cores, in May",)
    assert made.data == growth.data


def test_the_page_has_the_table_the_machine_and_the_plots() -> None:
    """Every table is a Markdown table, and every plot is there."""
    found = _found()
    text = page(
        {"cores": 2, "commit": "abc"}, found, {"throughput": (Table("T", ("a", "b"), (("1|2", "3"),)),)}
    )
    assert "> 2 cores, commit abc" in text
    assert "| 1\\|2 | 3 |" in text
    drawn = re.findall(r"!\[.*?\]\((.*?)\)", text)
    assert drawn == list(plots(found)) == ["performance-throughput.svg", "performance-latency.svg"]
    for plot in plots(found).values():
        ET.fromstring(plot)


def test_the_machine_is_described_with_units() -> None:
    """A fact without a form of its own is shown by its name."""
    facts = {"cores": 2, "memory_gb": 23.5, "load_average": [3.46, 2.0], "java": "17", "commit": "abc"}
    assert machine(facts) == "2 cores, 23.5 GB of memory, load average 3.5 / 2.0, Java 17, commit abc"


def test_a_bar_is_as_long_as_its_part_of_the_longest() -> None:
    """Bars are compared within their group."""
    drawn = ET.fromstring(bars("T", [("a & b", [("millstream", 50.0), ("java", 100.0)])], "s"))
    widths = [float(bar.attrib["width"]) for bar in drawn.iter("{http://www.w3.org/2000/svg}rect")][1:]
    assert widths[0] == pytest.approx(widths[1] / 2)


def test_markdown_keeps_notes() -> None:
    """Each is an item below."""
    assert markdown(Table("T", ("a",), (("1",),), ("so",))) == "| a |\n| --- |\n| 1 |\n\n- so"


def test_a_load_needs_what_the_formulas_say() -> None:
    """Six seconds per million records make ten cores at a million a second, if 0.6 of them should be busy."""
    wanted = need(Costs(6.0, 800.0, 0.5, True), 1e6, state_gb=10)
    assert (wanted.cores, wanted.partitions) == (pytest.approx(10.0), 20)
    assert wanted.memory_gb == pytest.approx(0.8 * 2.5 + 2)
    assert (wanted.in_mbit, wanted.out_mbit) == (1600, 1600)
    assert costs(_found()["throughput"]["data"])["words"] == Costs(4.0, 700.0, 0.5, True)


def test_a_pod_carries_what_its_cores_and_memory_do() -> None:
    """Six seconds per million records are 200,000 a second on 1.2 cores; state has what memory is left."""
    assert pod(Costs(6.0, 800.0, 0.5, True)) == (pytest.approx(200_000), 5, pytest.approx(6.0))
    assert pod(Costs(6.0, 2500.0, 0.5, True))[2] == 0
    assert pod(Costs(6.0, 800.0, 0.5, False))[2] == 0


def test_the_sizing_page_says_what_is_not_measured_and_how_costs_grow() -> None:
    """Costs, needs and growth are each a table."""
    text = sizing_page({"cores": 2, "memory_gb": 8}, _found())
    assert "**not measured**" in text
    assert "| word count, lines of 5 words | 4.0 | 700 | 0.50 |" in text
    assert "| 10000 | 80 | 0.40 | 900 |" in text


def test_a_record_that_never_came_out_is_an_error() -> None:
    """It must not be left out of the percentiles."""
    sent = [("k", 1, 10.0), ("k", 2, 10.5)]
    assert latencies_ms(sent, {"k": {"1": 10.25, "2": 11.0}}) == [250.0, 500.0]
    with pytest.raises(ValueError, match="never arrived"):
        latencies_ms(sent, {"k": {"1": 10.25}})
    assert (FORMATS["map"](b"KEEP-17"), FORMATS["long"](b"\x00\x01"), FORMATS["text"](b"17")) == (17, 1, 17)
