"""`millstream run`: what it prints, how it ends, and when `--reload` starts a program again."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_world import FakeWorld
from waiting import wait_until

from millstream import KafkaStreams, StreamsBuilder, StreamsException
from millstream.cli.reload import changes, child_arguments, files_of
from millstream.cli.run import Teller, run_until_ended, serving_settings


@pytest.fixture
def world() -> Iterator[FakeWorld]:
    """Surroundings with the program's two topics."""
    world = FakeWorld({"in": 1, "out": 1})
    yield world
    world.close()


def client(world: FakeWorld, folder: Path) -> KafkaStreams:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    config = {
        "application.id": "app",
        "bootstrap.servers": "fake:9092",
        "state.dir": str(folder),
        "client.id": "c",
    }
    return KafkaStreams(builder.build(), config, parts=world.parts())


def test_states_and_ready_are_told_and_the_end_of_the_client_ends_it(
    world: FakeWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """READY comes once, however often it is RUNNING; here somebody closes it."""
    streams = client(world, tmp_path)
    runner = threading.Thread(target=run_until_ended, args=(streams, Teller(as_json_lines=True)), daemon=True)
    runner.start()
    wait_until(lambda: streams.state is KafkaStreams.State.RUNNING, "it runs", 10)
    streams.add_stream_thread()
    wait_until(lambda: streams.state is KafkaStreams.State.RUNNING, "it runs again", 10)
    streams.close()
    runner.join(10)
    assert not runner.is_alive()
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    states = [(each["from"], each["to"]) for each in told if each["event"] == "state"]
    assert states[:2] == [("CREATED", "REBALANCING"), ("REBALANCING", "RUNNING")]
    assert states[-1] == ("PENDING_SHUTDOWN", "NOT_RUNNING")
    [ready] = [each for each in told if each["event"] == "ready"]
    assert (ready["client"], ready["bootstrap_servers"], ready["url"]) == ("c", "fake:9092", None)


def test_a_client_that_ends_in_error_raises_what_ended_it(world: FakeWorld, tmp_path: Path) -> None:
    """The command prints that error, and its exit code is 1."""
    streams = client(world, tmp_path)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            run_until_ended(streams, Teller(as_json_lines=False))
        except StreamsException as error:
            raised.append(error)

    runner = threading.Thread(target=run, daemon=True)
    runner.start()
    wait_until(lambda: streams.state is KafkaStreams.State.RUNNING, "it runs", 10)
    world.engine.end("p0", StreamsException("full"))
    runner.join(10)
    assert [str(error) for error in raised] == ["full"]


def test_serve_means_the_query_server_on_this_machine_unless_it_names_a_host() -> None:
    """A port alone is loopback: others reach it only if that is said."""
    enabled = {"query.server.enabled": True}
    assert serving_settings(None) == {}
    assert serving_settings("7070") == {**enabled, "query.server.listen": "127.0.0.1:7070"}
    assert serving_settings("0.0.0.0:7070") == {**enabled, "query.server.listen": "0.0.0.0:7070"}


def test_a_file_that_is_named_is_looked_at_however_many_others_there_are(tmp_path: Path) -> None:
    """The folder has more files than are looked at."""
    for number in range(5_001):
        (tmp_path / f"m{number}.py").touch()
    config = tmp_path / "orders.toml"
    config.touch()
    found = files_of([tmp_path, config])
    assert (config in found, len(found)) == (True, 5_000)


def test_a_change_is_a_file_that_is_new_gone_or_different(tmp_path: Path) -> None:
    """Python files of the folder and below, and a file that is named; not those of environments."""
    for name in ("app.py", "shop/orders.py", ".venv/lib.py", "shop/__pycache__/orders.py", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    config = tmp_path / "orders.toml"
    config.write_text("")
    before = files_of([tmp_path, config])
    assert {path.relative_to(tmp_path).as_posix() for path in before} == {
        "app.py",
        "shop/orders.py",
        "orders.toml",
    }
    assert changes(before, files_of([tmp_path, config])) == []
    (tmp_path / "app.py").unlink()
    (tmp_path / "new.py").write_text("")
    os.utime(config, ns=(1, 1))
    assert [path.name for path in changes(before, files_of([tmp_path, config]))] == [
        "app.py",
        "new.py",
        "orders.toml",
    ]


@pytest.mark.disk
def test_a_program_that_fails_is_started_again_when_it_changes(tmp_path: Path) -> None:
    """The failure is reported. The exit code is that of the signal that ends the watching."""
    program = tmp_path / "cli_reloaded.py"
    program.write_text("raise ValueError('first')")
    where = ["--app-dir", str(tmp_path), "--application-id", "reloaded", "--bootstrap-server", "127.0.0.1:1"]
    watching = subprocess.Popen(
        [sys.executable, "-m", "millstream", "run", "cli_reloaded", "--reload", *where],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watching.stderr is not None
    try:
        said = list(itertools.takewhile(lambda line: "waiting for a change" not in line, watching.stderr))
        assert any("ValueError: first" in line for line in said)
        program.write_text("raise ValueError('second time')")
        said = list(itertools.takewhile(lambda line: "waiting for a change" not in line, watching.stderr))
        assert any("'cli_reloaded.py' changed" in line for line in said)
        assert any("ValueError: second time" in line for line in said)
        watching.terminate()
        assert watching.wait(20) == 143
    finally:
        watching.kill()
        watching.communicate()


def test_the_child_gets_the_same_command_without_reload() -> None:
    """With the option it would start a child of its own."""
    assert child_arguments(["run", "--reload", "orders:topology"]) == ["run", "orders:topology"]
