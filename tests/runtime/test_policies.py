"""The ready-made handlers: what they answer, with which budget, and what they refuse."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise, permutations
from typing import Any

import pytest

from millstream.config import StreamsConfig
from millstream.errors import (
    ConfigException,
    MissingSourceTopicException,
    PipelineException,
    StreamsException,
)
from millstream.runtime.policies import UncaughtExceptionPolicy, causes, default_budget
from millstream.runtime.state.failure import MOST_FAILURES, Budget, Response

SECOND = timedelta(seconds=1)
replace = UncaughtExceptionPolicy.replace
always = UncaughtExceptionPolicy.always
by_exception = UncaughtExceptionPolicy.by_exception


def failed(*chain: BaseException) -> BaseException:
    """The first, caused by the second, and so on."""
    for error, cause in pairwise(chain):
        error.__cause__ = cause
    return chain[0]


def pipeline(*chain: BaseException) -> BaseException:
    return failed(PipelineException("x", pipeline="p0"), *chain)


# --- budgets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "kind", "told"),
    [
        ({"max_failures": 0}, ValueError, "from 1 to 100"),
        ({"max_failures": MOST_FAILURES + 1}, ValueError, "got 101"),
        ({"max_failures": True}, TypeError, "whole number"),
        ({"max_failures": 2.5}, TypeError, "whole number"),
        ({"window": timedelta(0)}, ValueError, "window can't be zero or negative"),
        ({"window": 600}, TypeError, "window must be a timedelta"),
        ({"first_delay": -SECOND}, ValueError, "first_delay can't be negative"),
        ({"backoff": -SECOND}, ValueError, "backoff can't be negative"),
        ({"backoff_max": timedelta(milliseconds=1)}, ValueError, "can't be shorter than backoff"),
        ({"then": Response.REPLACE_THREAD}, ValueError, "can't be REPLACE_THREAD"),
        ({"then": "SHUTDOWN_CLIENT"}, TypeError, "write StreamThreadExceptionResponse.SHUTDOWN_CLIENT"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(
    wrong: dict[str, Any], kind: type[Exception], told: str
) -> None:
    """The error is raised when the policy is created, and says what is valid."""
    with pytest.raises(kind, match=told):
        replace(**wrong)
    with pytest.raises(kind, match=told):
        Budget(**wrong)


def test_replacing_has_a_budget_of_five_in_ten_minutes() -> None:
    """The defaults of the policy, and each argument in its place."""
    assert replace().choose(ValueError()) == (
        Response.REPLACE_THREAD,
        Budget(
            max_failures=5,
            window=timedelta(minutes=10),
            then=Response.SHUTDOWN_CLIENT,
            first_delay=timedelta(0),
            backoff=timedelta(seconds=0.1),
            backoff_max=timedelta(minutes=1),
        ),
    )
    made = replace(
        2,
        SECOND,
        Response.SHUTDOWN_APPLICATION,
        first_delay=2 * SECOND,
        backoff=3 * SECOND,
        backoff_max=4 * SECOND,
    )
    assert made.choose(ValueError())[1] == Budget(
        2, SECOND, Response.SHUTDOWN_APPLICATION, 2 * SECOND, 3 * SECOND, 4 * SECOND
    )


def config(**options: Any) -> StreamsConfig:
    return StreamsConfig(
        {
            "application.id": "app",
            "bootstrap.servers": "h:1",
            **{f"replace.thread.{name.replace('_', '.')}": value for name, value in options.items()},
        }
    )


def test_a_plain_answer_has_the_budget_of_the_configuration() -> None:
    """Ten failures in an hour, unless the keys say otherwise."""
    assert default_budget(config()) == Budget(
        10, timedelta(hours=1), Response.SHUTDOWN_CLIENT, timedelta(0), timedelta(seconds=0.1), 60 * SECOND
    )
    given = config(
        max_failures=3, window_ms=2 * SECOND, then="shutdown_application", backoff_ms=7, backoff_max_ms="9"
    )
    assert default_budget(given) == Budget(
        3,
        2 * SECOND,
        Response.SHUTDOWN_APPLICATION,
        timedelta(0),
        timedelta(milliseconds=7),
        timedelta(milliseconds=9),
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"max_failures": 101}, "from 1 to 100"),
        ({"backoff_ms": 61_000}, "can't be shorter than backoff"),
        ({"window_ms": 10**18}, "replace.thread"),
        ({"max_failures": 0}, "replace.thread.max.failures"),
        ({"then": "REPLACE_THREAD"}, "replace.thread.then"),
    ],
)
def test_a_configuration_without_sense_is_a_config_exception(options: dict[str, Any], told: str) -> None:
    """The error is raised before anything starts."""
    with pytest.raises(ConfigException, match=told):
        default_budget(config(**options))


# --- always ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("response", Response)
def test_always_says_the_same(response: Response) -> None:
    """The budget is that of the configuration. Called as a handler, it returns the response alone."""
    assert always(response).choose(KeyError()) == (response, None)
    assert always(response)(KeyError()) is response
    assert replace()(KeyError()) is Response.REPLACE_THREAD


@pytest.mark.parametrize("wrong", [None, "SHUTDOWN_CLIENT", "off", 3, Response, replace()])
def test_always_takes_responses_only(wrong: Any) -> None:
    """A text is told how to be one."""
    with pytest.raises(
        TypeError, match=r"response must be a StreamThreadExceptionResponse, such as \.SHUTDOWN"
    ):
        always(wrong)


# --- by exception ------------------------------------------------------------------------------------------

A, B, C, D = Response


@pytest.mark.parametrize(
    ("rules", "error", "expected"),
    [
        pytest.param({ValueError: A}, pipeline(ValueError()), A, id="a cause"),
        pytest.param({ValueError: A}, ValueError(), A, id="the exception itself"),
        pytest.param({ValueError: A}, pipeline(KeyError()), B, id="nothing fits"),
        pytest.param({}, pipeline(KeyError()), B, id="no rules"),
        pytest.param({KeyError: A}, pipeline(RuntimeError(), OSError(), KeyError()), A, id="a far cause"),
        pytest.param({LookupError: A}, pipeline(KeyError()), A, id="a parent of the cause"),
        pytest.param({Exception: A, ValueError: C}, pipeline(ValueError()), C, id="the subclass wins"),
        pytest.param(
            {Exception: A, LookupError: C, KeyError: D}, pipeline(KeyError()), D, id="of three in a line"
        ),
        pytest.param(
            {Exception: A, PipelineException: C},
            pipeline(RuntimeError()),
            C,
            id="the subclass wins at another place of the chain too",
        ),
        pytest.param(
            {StreamsException: A, ValueError: C}, pipeline(ValueError()), C, id="the root, of unrelated ones"
        ),
        pytest.param(
            {PipelineException: A, ValueError: C, OSError: D},
            pipeline(ValueError(), OSError()),
            D,
            id="the root, of three",
        ),
        pytest.param(
            {StreamsException: A, MissingSourceTopicException: C},
            MissingSourceTopicException("x"),
            C,
            id="our own tree",
        ),
        pytest.param({BaseException: A}, failed(StreamsException(), SystemExit()), A, id="any at all"),
    ],
)
def test_the_most_specific_class_decides(
    rules: dict[type[BaseException], Response], error: BaseException, expected: Response
) -> None:
    """The order of the rules does not matter."""
    for order in permutations(rules.items()):
        assert by_exception(dict(order), otherwise=B)(error) is expected


class Both(ValueError, OSError):
    """Has two parents that are unrelated."""


def test_of_two_parents_the_first_one_decides() -> None:
    """Python looks up methods in the same way."""
    for order in permutations([(ValueError, A), (OSError, C)]):
        assert by_exception(dict(order))(Both()) is A


def test_what_fits_none_shuts_the_client_down() -> None:
    """`otherwise` changes that; it may be a policy."""
    assert by_exception({KeyError: A})(ValueError()) is Response.SHUTDOWN_CLIENT
    nested = by_exception({KeyError: A}, otherwise=replace(3))
    assert nested.choose(ValueError()) == (Response.REPLACE_THREAD, Budget(3))


def test_policies_nest_and_bring_their_budgets() -> None:
    """Each class of exceptions can have its own."""
    policy = by_exception(
        {
            OSError: replace(7),
            ValueError: by_exception({UnicodeError: replace(2)}, otherwise=C),
        },
        otherwise=D,
    )
    assert policy.choose(pipeline(ConnectionError())) == (A, Budget(7))
    assert policy.choose(pipeline(UnicodeError())) == (A, Budget(2))
    assert policy.choose(pipeline(ValueError())) == (C, None)
    assert policy.choose(pipeline(KeyError())) == (D, None)


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        ([(ValueError, A)], "takes a dict"),
        ({"ValueError": A}, "takes exception classes as keys; got 'ValueError'"),
        ({ValueError(): A}, "takes exception classes as keys"),
        ({int: A}, "takes exception classes as keys"),
        (
            {ValueError: "REPLACE_THREAD"},
            "the value of ValueError must be .*write StreamThreadExceptionResponse.REPL",
        ),
        ({ValueError: None}, "the value of ValueError must be"),
    ],
)
def test_rules_that_are_none_are_refused(rules: Any, told: str) -> None:
    """The error is raised when the policy is created."""
    with pytest.raises(TypeError, match=told):
        by_exception(rules)
    with pytest.raises(TypeError, match="otherwise must be"):
        by_exception({}, otherwise=None)  # type: ignore[arg-type]


def test_a_chain_that_leads_back_to_itself_ends() -> None:
    """A policy must not hang on it."""
    first, second = ValueError(), KeyError()
    failed(first, second, first)
    assert list(causes(first)) == [first, second]
    assert by_exception({OSError: A})(first) is Response.SHUTDOWN_CLIENT


# --- as values ---------------------------------------------------------------------------------------------


def test_a_policy_is_a_frozen_value() -> None:
    """It can be shared by clients and compared."""
    assert replace(3) == replace(3) != replace(4)
    assert by_exception({KeyError: A}) == by_exception({KeyError: A}) != by_exception({KeyError: C})
    assert len({always(A), always(A), always(C)}) == 2
    policy: Any = always(A)
    with pytest.raises(AttributeError):
        policy.response = C
    with pytest.raises(TypeError, match=r"UncaughtExceptionPolicy\.replace\(\)"):
        UncaughtExceptionPolicy()


def test_a_policy_reads_as_it_is_written() -> None:
    """Logs and errors show it so."""
    assert repr(always(A)) == "UncaughtExceptionPolicy.always(REPLACE_THREAD)"
    assert repr(replace(2)) == (
        "UncaughtExceptionPolicy.replace(max_failures=2, window=0:10:00, then=SHUTDOWN_CLIENT, "
        "first_delay=0:00:00, backoff=0:00:00.100000, backoff_max=0:01:00)"
    )
    assert repr(by_exception({KeyError: C, OSError: by_exception({}, A)}, otherwise=B)) == (
        "UncaughtExceptionPolicy.by_exception({KeyError: SHUTDOWN_APPLICATION, "
        "OSError: by_exception({}, otherwise=REPLACE_THREAD)}, otherwise=SHUTDOWN_CLIENT)"
    )
