"""Type checkers see what the DSL accepts and refuses: pyright (as basedpyright), and mypy.

`ok/` has programs that are right, in each form that there is; no checker complains of one in its strict
mode. `wrong/` has what compiling a topology would refuse: a checker complains of each line that ends in
`# refused`, and of no other. `# refused by pyright`: mypy infers no types for that lambda's parameters.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.disk

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = ROOT / "tests" / "typing"
WRONG = sorted((HERE / "wrong").glob("*.py"))
PORTED = sorted((ROOT / "examples" / "ported").glob("*.py"))
PYRIGHT = Path(sys.executable).with_name("basedpyright")

PUBLIC = ("millstream", "millstream.errors", "millstream.testing", "millstream.broker", "millstream.server")
"""The modules that programs import from."""

MADE_OF_OTHERS = "_async"
"""Methods for coroutines, `get_async = awaitable(get)`, have no annotation of their own; `ok/` has types."""

HAVE_THEM = {
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "RemoteStore",
    "TopologyTestDriver",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The programs of users: those of `ok/`, those of examples/, and the one that README.md shows."""
    shown = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    readme = tmp_path_factory.mktemp("readme") / "program_of_the_readme.py"
    readme.write_text(shown.group(1), encoding="utf-8")
    return [*(HERE / "ok").glob("*.py"), *(ROOT / "examples").glob("*.py"), readme]


@pytest.fixture(scope="module")
def strict(programs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, int]]:
    """What pyright says of all programs, right and wrong, in its strict mode: file and line."""
    return complaints(tmp_path_factory.mktemp("strict"), "strict", [*programs, *WRONG])


def complaints(folder: Path, mode: str, files: list[Path]) -> set[tuple[str, int]]:
    settings = {
        "typeCheckingMode": mode,
        "include": [str(file) for file in files],
        "extraPaths": [str(ROOT), str(ROOT / "examples")],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    said = pyright("--project", str(folder), "--pythonpath", sys.executable)
    assert said["summary"]["filesAnalyzed"] == len(files)
    return {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in said["generalDiagnostics"]
        if each["severity"] == "error"
    }


def pyright(*arguments: str) -> Any:
    """What pyright says as JSON. It asks the `python` of the PATH where packages are: here the tests' own."""
    command = [str(PYRIGHT), "--outputjson", *arguments]
    path = os.pathsep.join([str(PYRIGHT.parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PATH": path},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.stdout.lstrip().startswith("{"), done.stdout + done.stderr
    return json.loads(done.stdout)


def refused(*, by_mypy: bool) -> Iterator[tuple[str, int]]:
    """The lines of `wrong/` that a checker has to complain of."""
    for file in WRONG:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if "# refused" in line and not (by_mypy and "# refused by pyright" in line):
                yield file.name, number


def test_pyright_refuses_what_a_topology_would_and_nothing_else(strict: set[tuple[str, int]]) -> None:
    """The mode is strict, so nothing may have an unknown type."""
    assert len(list(refused(by_mypy=False))) > 40
    assert strict == set(refused(by_mypy=False))


def test_mypy_refuses_what_a_topology_would_and_nothing_else(programs: list[Path]) -> None:
    """The mode is strict, with the settings of pyproject.toml."""
    files = [str(file) for file in (*programs, *WRONG)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-pretty", *files],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )
    found = re.findall(r"^([^:\n]+):(\d+)(?::\d+)?: error", done.stdout, re.MULTILINE)
    assert {(Path(file).name, int(line)) for file, line in found} == set(refused(by_mypy=True)), done.stderr


def test_programs_without_annotations_are_let_alone(tmp_path: Path) -> None:
    """The ported programs annotate nothing; pyright in its usual mode finds nothing wrong with them."""
    assert complaints(tmp_path, "standard", PORTED) == set()


@cache
def public_names() -> frozenset[str]:
    return frozenset(name for module in PUBLIC for name in import_module(module).__all__)


def test_no_public_name_is_of_an_unknown_type() -> None:
    """The members of public classes are known, too: `basedpyright --verifytypes millstream` checks it."""
    said = pyright("--verifytypes", "millstream", "--ignoreexternal")["typeCompleteness"]
    seen, unknown = set(), []
    for symbol in said["symbols"]:
        parts = symbol["name"].split(".")
        owner = next((part for part in parts if part in public_names()), None)
        if owner is None or any(re.match(r"_(?!_)", part) for part in parts):
            continue
        seen.add(owner)
        if parts[-1].endswith(MADE_OF_OTHERS) or owner in HAVE_THEM:
            continue
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]:
            unknown += [f"{symbol['name']}: {each['message']}" for each in symbol["diagnostics"]]
    assert public_names() <= seen
    assert unknown == []
