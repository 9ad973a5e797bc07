"""How a user's function is shown and counted."""

import functools
import operator

import pytest

from millstream.caller import caller
from millstream.topology.functions import (
    accepts,
    arity,
    compared_with_none,
    describe_function,
    name_called,
    swapped,
)


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
    """The limit is for functions of one argument."""
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


@pytest.mark.parametrize(
    ("function", "is_so"),
    [
        (lambda value, key: 0, True),
        (lambda v, k, record: 0, True),
        (lambda _value, _key: 0, True),
        (lambda key, value: 0, False),
        (lambda order, customer: 0, False),
        (lambda value, key=1: 0, False),
        (lambda value: 0, False),
        (max, False),
    ],
)
def test_swapped_parameters_are_known_by_their_names(function, is_so):
    """The key comes first; other names are the program's own business."""
    assert swapped(function) is is_so


KNOWN = {}


def a_variable(value):
    amount = value.amount
    return 0 if amount is None else amount


def a_loop(value):
    while value["a"]["b"] is not None:
        value = value["a"]


def a_match(value):
    match value.amount:
        case None:
            return 0
    return 1


def a_lookup(value):
    rate = KNOWN.get("rate")
    return value if rate is None else value * rate


def a_choice(value):
    chosen = KNOWN.get("rate") if KNOWN else value.amount
    return chosen is None or (KNOWN or value.amount) is None


def another_value(value):
    value = KNOWN[value]
    return value is None


def values_too(value):
    return 0 if isinstance(value, float) or value is None else value.amount


class Method:
    limit = None

    def with_value(self, value):
        return value.amount is None

    def with_own(self, value):
        return value if self.limit is None else value.amount


@pytest.mark.parametrize(
    ("function", "operand"),
    [
        (lambda value: value.amount is None, "value.amount"),
        (lambda value: value is not None, "value"),
        (lambda key, v: 1 if v["a"].b is None else 2, "v['a'].b"),
        (lambda key, value, record: record.timestamp is None, "record.timestamp"),
        (a_variable, "amount"),
        (a_loop, "value['a']['b']"),
        (a_match, "value.amount"),
        (Method().with_value, "value.amount"),
        (lambda value, limit=None: value if limit is None else value > limit, None),
        (lambda value: KNOWN is None, None),
        (a_lookup, None),
        (a_choice, None),
        (another_value, None),
        (values_too, None),
        (Method().with_own, None),
        (functools.partial(named, None), None),
        (wrapped, None),
        (len, None),
    ],
)
def test_what_is_compared_with_none_is_seen_where_it_is_sure(function, operand):
    """Reached from a parameter by fields alone, on every way there; nothing else."""
    assert compared_with_none(function) == operand


class NotCallable:
    @property
    def user(self):
        return self

    upper = strip = 1


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (lambda value: value.user.upper(), "upper"),
        (lambda value: str(named(0, value).user.strip(len("x"))), "strip"),
        (lambda value: value(named(1, 2)), "value"),
        (lambda value: value.user / 0, None),
    ],
)
def test_the_name_of_what_was_called_is_found_where_it_failed(function, name):
    """The same line may have other calls."""
    with pytest.raises(TypeError) as caught:
        function(NotCallable())
    trace = caught.value.__traceback__
    while trace.tb_frame.f_code is not function.__code__:
        trace = trace.tb_next
    assert name_called(trace.tb_frame.f_code, trace.tb_lasti) == name
