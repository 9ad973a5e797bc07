"""Writes the generated parts of docs/: drawings, configuration keys, claims of KIPs, differences, and more.

    make_docs.py            write them
    make_docs.py --check    write nothing; exit code 1 if one is not current (a test does this)

A generated part is between two comment lines in a file; everything else in it is written by hand. The sources
are docstrings and the tables that the program itself runs on, so the documents cannot contradict them.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

import dsl_pages
from doc_drawings import drawings

from millstream.client_keys import CLIENT_KEYS, NO_EFFECT
from millstream.config_keys import KEYS, PREFIXES, Effect, Key
from millstream.machine import Rules
from millstream.metrics.metrics_table import DEFINITIONS, Definition
from millstream.metrics.missing import MISSING
from millstream.server.openapi import table_of_parameters, table_of_paths
from millstream.states import CLIENT

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
KIPS = ROOT / "tests" / "kips"
PORTED = ROOT / "examples" / "ported"

S = TypeVar("S", bound=Enum)


def ignored_table(rules: Rules[S]) -> str:
    """The requests that change nothing, with the reason; one row for each reason and state."""
    rows: dict[tuple[str, str], list[str]] = {}
    for (old, new), reason in rules.ignored.items():
        rows.setdefault((old.name, reason), []).append(new.name)
    lines = ["| in | asked for | nothing changes, because |", "| --- | --- | --- |"]
    lines += [f"| {old} | {', '.join(new)} | {reason} |" for (old, reason), new in rows.items()]
    return "\n".join(lines)


def causes_table(rules: Rules[S]) -> str:
    """The causes of transitions, each with the states before and after."""
    lines = ["| because | from | to |", "| --- | --- | --- |"]
    for cause, row in rules.causes.items():
        for new in dict.fromkeys(row.values()):
            before = ", ".join(old.name for old, to in row.items() if to is new)
            lines.append(f"| {cause.value} | {before} | {new.name} |")
    return "\n".join(lines)


def configuration() -> str:
    """All keys, first those that have an effect."""
    parts = []
    for effect, title in (
        (Effect.YES, "Supported keys"),
        (Effect.LATER, "Known keys that are not used yet"),
        (Effect.NONE, "Known keys without effect"),
    ):
        rows = [_row(key) for key in sorted(KEYS.values(), key=lambda key: key.name) if key.effect is effect]
        if rows:
            head = ["| key | type | default | what it does |", "| --- | --- | --- | --- |"]
            parts.append("\n".join([f"### {title}", "", *head, *rows]))
    prefixes = "\n".join(f"- `{prefix}…`: {text}" for prefix, text in PREFIXES.items())
    return "\n\n".join([*parts, f"### Prefixes\n\n{prefixes}", _without_prefix()])


def _without_prefix() -> str:
    """The settings that need no prefix, and for which clients they are."""
    kinds: dict[tuple[str, ...], list[str]] = {}
    for name, prefixes in CLIENT_KEYS.items():
        if name not in NO_EFFECT:
            kinds.setdefault(prefixes, []).append(f"`{name}`")
    lines = [
        f"- {' and '.join(f'`{prefix}`' for prefix in prefixes)}: {', '.join(names)}"
        for prefixes, names in kinds.items()
    ]
    lines += ["", "| accepted, but without effect | because |", "| --- | --- |"]
    lines += [f"| `{name}` | {reason} |" for name, reason in NO_EFFECT.items()]
    return "\n".join(["### Kafka client settings that need no prefix", "", *lines])


def _row(key: Key) -> str:
    default = "required" if key.required else ("" if key.default is None else f"`{key.default}`")
    doc = " ".join(key.doc.split()).replace("|", "\\|")
    return f"| `{key.name}` | {key.type.value} | {default} | {doc} |"


def claims() -> str:
    """Each sentence of the KIPs, and the test that proves it."""
    parts = []
    for path in sorted(KIPS.glob("*.toml"), key=lambda path: path.stem):
        kip = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = ["| under | it says | the test |", "| --- | --- | --- |"]
        for claim in kip["claim"]:
            file, name = claim["test"].split("::")
            said = claim["says"].replace("|", "\\|")
            rows.append(f"| {claim['under']} | {said} | [{name}](../tests/{file}) |")
        parts.append("\n".join([f"## {kip['title']}", "", *rows]))
    return "\n\n".join(parts)


def ported() -> str:
    """Each ported program, from its docstring: what it does, where it comes from, what it cost."""
    rows = ["| program | what it does | ported from | what it cost |", "| --- | --- | --- | --- |"]
    for path in sorted(PORTED.glob("*.py")):
        does, source, cost = (said.replace("|", "\\|") for said in docstring_of(path))
        rows.append(f"| [{path.stem}](../examples/ported/{path.name}) | {does} | {source} | {cost} |")
    return "\n".join(rows)


def text_of(module: Path) -> str:
    """A module's docstring."""
    return ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""


def docstring_of(program: Path) -> tuple[str, str, str]:
    """The first sentence of a ported program's docstring, its source, and what it cost.

    Raises:
        ValueError: one of them is missing.
    """
    text = text_of(program)
    does = text.split("\n\n", 1)[0]
    parts = [re.search(rf"^{head}: (.*(?:\n +.*)*)", text, re.MULTILINE) for head in PORTED_HEADS]
    if not does or None in parts:
        raise ValueError(f"{program.name}: the docstring needs a sentence, and {' and '.join(PORTED_HEADS)}")
    source, cost = (" ".join(part[1].split()) for part in parts if part)
    return " ".join(does.split()), source, cost


def tree_of_exceptions() -> str:
    """The tree as it is drawn at the top of errors.py."""
    text = text_of(ROOT / "millstream" / "errors.py")
    drawn = [line for line in text.splitlines() if line.startswith("    ")]
    return "\n".join(["```text", *(line[4:] for line in drawn), "```"])


def modules() -> str:
    """Each folder of the package with its first sentence, and its modules with theirs."""
    package = ROOT / "millstream"
    parts = []
    for folder in sorted({path.parent for path in package.rglob("*.py")}):
        files = [path for path in sorted(folder.glob("*.py")) if path.stem != "__init__"]
        rows = ["| module | what it is |", "| --- | --- |"]
        rows += [f"| `{path.name}` | {first_sentence(path)} |" for path in files]
        head = f"## {folder.relative_to(package.parent)}/\n\n{first_sentence(folder / '__init__.py')}"
        parts.append("\n\n".join([head, "\n".join(rows)] if files else [head]))
    return "\n\n".join(parts)


def first_sentence(path: Path) -> str:
    """The first sentence of a module's docstring."""
    text = text_of(path)
    first = " ".join(text.split("\n\n", 1)[0].split()).replace("|", "\\|")
    return re.split(r"(?<=[.!?]) (?=[A-Z`])", first, maxsplit=1)[0]


NEXT = re.compile(r"^Next: (.*?)(?=\n\s*\n|\n(?:Source|Differs):|\Z)", re.MULTILINE | re.DOTALL)


def java_api() -> str:
    """The classes of Kafka Streams, with the counterpart of each method.

    Raises:
        ValueError: java_api.toml is wrong about a method.
    """
    import millstream
    import millstream.testing

    told = tomllib.loads((ROOT / "scripts" / "java_api.toml").read_text(encoding="utf-8"))
    rows = ["| class | in Python's spelling | otherwise |", "| --- | --- | --- |"]
    used: set[str] = set()
    for name, methods in told["methods"].items():
        ours = getattr(millstream, name, None) or getattr(millstream.testing, name)
        here = set(dir(ours)).union(*(getattr(kind, "__annotations__", {}) for kind in ours.__mro__))
        same, other = [], []
        for method in methods:
            key = f"{name}.{method}"
            new, missing = told["renamed"].get(key), told["missing"].get(key)
            snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", method).lower()
            spelled = {snake, f"{snake}_", snake.removeprefix("get_")} & here
            if (new is not None and new not in here) or (missing is not None and spelled):
                raise ValueError(f"java_api.toml: {key} does not match Millstream")
            if new is None and missing is None and not spelled:
                raise ValueError(f"java_api.toml: {key} is neither in Millstream nor in the list")
            used |= {key} if new or missing else set()
            if new or missing:
                other.append(f"`{method}`: {missing or f'`{new}`'}")
            else:
                same.append(f"`{min(spelled, key=len)}`")
        rows.append(f"| `{name}` | {', '.join(same)} | {'; '.join(other)} |")
    if stray := {*told["renamed"], *told["missing"]} - used:
        raise ValueError(f"java_api.toml: no such methods: {sorted(stray)}")
    rows += ["", "| has no class here | instead |", "| --- | --- |"]
    rows += [f"| {names} | {instead} |" for names, instead in told["classes"].items()]
    return "\n".join(rows)


def exceptions() -> str:
    """Each exception, with its meaning and what to do next, from its docstring."""
    tree = ast.parse((ROOT / "millstream" / "errors.py").read_text(encoding="utf-8"))
    rows = ["| exception | what it means | what to do |", "| --- | --- | --- |"]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            text = ast.get_docstring(node) or ""
            first = " ".join(text.split("\n\n", 1)[0].split())
            following = NEXT.search(text)
            todo = " ".join(following[1].split()) if following else ""
            cells = (
                cell.replace("|", "\\|") for cell in (f"`{node.name}`", first, todo[:1].upper() + todo[1:])
            )
            rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


SUBJECTS = {
    "dsl": "The DSL",
    "serdes": "Serdes",
    "topology": "Topologies",
    "physical": "Plans of tasks",
    "processors": "Processors",
    "runtime": "The client",
    "group": "Clients of one application",
    "query": "Queries",
    "stores": "Stores",
    "spark": "What runs in Spark",
    "registry": "Schema registries",
    "kafka": "Kafka",
    "metrics": "Metrics",
    "server": "The query server",
    "remote": "Reading stores of other programs",
    "testing": "Testing",
    "cli": "The command line",
    "": "Configuration, values and exceptions",
}
"""The folders of the package, in the order in which a reader meets them."""
DIFFERS = re.compile(
    r"Differs: (.*?)(?=\n\s*\n|\n *(?:Source|Next|Raises|Args|Attributes|Returns|Shape):|\Z)", re.DOTALL
)


def differences() -> str:
    """Each `Differs:` of a docstring, under the name of what it belongs to."""
    public = _public_classes()
    found: dict[str, list[str]] = {subject: [] for subject in SUBJECTS}
    inner: dict[str, list[str]] = {subject: [] for subject in SUBJECTS}
    for path in sorted((ROOT / "millstream").rglob("*.py")):
        inside = path.relative_to(ROOT / "millstream")
        folder = inside.parts[0] if len(inside.parts) > 1 else ""
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for name, docstring in _docstrings(tree, ""):
            for text in DIFFERS.findall(docstring):
                first, dot, rest = name.partition(".")
                if first in public and not rest.startswith("_"):
                    found[folder].append(f"- `{public[first]}{dot}{rest}`: {_sentence(text)}")
                else:
                    inner[folder].append(f"- In `{inside.as_posix()}`: {_sentence(text)}")
    for folder, rows in inner.items():
        found[folder] += rows
    return "\n\n".join(
        "\n".join([f"## {SUBJECTS[folder]}", "", *dict.fromkeys(rows)])
        for folder, rows in found.items()
        if rows
    )


def _public_classes() -> dict[str, str]:
    """The public name of each class, function, and base class of a public class, by its own name."""
    import millstream
    import millstream.broker
    import millstream.server
    import millstream.testing

    names: dict[str, str] = {}
    for module in (millstream, millstream.testing, millstream.server, millstream.broker):
        for name in module.__all__:
            for kind in getattr(getattr(module, name), "__mro__", ())[1:]:
                names.setdefault(kind.__name__, name)
    for module in (millstream, millstream.testing, millstream.server, millstream.broker):
        names |= {name: name for name in module.__all__}
    return names


def _docstrings(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    """Each docstring in a file, with the qualified name of what it documents; empty for the file itself."""
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        docstring = ast.get_docstring(node)
        if docstring:
            yield name, docstring
        for inner in node.body:
            own = getattr(inner, "name", "")
            yield from _docstrings(inner, f"{name}.{own}".lstrip("."))


def _sentence(text: str) -> str:
    """The text on one line. Its first letter is a capital, unless it begins with a name."""
    line = " ".join(text.split())
    return line[0].upper() + line[1:] if line[0].islower() and line.split()[0].isalpha() else line


def metrics() -> str:
    """Each group of metrics as a table, with differences in the last column."""
    parts = []
    for group in dict.fromkeys(each.group for each in DEFINITIONS):
        rows = ["| name | tags | unit | meaning | |", "| --- | --- | --- | --- | --- |"]
        for told in _merged([each for each in DEFINITIONS if each.group == group]):
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in told) + " |")
        parts.append("\n".join([f"### `{group}`", "", *rows]))
    return "\n\n".join(parts)


def _merged(metrics: Sequence[Definition]) -> list[tuple[str, ...]]:
    """Rows; a metric with several sets of tags has one row."""
    rows: dict[str, tuple[Definition, list[str]]] = {}
    for each in metrics:
        tags = " ".join(f"`{tag}`" for tag in each.tags)
        rows.setdefault(each.name, (each, []))[1].append(tags)
    return [
        (
            f"`{name}`",
            " or ".join(tags),
            each.unit,
            each.description,
            f"Differs: {each.differs}" if each.differs else "",
        )
        for name, (each, tags) in rows.items()
    ]


def missing_metrics() -> str:
    """The metrics that Kafka Streams has and Millstream does not, with the reason."""
    rows = ["| group | names | because |", "| --- | --- | --- |"]
    for each in MISSING:
        names = ", ".join(f"`{name}`" for name in each.names)
        rows.append(f"| `{each.group}` | {names} | {each.reason} |")
    return "\n".join(rows)


PORTED_HEADS = ("Ported from", "What it cost")


def commands() -> str:
    """Each command with its arguments and options, in the words of `--help`."""
    import typer

    from millstream.cli.main import app

    return "\n\n".join(_commands(typer.main.get_command(app), "millstream"))


def _commands(group: Any, path: str) -> list[str]:
    parts = []
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            parts += _commands(command, f"{path} {name}")
            continue
        rows = ["| | |", "| --- | --- |"]
        rows += [_parameter(each) for each in command.params if each.name != "debug"]
        does = " ".join((command.help or "").split())
        parts.append("\n".join([f"### {path} {name}", "", does, "", *rows]))
    return parts


def _parameter(parameter: Any) -> str:
    """A row: how the parameter is written, and what it does."""
    annotation = parameter.type_descriptor.annotation
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        usual = "\\|".join(str(each.value) for each in annotation)
    else:
        usual = {int: "NUMBER", float: "NUMBER", Path: "FILE"}.get(annotation, "TEXT")
    written = ", ".join(parameter.opts)
    if not hasattr(parameter, "is_flag"):
        written = parameter.metavar or usual
    elif not parameter.is_flag:
        written += f" {parameter.metavar or usual}"
    does = " ".join((parameter.help or "").split()).replace("|", "\\|")
    if parameter.envvar:
        does += f" In the environment `{parameter.envvar}`."
    if parameter.default not in (None, False):
        does += f" By default {getattr(parameter.default, 'value', parameter.default)}."
    return f"| `{written}` | {does} |"


GENERATED: dict[str, dict[str, Callable[[], str]]] = {
    "lifecycle.md": {
        "client-causes": lambda: causes_table(CLIENT),
        "client-ignored": lambda: ignored_table(CLIENT),
    },
    "configuration.md": {"keys": configuration},
    "kips.md": {"claims": claims},
    "query-server.md": {"paths": table_of_paths, "parameters": table_of_parameters},
    "metrics.md": {"metrics": metrics, "missing": missing_metrics},
    "porting.md": {"ported": ported},
    "troubleshooting.md": {"exceptions": exceptions},
    "reference/errors.md": {"tree": tree_of_exceptions},
    "migrating.md": {"api": java_api},
    "differences.md": {"differences": differences},
    "modules.md": {"modules": modules},
    "command-line.md": {"commands": commands},
}
"""For each file, its sections and what makes them."""


def with_section(text: str, name: str, content: str) -> str:
    """The text with the content between the section's two marks replaced.

    Raises:
        ValueError: each mark must be there exactly once.
    """
    begin, end = f"<!-- generated: {name} -->", "<!-- end -->"
    head, mark, rest = text.partition(begin)
    _, mark_end, tail = rest.partition(end)
    if not mark or not mark_end or begin in tail:
        raise ValueError(f"the section needs the lines {begin} and {end}, once")
    return f"{head}{begin}\n{content}\n{end}{tail}"


def main(arguments: Sequence[str]) -> int:
    check = "--check" in arguments
    stale = []
    for file, sections in GENERATED.items():
        path = DOCS / file
        text = path.read_text(encoding="utf-8")
        new = text
        for name, make in sections.items():
            new = with_section(new, name, make())
        if new != text:
            stale.append(file)
            if not check:
                path.write_text(new, encoding="utf-8")
    for name, drawing in drawings():
        path = DOCS / "images" / name
        if not path.exists() or path.read_text(encoding="utf-8") != drawing:
            stale.append(f"images/{name}")
            if not check:
                path.write_text(drawing, encoding="utf-8")
    stale += [f"dsl/images/{name}" for name in dsl_pages.write_drawings(check=check)]
    for file in stale:
        print(f"docs/{file}: {'not current: make docs' if check else 'written'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
