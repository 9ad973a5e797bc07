"""The topic of `millstream registry`, in the broker that librdkafka has in itself for tests."""

from __future__ import annotations

from typing import Any

import pytest

from millstream import SchemaRegistryException
from millstream.registry import topic as topics
from millstream.registry.topic import RegistryTopic

BROKER: dict[str, Any] = {"test.mock.num.brokers": 1, "allow.auto.create.topics": True, "log_level": 0}


@pytest.fixture(autouse=True)
def _of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """That broker makes topics when they are asked for, and each client has one of its own."""
    monkeypatch.setattr(RegistryTopic, "_create", lambda self: None)


def test_a_topic_that_has_nothing_yet_is_read_at_once() -> None:
    """A registry that is started for the first time has such a one."""
    assert RegistryTopic(BROKER).load() == []


def test_a_topic_that_does_not_answer_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is raised in time."""
    monkeypatch.setattr(topics, "_TIMEOUT_S", 0.1)
    with pytest.raises(SchemaRegistryException, match="cannot be read to its end"):
        RegistryTopic({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}).load()
