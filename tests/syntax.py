"""The syntax of Python files, for the tests that go through all of them."""

from __future__ import annotations

import ast
import gc
from pathlib import Path

__all__ = ["nodes_of", "syntax_of"]


def syntax_of(path: Path) -> ast.Module:
    """Parse it, without the collector, which would go through half-made trees again and again."""
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.enable()


def nodes_of(tree: ast.AST) -> list[ast.AST]:
    """A node and all below it, level by level, as `ast.walk` has them, in a third of the time."""
    found = [tree]
    for node in found:
        for name in node._fields:
            below = getattr(node, name, None)
            if isinstance(below, ast.AST):
                found.append(below)
            elif isinstance(below, list):
                found.extend(each for each in below if isinstance(each, ast.AST))
    return found
