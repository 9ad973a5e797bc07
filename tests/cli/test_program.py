"""Programs as the command line names them, and what is said of those that cannot be loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from millstream.cli.program import NamedProgram, load_topology, parse_program
from millstream.errors import StreamsException, TopologyException

PROGRAM = """
from millstream import StreamsBuilder

builder = StreamsBuilder()
builder.stream("a").to("b")
topology = builder.build()
number = 7

def make():
    return topology

def fail():
    raise ValueError("no \\x1b[31m today")

class App:
    topology = topology
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a program of a name that no other test has; what loading it changes is put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("PYTHONPATH", "before")
    before = set(sys.modules)
    (tmp_path / "cli_app.py").write_text(PROGRAM)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("orders", NamedProgram("orders")),
        ("orders:", NamedProgram("orders")),
        ("shop.orders:make", NamedProgram("shop.orders", "make")),
        ("orders:App.topology", NamedProgram("orders", "App.topology")),
        ("examples/orders.py:builder", NamedProgram("orders", "builder", Path("examples"))),
    ],
)
def test_a_program_is_a_module_or_a_file_and_an_attribute(text: str, named: NamedProgram) -> None:
    """The syntax is uvicorn's; the default attribute is `topology`."""
    assert parse_program(text) == named


@pytest.mark.parametrize(
    "text", ["", ":topology", "a b", "../orders:topology", "orders:1", "orders:a:b", "a..b"]
)
def test_what_names_no_program_is_refused(text: str) -> None:
    """Nothing is imported before that."""
    with pytest.raises(typer.BadParameter, match="module:attribute"):
        parse_program(text)


@pytest.mark.parametrize("attribute", ["topology", "builder", "make", "App.topology"])
def test_a_topology_a_builder_and_a_function_are_programs(folder: Path, attribute: str) -> None:
    """All of them mean the same topology here, and Spark's workers are told where the module is."""
    import os

    loaded = load_topology(f"cli_app:{attribute}", folder)
    assert loaded.source_topics == ("a",)
    assert os.environ["PYTHONPATH"].split(os.pathsep) == [str(folder), "before"]


def refused(text: str, folder: Path) -> str:
    with pytest.raises(typer.BadParameter) as caught:
        load_topology(text, folder)
    return caught.value.message


def test_what_is_not_there_is_told_with_what_is(folder: Path) -> None:
    """A slip in the module's name, or in the attribute's."""
    assert "did you mean 'cli_app'?" in refused("cli_ap:topology", folder)
    assert "has no 'topolgy'; it has builder, topology" in refused("cli_app:topolgy", folder)
    assert "is of type int; a program must be a Topology" in refused("cli_app:number", folder)
    assert "is of type type" in refused("cli_app:App", folder)


def test_a_file_that_has_the_name_of_another_module_is_refused(folder: Path) -> None:
    """Python's own module, which is imported already, is not taken for the program."""
    (folder / "json.py").write_text(PROGRAM)
    assert "rename the file" in refused(f"{folder}/json.py", folder)
    assert load_topology(f"{folder}/cli_app.py") is load_topology("cli_app", folder)


def test_what_a_program_raises_is_told_with_its_line(folder: Path) -> None:
    """The line is the program's, not ours, and the message cannot control the terminal."""
    with pytest.raises(StreamsException, match=r"ValueError: no \\x1b\[31m today \(.*cli_app.py, line 13\)"):
        load_topology("cli_app:fail", folder)
    (folder / "cli_broken.py").write_text("import cli_not_there\n")
    with pytest.raises(
        StreamsException, match=r"No module named 'cli_not_there' \(.*cli_broken.py, line 1\)"
    ):
        load_topology("cli_broken", folder)
    (folder / "cli_syntax.py").write_text("def f(:\n")
    with pytest.raises(StreamsException, match=r"SyntaxError: .*cli_syntax.py, line 1"):
        load_topology("cli_syntax", folder)


def test_a_topology_that_cannot_be_says_so_itself(folder: Path) -> None:
    """An exception of ours has all that is to be said already."""
    (folder / "cli_wrong.py").write_text(
        "from millstream import StreamsBuilder\nbuilder = StreamsBuilder()\nbuilder.stream('')\n"
    )
    with pytest.raises(TopologyException):
        load_topology("cli_wrong:builder", folder)
