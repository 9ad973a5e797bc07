"""Runs commands in this process, for tests."""

from __future__ import annotations

from typer.testing import CliRunner

from millstream.cli.main import app

__all__ = ["run"]


def run(*arguments: str, **environ: str) -> tuple[int, str]:
    """(exit code, all that was printed)."""
    result = CliRunner().invoke(app, list(arguments), env={"COLUMNS": "400", "NO_COLOR": "1", **environ})
    return result.exit_code, result.output
