"""Logs in one call: what is written, where, and what is never written."""

from __future__ import annotations

import io
import json
import logging

import pytest

import millstream
from millstream.config import MASKED, masked
from millstream.config_keys import KEYS
from millstream.logs import without_secrets

LOG = logging.getLogger("millstream.runtime.client")
OF_KAFKA = (
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauthbearer.client.secret",
    "ssl.key.password",
    "ssl.key.pem",
    "ssl.keystore.key",
    "ssl.keystore.password",
)
SECRET_SETTINGS = sorted(key for key in (*KEYS, *OF_KAFKA) if masked(key, "shown") == MASKED)

pytestmark = pytest.mark.usefixtures("loggers_as_before")


def test_lines_to_read_have_time_level_and_logger() -> None:
    """The level is the requested one."""
    out = io.StringIO()
    millstream.logging("INFO", stream=out)
    LOG.info("State transition from %s to %s", "CREATED", "REBALANCING")
    LOG.debug("not this")
    (line,) = out.getvalue().splitlines()
    at, level, logger, message = line.split(maxsplit=3)
    assert len(at) == len("12:30:01.250")
    assert (level, logger) == ("INFO", "millstream.runtime.client:")
    assert message == "State transition from CREATED to REBALANCING"


def test_json_is_an_object_a_line_with_the_exception_in_it() -> None:
    """The time is in UTC; the message may have any characters."""
    out = io.StringIO()
    millstream.logging(json=True, stream=out)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        LOG.exception("it %s failed", '"p0"\x1b[31m')
    (line,) = out.getvalue().splitlines()
    told = json.loads(line)
    assert told["timestamp"].endswith("Z")
    assert (told["level"], told["logger"]) == ("ERROR", "millstream.runtime.client")
    assert told["thread"] == "MainThread"
    assert told["message"] == 'it "p0"\\x1b[31m failed'
    assert "ValueError: two" in told["exception"]


def test_a_traceback_cannot_forge_a_line() -> None:
    """Each of its lines is indented, also those that an exception's text brings along."""
    out = io.StringIO()
    millstream.logging(stream=out)
    try:
        raise ValueError("x\n12:00:00.000 INFO    millstream: all is well")
    except ValueError:
        LOG.exception("failed")
    first, *others = out.getvalue().splitlines()
    assert first.endswith("failed")
    assert others
    assert all(line.startswith(" ") for line in others)


def test_called_again_it_takes_the_place_of_the_call_before() -> None:
    """A message is never written twice."""
    first, second = io.StringIO(), io.StringIO()
    millstream.logging(stream=first)
    millstream.logging("DEBUG", stream=second)
    LOG.debug("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


def test_the_root_logger_stays_as_it_is() -> None:
    """Its handlers and its level are unchanged, and they do not write Millstream's messages a second time."""
    root, kept = logging.getLogger(), io.StringIO()
    theirs = logging.StreamHandler(kept)
    root.addHandler(theirs)
    handlers, level = list(root.handlers), root.level
    own = io.StringIO()
    millstream.logging(stream=own)
    LOG.info("ours")
    logging.getLogger("theirs").warning("theirs")
    assert (root.handlers, root.level) == (handlers, level)
    assert kept.getvalue() == "theirs\n"
    assert "ours" in own.getvalue()
    assert "theirs" not in own.getvalue()


def test_asked_to_it_sets_up_the_root_logger_and_leaves_its_other_handlers() -> None:
    """Then all that is logged in the program comes out, Millstream's messages once."""
    root, out = logging.getLogger(), io.StringIO()
    before = list(root.handlers)
    millstream.logging(stream=io.StringIO())
    millstream.logging(stream=out, root=True)
    LOG.info("ours")
    logging.getLogger("another").info("theirs")
    assert [each for each in root.handlers if each in before] == before
    assert (out.getvalue().count("ours"), out.getvalue().count("theirs")) == (1, 1)


@pytest.mark.parametrize("level", ["LOUD", "", None, True])
def test_a_level_that_there_is_not_is_refused(level: object) -> None:
    """The error lists the levels."""
    with pytest.raises(ValueError, match=r"level must be one of .*INFO"):
        millstream.logging(level)  # type: ignore[arg-type]


def test_secrets_are_hidden_in_messages_and_tracebacks() -> None:
    """Any message may quote them."""
    out = io.StringIO()
    millstream.logging(stream=out)
    try:
        raise ValueError("sasl.password=hush-1, and 'ssl.key.password': 'hush-2'")
    except ValueError:
        LOG.exception("config %s", {"ssl.keystore.password": "hush-3", "client.id": "seen"})
    written = out.getvalue()
    assert "hush" not in written
    assert "'client.id': 'seen'" in written


@pytest.mark.parametrize(
    "text",
    [
        "sasl.jaas.config=hush",
        'sasl.jaas.config="org.apache Module required password=\\"hush\\";"',
        "ssl.truststore.password: hush",
        '{"client.secret": "hush it"}',
        "basic.auth.user.info=user:hush",
        "https://user:hush@registry:8081/subjects",
        "Authorization: Bearer hushhushhush",
        "query.server.auth.token=hush",
        "aws_secret_access_key=hush",
        "api_key=hush",
        '{\\"ssl.key.password\\": \\"hush\\"}',
        'password="hush, cut he',
        "{'Authorization': 'Basic hushhushhush'}",
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str) -> None:
    """Names of settings, headers, and passwords in addresses."""
    assert "hush" not in without_secrets(text)
    assert "[hidden]" in without_secrets(text)


@pytest.mark.parametrize("name", SECRET_SETTINGS)
@pytest.mark.parametrize("form", ["{}=hush", "{}: hush", "'{}': 'hush'", '{{"{}":"hush"}}'])
def test_each_setting_that_a_configuration_hides_is_hidden(name: str, form: str) -> None:
    """A secret that `print(config)` does not show is not in a log either."""
    assert "hush" not in without_secrets(form.format(name))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("unit", ["0af3", "a.", "a-b:", "password", "://a:", 'token="\\', "bearer ", "x = "])
def test_hiding_takes_time_in_proportion_to_the_text(unit: str) -> None:
    """A record of a megabyte that an exception quotes does not stop the log: it took hours once."""
    assert without_secrets(unit * (1_000_000 // len(unit)))


def test_long_messages_and_tracebacks_are_cut() -> None:
    """What they quote may be a record; how long each was is said."""
    out = io.StringIO()
    millstream.logging(stream=out)
    try:
        raise ValueError("0af3" * 250_000)
    except ValueError:
        LOG.exception("refused %s", "0af3" * 250_000)
    assert 40_000 < len(out.getvalue()) < 42_000
    assert out.getvalue().count(" characters)") == 2


@pytest.mark.parametrize(
    "text",
    [
        "the token of the group is 12",
        "secretary: Ann",
        "password",
        "http://host:8081/a@b",
        "key=1, partition: 3",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Words alone are none."""
    assert without_secrets(text) == text


def test_the_function_shadows_nothing() -> None:
    """A star import does not take Python's own `logging` away, and the package's modules have that."""
    names: dict[str, object] = {"logging": logging}
    exec("from millstream import *", names)
    assert names["logging"] is logging
    assert "logging" not in millstream.__all__
    assert callable(millstream.logging)
