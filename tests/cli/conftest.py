"""What all tests of the command line have in common."""

from __future__ import annotations

import os

import pytest

from millstream.cli.settings import from_environment


@pytest.fixture(autouse=True)
def _no_settings_of_the_developers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands take settings from the environment; a developer's own must not get into a test."""
    for name in (*os.environ,):
        found, unknown = from_environment({name: "x"})
        if found or unknown or name in ("MILLSTREAM_CONFIG_FILE", "MILLSTREAM_TOKEN", "MILLSTREAM_URL"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def _loggers_as_before(loggers_as_before: None) -> None:
    """`millstream run` sets up the log."""
