"""What texts name is there: files and names in the heads of modules and in comments, and names in messages.

ARCHITECTURE.md is held in the same way by test_architecture.py.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from syntax import nodes_of, syntax_of

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "millstream"
DEMO = ROOT / "examples" / "demo" / "millstream_demo"
CHECKED = (PACKAGE, DEMO, ROOT / "kernel", ROOT / "scripts", ROOT / "bench", ROOT / "tests")

PUBLIC = ("millstream", "millstream.testing", "millstream.broker", "millstream.server")
"""The modules that programs import from; exceptions are in the first, too."""

LATER = {"setup.py"}
"""A file of PySpark's."""

FOREIGN = {
    "HTTPS_PROXY",
    "NO_PROXY",
    "ReadOptions.set_iterate_lower_bound",
    "Snapshot",
    "addPyFile",
    "conf.isModifiable",
    "kafka.streams.stream_thread_metrics.process_rate",
}
"""What others call by these names: a proxy's variables, RocksDB's and Spark's classes, a metric's name."""

_FILE = re.compile(r"(?<![\w*<{./-])([\w/-]+\.(?:py|md|toml|sh))\b(?!\()")
_PLACE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
_NAME = re.compile(r"(?<!`)`([A-Za-z_][\w.]*)(?:\(\))?`")
_COMMENT = re.compile(r"(?:^|\s)#:? (.*)$", re.MULTILINE)
_CLASS = re.compile(r"(?<![\w.'\"/{-])([A-Z][a-z]+(?:[A-Z]\w*)+)\b(?:\.(\w+))?")
_QUALIFIED = re.compile(r"\bmillstream(?:\.\w+)+")


@dataclass(frozen=True)
class Source:
    """A file in parts: what it says of itself, what it does, and the texts that its code has."""

    path: Path
    said: str
    code: str
    texts: tuple[tuple[int, str], ...]


@cache
def sources(*folders: Path) -> tuple[Source, ...]:
    return tuple(_source(path) for folder in folders for path in sorted(folder.rglob("*.py")))


@cache
def _source(path: Path) -> Source:
    tree = syntax_of(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    nodes = nodes_of(tree)
    documented: set[int] = set()
    parts: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documented.add(id(node.value))
            for number in range(node.lineno - 1, node.end_lineno or 0):
                lines[number] = ""
        if isinstance(node, ast.JoinedStr):
            parts |= {id(each) for each in node.values}
    texts = []
    for node in nodes:
        if id(node) in documented or id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            given = (each.value if isinstance(each, ast.Constant) else "{}" for each in node.values)
            texts.append((node.lineno, "".join(map(str, given))))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts.append((node.lineno, node.value))
    without_docs = "\n".join(lines)
    head = ast.get_docstring(tree) or ""
    said = "\n".join([head, *_COMMENT.findall(without_docs)])
    return Source(path, said, _COMMENT.sub("", without_docs), tuple(texts))


@cache
def known_names() -> frozenset[str]:
    """Every word of all code, and of what the package has besides Python."""
    names = {*dir(builtins), *sys.stdlib_module_names}
    for source in sources(*CHECKED):
        names |= set(re.findall(r"\w+", source.code))
    for path in (*PACKAGE.rglob("*"), *(ROOT / "kernel").rglob("*.java")):
        if path.suffix in (".js", ".toml", ".html", ".java", ".properties"):
            names |= set(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(names)


def test_each_file_that_a_head_or_a_comment_names_is_there() -> None:
    """The name is in the same folder, or starts at the package, the tests or the project, or is a
    module's."""
    modules = {path.name for path in PACKAGE.rglob("*.py")}
    wrong = []
    for source in sources(*CHECKED):
        for file in _FILE.findall(source.said):
            places = (source.path.parent, PACKAGE, ROOT, ROOT / "tests", ROOT / "kernel")
            if file not in LATER | modules and not any((place / file).exists() for place in places):
                wrong.append(f"{source.path.relative_to(ROOT)} names {file}")
    assert wrong == []


def test_each_place_that_a_head_or_a_comment_names_is_there() -> None:
    """`file.py: name`, as ARCHITECTURE.md has it."""
    wrong, found = [], 0
    for source in sources(PACKAGE, DEMO):
        for file, name in _PLACE.findall(source.said):
            found += 1
            near = (place / file for place in (source.path.parent, PACKAGE))
            path = next((path for path in (*near, *PACKAGE.rglob(file)) if path.exists()), None)
            last = name.rpartition(".")[2]
            if path is None or not re.search(
                rf"\b(?:class|def) {last}\b|^ *{last}\b.*=", _source(path).code, re.M
            ):
                wrong.append(f"{source.path.relative_to(ROOT)} names {file}: {name}")
    assert wrong == []
    assert found > 3


def test_each_name_that_a_head_or_a_comment_has_in_backticks_is_used_somewhere() -> None:
    """One that nothing has any more leads nowhere."""
    wrong = []
    for source in sources(PACKAGE, DEMO):
        for name in _NAME.findall(source.said):
            if name not in FOREIGN and not {*filter(None, name.split("."))} <= known_names():
                wrong.append(f"{source.path.relative_to(ROOT)} names {name}")
    assert wrong == []


# --- messages --------------------------------------------------------------------------------------------


def messages() -> Iterator[tuple[str, str]]:
    """The texts that the package's code has, of several words; and where."""
    for source in sources(PACKAGE):
        for line, text in source.texts:
            if " " in text:
                yield f"{source.path.relative_to(ROOT)}:{line}", text


@cache
def public() -> dict[str, object]:
    return {name: getattr(module, name) for module in map(import_module, PUBLIC) for name in module.__all__}


NO_CODE = {"DataFrames", "GlobalStreamThread", "SubscriptionInfo"}
"""Words for things of Spark and Kafka Streams, which nobody is to write."""


def test_what_a_message_names_can_be_imported() -> None:
    """A class of Millstream's that a message names is public, and has what the message says that it has."""
    defined = {
        name for source in sources(PACKAGE) for name in re.findall(r"^class (\w+)", source.code, re.MULTILINE)
    }
    wrong, found = [], 0
    for where, text in messages():
        for name, attribute in _CLASS.findall(text):
            if name in public():
                found += 1
                if attribute and not hasattr(public()[name], attribute):
                    wrong.append(f"{where}: {name} has no {attribute}")
            elif name in defined - NO_CODE and not text.startswith(f"<{name}"):  # a repr
                wrong.append(f"{where}: {name} cannot be imported")
    assert wrong == []
    assert found > 100


def test_each_module_that_a_message_names_can_be_imported() -> None:
    """`millstream.testing`, `millstream.jars`."""
    wrong = []
    for where, text in messages():
        for name in _QUALIFIED.findall(text):
            module, _, last = name.rpartition(".")
            is_there = hasattr(import_module(module), last) or (ROOT / name.replace(".", "/")).exists()
            if not is_there and find_spec(name) is None:
                wrong.append(f"{where}: {name}")
    assert wrong == []
