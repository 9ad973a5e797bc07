"""How a user's function is shown and counted."""

import functools
import operator

import pytest

from millstream.topology.functions import accepts, arity, caller, describe_function


def named(key, value):
    return value


class Callable:
    def __call__(self, key, value):
        return value

    def method(self, value):
        return value


class Printed(Callable):
    def __repr__(self):
        return "printed"


@functools.wraps(named)
def wrapped(*args):
    return named(*args)


LAMBDA = lambda value: value  # noqa: E731
NAMED_LINE = named.__code__.co_firstlineno


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (LAMBDA, f"test_functions.py:{LAMBDA.__code__.co_firstlineno} <lambda>"),
        (named, f"test_functions.py:{NAMED_LINE} named"),
        (wrapped, f"test_functions.py:{NAMED_LINE} named"),
        (functools.partial(named, 1), f"test_functions.py:{NAMED_LINE} named"),
        (Callable().method, f"test_functions.py:{Callable.method.__code__.co_firstlineno} method"),
        (Callable(), "test_functions.Callable object"),
        (Printed(), "printed"),
        (len, "builtins.len"),
        (str.upper, "builtins.upper"),
        (dict, "builtins.dict"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_function_is_shown_by_its_line_and_never_by_its_address(function, text):
    """`app.py:41 <lambda>`."""
    assert describe_function(function) == text
    assert "0x" not in describe_function(function)


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda: 0, 0),
        (lambda a: 0, 1),
        (lambda a, b: 0, 2),
        (lambda a, b, c: 0, 3),
        (lambda a, b, c, d: 0, None),
        (lambda a, i=1: 0, 1),
        (lambda a=1: 0, 1),
        (lambda *args: 0, 2),
        (lambda a, *args: 0, 1),
        (lambda *, key: 0, None),
        (lambda a, *, key=1: 0, 1),
        (operator.add, 2),
        (max, 2),
        (Callable(), 2),
        (Callable().method, 1),
        (functools.partial(named, 1), 1),
    ],
)
def test_arity_is_what_a_function_wants(function, count):
    """Required parameters, and not those with defaults."""
    assert arity(function) == count


def test_arity_has_a_limit_that_one_can_set():
    """For functions of one thing."""
    assert arity(lambda a, b: 0, most=1) is None
    assert arity(lambda *args: 0, most=1) == 1


@pytest.mark.parametrize(
    ("function", "count", "can"),
    [(dict, 0, True), (lambda: 0, 0, True), (lambda a: 0, 0, False), (named, 2, True), (named, 3, False)],
)
def test_accepts_asks_whether_a_call_would_bind(function, count, can):
    """Classes too."""
    assert accepts(function, count) is can


def test_caller_is_the_line_outside_millstream():
    """Here, that is this file."""
    assert caller().startswith("test_functions.py:")
