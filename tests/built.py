"""What tests ask of a program: which node it has, or how it is refused."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import pytest

from millstream.dsl.builder import StreamsBuilder
from millstream.errors import TopologyException
from millstream.topology.nodes import Node

__all__ = ["only", "refused"]

AnyNode = TypeVar("AnyNode", bound=Node)


def refused(*parts: str) -> Any:
    """Expects the error whose message has these parts in this order."""
    return pytest.raises(TopologyException, match="(?s)" + ".*".join(re.escape(part) for part in parts))


def only(builder: StreamsBuilder, kind: type[AnyNode]) -> AnyNode:
    """The one node of this kind."""
    (node,) = (node for node in builder.build().nodes if isinstance(node, kind))
    return node
