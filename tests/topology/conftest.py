"""What tests of topologies share."""

import pytest

from millstream.dsl.builder import StreamsBuilder


@pytest.fixture
def builder():
    """A builder of this test's own."""
    return StreamsBuilder()
