"""`millstream describe`, `explain` and `graph`: a program's topology. They need neither Kafka nor Spark."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.cli.error_messages import Debug
from millstream.cli.output import Json, print_as
from millstream.cli.program import AppDir, Program, load_topology

if TYPE_CHECKING:
    from millstream.topology.describe import NodeDescription, TopologyDescription
    from millstream.topology.topology import Topology

__all__ = ["GraphFormat", "describe", "described", "explain", "explained", "format_of", "graph"]


_OTHER_PICTURES = frozenset((".png", ".jpg", ".jpeg", ".gif", ".webp", ".pdf", ".dot"))


class GraphFormat(StrEnum):
    """The format of a drawing."""

    SVG = "svg"
    MERMAID = "mermaid"


def describe(program: Program, app_dir: AppDir = None, json: Json = False, debug: Debug = False) -> None:
    """Print a program's topology as Kafka Streams prints it: subtopologies, processors, topics, stores."""
    description = load_topology(program, app_dir).describe()
    print_as(json, described(description), str(description))


def explain(program: Program, app_dir: AppDir = None, json: Json = False, debug: Debug = False) -> None:
    """Print the Spark queries that run a program: what each one reads, stores and writes, and why."""
    topology = load_topology(program, app_dir)
    print_as(json, explained(topology), topology.explain())


def graph(
    program: Program,
    app_dir: AppDir = None,
    format: Annotated[
        GraphFormat | None,
        typer.Option(
            "--format",
            "-f",
            help="[default: by the file's extension; mermaid without a file]",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", dir_okay=False, metavar="FILE", help="The file to write. [default: print it]"
        ),
    ] = None,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Draw a program's topology, as SVG or in Mermaid's language: its topics, processors and stores."""
    from millstream.topology.drawing import drawing_of, mermaid
    from millstream.topology.svg import svg

    chosen = format_of(format, output)
    drawing = drawing_of(load_topology(program, app_dir))
    if json:
        print_as(True, drawing.as_dict(), "")
        return
    text = svg(drawing, program) if chosen is GraphFormat.SVG else mermaid(drawing)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(
            f"{output} cannot be written: {error.strerror or error}", param_hint="--output"
        ) from error
    typer.echo(f"{output}: {len(drawing.boxes)} boxes, {len(drawing.groups)} subtopologies", err=True)


def format_of(given: GraphFormat | None, output: Path | None) -> GraphFormat:
    """The format, from the option or the file's name.

    Raises:
        typer.BadParameter: the name is that of a picture in another format.
    """
    if given is not None:
        return given
    ending = "" if output is None else output.suffix.lower()
    if ending in _OTHER_PICTURES:
        raise typer.BadParameter(
            f"a drawing can be SVG or Mermaid, not {ending}; use a name that ends in .svg or .mmd, or "
            "--format",
            param_hint="--output",
        )
    return GraphFormat.SVG if ending == ".svg" else GraphFormat.MERMAID


def described(description: TopologyDescription) -> dict[str, Any]:
    """A description in a form for `json.dumps`."""
    return {
        "subtopologies": [
            {"id": each.id, "nodes": [_node(node) for node in each.nodes]}
            for each in description.subtopologies
        ],
        "global_stores": [
            {"id": each.id, "nodes": [_node(each.source), _node(each.processor)]}
            for each in description.global_stores
        ],
    }


def _node(node: NodeDescription) -> dict[str, Any]:
    return {
        "kind": node.kind.value.lower(),
        "name": node.name,
        "predecessors": list(node.predecessors),
        "successors": list(node.successors),
        "topics": list(node.topics),
        "pattern": None if node.pattern is None else node.pattern.pattern,
        "stores": list(node.stores),
        "topic": node.topic,
    }


def explained(topology: Topology) -> dict[str, Any]:
    """The pipelines in a form for `json.dumps`."""
    from millstream.topology.pipeline import input_label
    from millstream.topology.pipeline_forms import needing_batches

    return {
        "pipelines": [
            {
                "name": each.name,
                "subtopology": each.subtopology,
                "runs_in_spark": each.has_query,
                "reads": [input_label(node) for node in each.inputs],
                "stores": [
                    {"name": store.name, "kind": store.kind.value, "persistent": store.persistent}
                    for store in each.stores
                ],
                "writes": [
                    topic for node in each.outputs if (topic := getattr(node, "topic", None)) is not None
                ],
                "in_batches": list(needing_batches(each)),
            }
            for each in topology.pipelines
        ],
        "global_stores": sorted(topology.global_stores),
    }
