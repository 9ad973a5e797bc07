"""The builder that most tests of the DSL begin with."""

from __future__ import annotations

import pytest

from millstream.dsl.builder import StreamsBuilder


@pytest.fixture
def builder() -> StreamsBuilder:
    """An empty one."""
    return StreamsBuilder()
