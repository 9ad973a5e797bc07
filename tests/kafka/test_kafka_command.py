"""`millstream kafka`, as a person runs it."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
import typer
from confluent_kafka.admin import AdminClient

from millstream.cli.kafka import parse_topic


def start(arguments: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "millstream", "kafka", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env=os.environ | {"NO_COLOR": "1"},
    )


@pytest.mark.parametrize(("text", "topic"), [("lines", ("lines", 1)), ("lines:4", ("lines", 4))])
def test_a_topic_is_a_name_and_perhaps_partitions(text: str, topic: tuple[str, int]) -> None:
    """One partition without."""
    assert parse_topic(text) == topic


@pytest.mark.parametrize("text", ["", ":3", "lines:", "lines:0", "lines:x", "lines:-1", "a:1:2"])
def test_what_is_no_topic_is_refused(text: str) -> None:
    """The error shows an example of a topic."""
    with pytest.raises(typer.BadParameter, match="lines:4"):
        parse_topic(text)


@pytest.mark.kafka
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_the_command_runs_a_broker_until_it_is_told_to_end(number: int, code: int, tmp_path: Path) -> None:
    """It says where, has the topics, keeps the data, and leaves no process."""
    command = start(["--data-dir", str(tmp_path / "data"), "--topic", "lines:3", "--topic", "counts"])
    assert command.stdout is not None
    said = ""
    for line in command.stdout:
        said += line
        if "Ctrl-C" in line:
            break
    found = re.search(r"bootstrap\.servers=(127\.0\.0\.1:\d+)", said)
    assert found is not None, said
    topics = AdminClient({"bootstrap.servers": found[1]}).list_topics(timeout=10).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"lines": 3, "counts": 1}
    children = psutil.Process(command.pid).children(recursive=True)
    assert children
    os.killpg(command.pid, number)
    _, errors = command.communicate(timeout=30)
    assert (command.returncode, errors) == (code, "starting Kafka; this takes some seconds\n")
    assert [child for child in children if child.is_running()] == []
    kept = tmp_path / "data" / "kafka" / "lines-2"
    assert kept.is_dir()
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "data", kept)] == [0o750, 0o750]


@pytest.mark.kafka
def test_an_error_of_the_command_is_a_sentence_and_an_exit_code() -> None:
    """Here a port that is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        output, errors = start(["--port", str(port)]).communicate(timeout=30)
        assert output == ""
    assert f"\nerror: port {port} on 127.0.0.1 cannot be used" in errors
    assert "Traceback" not in errors
