"""The five KIPs, sentence by sentence: each names the test that holds it. `docs/kips.md` is made of this."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
KIPS = sorted(Path(__file__).parent.glob("*.toml"), key=lambda path: path.stem)

Claim = tuple[str, str, str]
"""The KIP, what it says, and the test: `folder/file.py::test_name`."""


def claims() -> list[Claim]:
    return [
        (path.stem, claim["says"], claim["test"])
        for path in KIPS
        for claim in tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    ]


@cache
def collected_from(path: Path) -> frozenset[str]:
    """What pytest collects of a file: functions, classes, and state machines that are given a name."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) if name.startswith("test_"):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("Test"):
                names.add(name)
            case ast.ClassDef(name=name) if name.startswith("Test"):
                names.add(name)
    return frozenset(names)


def test_each_sentence_has_a_test_that_exists() -> None:
    """Whoever renames or removes one sees here which sentence is no longer held."""
    unheld = []
    for kip, says, test in claims():
        file, _, name = test.partition("::")
        path = TESTS / file
        if not path.name.startswith("test_") or not path.exists() or name not in collected_from(path):
            unheld.append(f"{kip}: '{says}': there is no {test}")
    assert unheld == []


def test_no_kip_is_left_out_and_no_sentence_is_there_twice() -> None:
    """216, 662, 671 with its earlier draft, and 696."""
    names = ["kip-216", "kip-662", "kip-671", "kip-671-earlier-draft", "kip-696"]
    assert [path.stem for path in KIPS] == names
    assert len(claims()) > 90
    for path in KIPS:
        found = tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
        assert all(set(claim) == {"under", "says", "test"} for claim in found)
        assert len({(claim["under"], claim["says"]) for claim in found}) == len(found)
