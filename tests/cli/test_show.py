"""`describe`, `explain` and `graph`: what they print of a program, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_running import run

ROOT = Path(__file__).resolve().parents[2]
ORDERS = str(ROOT / "examples" / "orders.py")


def test_describe_prints_what_the_topology_says() -> None:
    """The text of Kafka Streams; and the same as JSON."""
    code, text = run("describe", ORDERS)
    assert (code, text.splitlines()[:2]) == (0, ["Topologies:", "   Sub-topology: 0"])
    code, text = run("describe", ORDERS, "--json")
    found = json.loads(text)
    assert [each["id"] for each in found["subtopologies"]] == [0, 1]
    assert found["subtopologies"][0]["nodes"][0] == {
        "kind": "source",
        "name": "KSTREAM-SOURCE-0000000000",
        "predecessors": [],
        "successors": ["KSTREAM-FILTER-0000000001"],
        "topics": ["orders"],
        "pattern": None,
        "stores": [],
        "topic": None,
    }


def test_explain_prints_the_pipelines() -> None:
    """The JSON says what each pipeline reads, stores and writes."""
    code, text = run("explain", ORDERS)
    assert (code, text.splitlines()[0]) == (0, "Pipelines:")
    code, text = run("explain", ORDERS, "--json")
    first, second = json.loads(text)["pipelines"]
    between = "totals-repartition"
    assert (first["name"], first["reads"], first["writes"]) == ("p0", ["orders"], [between])
    assert (second["name"], second["reads"], second["writes"]) == ("p1", [between], ["customer-totals"])
    assert (first["subtopology"], first["in_batches"]) == (0, [])
    assert second["stores"] == [{"name": "totals", "kind": "key-value", "persistent": True}]


def test_graph_writes_svg_or_mermaid_as_the_file_is_called(tmp_path: Path) -> None:
    """Printed it is Mermaid, unless something else is asked for."""
    assert run("graph", ORDERS)[1].startswith("flowchart TD\n")
    assert run("graph", ORDERS, "--format", "svg")[1].startswith("<svg ")
    code, text = run("graph", ORDERS, "-o", str(tmp_path / "a.svg"))
    assert (code, text) == (0, f"{tmp_path / 'a.svg'}: 13 boxes, 2 subtopologies\n")
    assert (tmp_path / "a.svg").read_text().startswith("<svg ")
    assert run("graph", ORDERS, "-o", str(tmp_path / "a.mmd"))[0] == 0
    assert (tmp_path / "a.mmd").read_text().startswith("flowchart TD\n")
    assert len(json.loads(run("graph", ORDERS, "--json")[1])["boxes"]) == 13


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("describe", "a b"), "is not a program"),
        (("graph", ORDERS, "-o", "/nowhere/a.svg"), "/nowhere/a.svg cannot be written"),
        (("graph", ORDERS, "--format", "png"), "png"),
        (("graph", ORDERS, "-o", "a.png"), "ends in .svg or .mmd"),
        (("describe", "no_such_file.py"), "there is no file 'no_such_file.py'"),
        (("run", "no_such_module", "-a", "x", "-b", "x:1"), "there is no module 'no_such_module'"),
        (("run", ORDERS, "--serve", "no-port"), "'no-port' is not an address"),
        (("run", ORDERS, "--set", "x"), "'x' is not a setting"),
        (("completion", "tcsh"), "Invalid value for 'shell': 'tcsh' is not one of 'bash', 'zsh', 'fish'."),
    ],
)
def test_what_is_called_wrongly_is_an_error_of_usage(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, before anything is started."""
    code, text = run(*arguments)
    assert code == 2
    assert said in text


def test_a_run_without_what_is_required_says_where_it_goes() -> None:
    """Nothing was started."""
    code, text = run("run", ORDERS)
    assert (code, "in MILLSTREAM_APPLICATION_ID, or in --config-file" in text) == (2, True)
    code, text = run("run", ORDERS, MILLSTREAM_APPLICATION_ID="orders")
    assert (code, "in MILLSTREAM_BOOTSTRAP_SERVERS" in text) == (2, True)
    code, text = run("run", ORDERS, "-a", "orders", "-b", "no server")
    assert (code, "error: 'bootstrap.servers'" in text) == (1, True), text
