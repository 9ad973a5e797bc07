"""The command line: what there is, what it says, and how it fails. Nothing is started here."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import millstream
from millstream.cli.error_messages import BriefFormatter, Debug, ErrorBoundary
from millstream.cli.main import app
from millstream.config import StreamsConfig
from millstream.config_keys import KEYS, Importance
from millstream.errors import BrokerException, StreamsException, TopologyException

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, of: typer.Typer = app) -> tuple[int, str]:
    """(exit code, all that was printed)."""
    result = CliRunner().invoke(of, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})
    return result.exit_code, result.output


def test_each_command_is_listed_and_explains_itself() -> None:
    """`millstream --help`, and of each command."""
    code, text = run("--help")
    assert code == 0
    for name in ("demo", "kafka", "config", "version"):
        assert name in text
        code, own = run(name, "--help")
        assert code == 0
        assert f"millstream {name}" in own or f"root {name}" in own


def test_the_version_is_printed_with_what_it_runs_on() -> None:
    """What a bug report needs."""
    code, text = run("version")
    assert code == 0
    found = dict(line.split(maxsplit=1) for line in text.splitlines())
    assert found["millstream"] == millstream.__version__
    assert found["pyspark"][0].isdigit()
    assert set(found) == {"millstream", "python", "pyspark", "java", "confluent-kafka", "rocksdict"}


def test_the_option_version_is_one_line() -> None:
    """Other commands print one line as well."""
    assert run("--version") == (0, f"millstream {millstream.__version__}\n")


@pytest.mark.parametrize(
    ("shell", "asks"),
    [
        ("bash", {"COMP_WORDS": "millstream des", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "millstream des"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "millstream des", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_shells_complete_commands(shell: str, asks: dict[str, str]) -> None:
    """The script asks by a variable, and the command answers it."""
    code, script = run("completion", shell)
    assert (code, f"_MILLSTREAM_COMPLETE=complete_{shell}" in script) == (0, True)
    asked = {"_MILLSTREAM_COMPLETE": f"complete_{shell}", **asks}
    assert "describe" in CliRunner().invoke(app, prog_name="millstream", env=asked).output


def test_config_prints_every_setting() -> None:
    """The same text as `StreamsConfig.describe()`."""
    assert run("config") == (0, StreamsConfig.describe() + "\n")
    settings = json.loads(run("config", "--json")[1])["settings"]
    assert {each["key"] for each in settings} == set(KEYS)
    assert run("config", "--importance", "high") == (0, StreamsConfig.describe(Importance.HIGH) + "\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("demo", "nowhere.txt"), "nowhere.txt: No such file"),
        (("demo", sys.executable), "contains zero bytes"),
        (("demo", "--keeep"), "--keeep"),
        (("demo", "--log", "no/such/folder/x.log", __file__), "no/such/folder/x.log: No such file"),
        (("kafka", "--topic", "lines:many"), "'lines:many' is not a topic"),
        (("kafka", "--port", "70000"), "less than or equal to 65535"),
        (("config", "--importance", "great"), "great"),
        (("demmo",), "demmo"),
    ],
)
def test_a_wrong_argument_is_an_error_of_usage(arguments: tuple[str, ...], said: str) -> None:
    """Exit code 2, before anything starts; the message names what is wrong."""
    code, text = run(*arguments)
    assert code == 2
    assert said in text
    assert "Traceback" not in text


def failing_app(error: BaseException) -> typer.Typer:
    broken = typer.Typer(cls=ErrorBoundary, pretty_exceptions_enable=False)

    @broken.callback()
    def root(debug: Debug = False) -> None:
        """An app."""

    @broken.command()
    def fail(debug: Debug = False) -> None:
        raise error

    return broken


def test_an_error_of_ours_is_a_message_and_an_exit_code() -> None:
    """No traceback, and nothing but the message."""
    assert run("fail", of=failing_app(BrokerException("the broker is gone"))) == (
        1,
        "error: the broker is gone\n",
    )


def test_an_error_that_is_none_of_ours_says_that_it_is_a_bug() -> None:
    """The message says how to see where it happened."""
    code, text = run("fail", of=failing_app(KeyError("x")))
    assert code == 1
    assert "KeyError: 'x'" in text
    assert "--debug shows where" in text


@pytest.mark.parametrize("arguments", [("--debug", "fail"), ("fail", "--debug")])
def test_debug_shows_the_traceback(arguments: tuple[str, ...]) -> None:
    """The option works before the command and after it."""
    code, text = run(*arguments, of=failing_app(BrokerException("the broker is gone")))
    assert code == 1
    assert "Traceback (most recent call last)" in text
    assert text.endswith("error: the broker is gone\n")


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [
        (TopologyException("app.py:5 <lambda>: a Column was used as a Python bool"), False),
        (StreamsException("KeyError: 'x'"), True),
        (KeyError("x"), True),
    ],
    ids=["of a class of its own", "wrapped", "unexpected"],
)
def test_the_log_of_a_run_has_our_errors_without_a_traceback(error: Exception, has_traceback: bool) -> None:
    """Their text says what to do; what may be a bug is shown in full, and so is each for other handlers."""
    record = logging.LogRecord("millstream", logging.ERROR, "", 1, "the client ends", None, None)
    try:
        raise error
    except Exception:
        record.exc_info = sys.exc_info()
    text = BriefFormatter().format(record)
    assert ("Traceback (most recent call last)" in text) is has_traceback
    assert f"{type(error).__name__}: {error}" in text
    assert "Traceback" in logging.Formatter().format(record)


def test_ctrl_c_is_told_in_a_word() -> None:
    """The exit code is the shell's for an interrupt."""
    assert run("fail", of=failing_app(KeyboardInterrupt())) == (130, "\nstopped\n")


LIGHT = {
    *("cli", "client_keys", "config_keys", "dsl", "errors", "foreign", "logs", "model", "polling"),
    *("program_end", "small_files"),
}
"""The parts of Millstream that each command loads; of `dsl` only what `import millstream` installs."""
ENGINES = {
    "pyspark",
    "confluent_kafka",
    "rocksdict",
    "pyarrow",
    "pandas",
    "psutil",
    "fastapi",
    "httpx",
    "cryptography",
}


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["--help"], set()),
        (["query", "get", "--help"], set()),
        (["query", "get", "counts", "a", "--url", "http://127.0.0.1:1"], {"remote"}),
    ],
    ids=["help", "help-of-a-command", "query"],
)
def test_a_command_loads_what_it_needs(arguments: list[str], more: set[str]) -> None:
    """It is quick, because it loads no topologies, no runtime, and no engine."""
    code = f"""
import sys
from millstream.cli.main import app
app({arguments}, standalone_mode=False)
print(*sys.modules)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.splitlines()[-1].split()
    assert {name.split(".")[1] for name in loaded if name.startswith("millstream.")} - LIGHT == more
    assert {name for name in loaded if name.startswith("millstream.dsl.")} == {
        "millstream.dsl.early_functions"
    }
    assert not ENGINES & {*loaded}


def test_the_module_can_be_run() -> None:
    """`python -m millstream` is the command."""
    command = [sys.executable, "-m", "millstream", "demo", "nowhere.txt"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "nowhere.txt: No such file" in done.stderr
