"""What all tests of the command line have in common."""

from __future__ import annotations

import os

import pytest

from millstream.cli.command_settings import from_environment


@pytest.fixture(autouse=True)
def _no_settings_of_the_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take settings from the environment; a developer's own must not get into a test."""
    for name in (*os.environ,):
        found, unknown = from_environment({name: "x"})
        of_commands = ("CA_FILE", "CONFIG_FILE", "TOKEN", "URL")
        if found or unknown or name.removeprefix("MILLSTREAM_") in of_commands:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _loggers_as_before(loggers_as_before: None) -> None:
    """`millstream run` sets up the log."""
