"""Where a command's configuration comes from, and what goes before what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from millstream.cli.cluster import cluster_config
from millstream.cli.command_settings import from_environment, from_flags, from_properties, from_toml, settings
from millstream.cli.main import app
from millstream.config import StreamsConfig
from millstream.config_keys import KEYS


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    """A flag with a name of its own goes before `--set`; a flag that is not given changes nothing."""
    file = tmp_path / "orders.toml"
    file.write_text(
        'application.id = "file"\nbootstrap.servers = "file:1"\nstate.dir = "file"\nclient.id = "file"\n'
    )
    environ = {
        "MILLSTREAM_BOOTSTRAP_SERVERS": "environ:1",
        "MILLSTREAM_STATE_DIR": "environ",
        "MILLSTREAM_CLIENT_ID": "environ",
        "HOME": "/nowhere",
    }
    named = {"client.id": "named", "application.id": None}
    assert settings(file, environ, ["state.dir=flag", "client.id=flag"], named) == {
        "application.id": "file",
        "bootstrap.servers": "environ:1",
        "state.dir": "flag",
        "client.id": "named",
    }


def test_commands_wait_ten_seconds_for_kafka_unless_told_otherwise() -> None:
    """A client waits for 40 s, and a person who waits can start the command again."""
    assert cluster_config(None, None, "kafka:1").request_timeout_s == 10.0
    assert cluster_config(None, ["request.timeout.ms=500"], "kafka:1").request_timeout_s == 0.5


def test_toml_may_have_tables_or_dotted_keys() -> None:
    """Both forms give Kafka's dotted names, and values keep their types."""
    text = """
    application.id = "orders"
    bootstrap.servers = ["a:1", "b:2"]
    num.stream.threads = 2
    [query.server]
    enabled = true
    [spark]
    "sql.shuffle.partitions" = 4
    """
    found = from_toml(text, "x.toml")
    assert found == {
        "application.id": "orders",
        "bootstrap.servers": ["a:1", "b:2"],
        "num.stream.threads": 2,
        "query.server.enabled": True,
        "spark.sql.shuffle.partitions": 4,
    }
    assert StreamsConfig(found).bootstrap_servers == ("a:1", "b:2")


def test_properties_are_names_and_values() -> None:
    """Comments and empty lines are skipped, and a value may have `=` in it."""
    assert from_properties("# a\n! b\n\n a.b = c=d \n", "x") == {"a.b": "c=d"}


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (
            lambda: from_properties("a.b\n", "x.properties"),
            "x.properties, line 1: a setting must have the form name=value",
        ),
        (lambda: from_toml("a = ", "x.toml"), "x.toml is not TOML"),
        (
            lambda: from_toml("a.b = 1\na.b.c = 2", "x.toml"),
            "put a key that another one begins with into quotes",
        ),
        (lambda: from_toml("a.b = 2026-01-01", "x.toml"), "'a.b' is a date"),
        (lambda: from_flags(["a.b"]), "'a.b' is not a setting"),
        (lambda: settings(Path("/nowhere/x"), {}), "/nowhere/x cannot be read"),
    ],
)
def test_what_cannot_be_read_is_an_error_of_usage(read, said: str) -> None:  # type: ignore[no-untyped-def]
    """It names the file and the place."""
    with pytest.raises(typer.BadParameter, match=said):
        read()


def test_each_key_has_a_variable() -> None:
    """`MILLSTREAM_`, capitals, and `_` for dots; no two keys have the same."""
    variables = {f"MILLSTREAM_{key.upper().replace('.', '_').replace('-', '_')}": key for key in KEYS}
    found, unknown = from_environment(dict.fromkeys(variables, "x"))
    assert (found.keys(), unknown) == (KEYS.keys(), [])


def test_what_has_a_prefix_is_passed_on() -> None:
    """Known keys by their names behind it, others with a dot for each `_`; the longest prefix counts."""
    found, unknown = from_environment(
        {
            "MILLSTREAM_CONSUMER_SESSION_TIMEOUT_MS": "1",
            "MILLSTREAM_MAIN_CONSUMER_MAX_POLL_RECORDS": "2",
            "MILLSTREAM_SPARK_SQL_SHUFFLE_PARTITIONS": "3",
            "MILLSTREAM_SASL_MECHANISM": "PLAIN",
        }
    )
    assert found == {
        "consumer.session.timeout.ms": "1",
        "main.consumer.max.poll.records": "2",
        "spark.sql.shuffle.partitions": "3",
        "sasl.mechanism": "PLAIN",
    }
    assert unknown == []


def test_a_slip_in_a_variable_is_told_and_what_orchestrators_set_is_not() -> None:
    """Kubernetes sets variables for each service, and one may be called millstream."""
    found, unknown = from_environment(
        {
            "MILLSTREAM_STATE_DRI": "x",
            "MILLSTREAM_SERVICE_HOST": "10.0.0.1",
            "MILLSTREAM_UI_SERVICE_PORT_HTTP": "80",
            "MILLSTREAM_PORT_8080_TCP_ADDR": "10.0.0.1",
            "MILLSTREAM_PORT": "tcp://10.0.0.1:80",
            "MILLSTREAM_CACHE_DIR": "x",
            "MILLSTREAM_URL": "x",
        }
    )
    assert (found, unknown) == ({}, ["MILLSTREAM_STATE_DRI"])


def test_variables_of_options_are_not_taken_for_settings() -> None:
    """Each command's; a warning that one is unknown would be wrong."""

    def variables(command: Any) -> set[str]:
        found = {each.envvar for each in command.params if isinstance(each.envvar, str)}
        return found.union(*(variables(each) for each in getattr(command, "commands", {}).values()))

    named = variables(typer.main.get_command(app))
    assert {"MILLSTREAM_CA_FILE", "MILLSTREAM_TOKEN", "MILLSTREAM_URL"} <= named
    assert from_environment(dict.fromkeys(named, "x")) == ({}, [])
