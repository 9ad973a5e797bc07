"""Asking the handler: whatever it is and whatever it does, there is an answer."""

from __future__ import annotations

import functools
import logging
import textwrap
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from millstream.errors import PipelineException, StreamsException
from millstream.model import TaskId, TopicPartition
from millstream.runtime.policies import UncaughtExceptionPolicy
from millstream.runtime.state.failure import Budget, Failure, HandlerAnswer, Response
from millstream.runtime.threads.handler import (
    FailureContext,
    Resolved,
    ask,
    call_hook,
    check_handler,
    check_hook,
    hook_arguments,
    resolve,
)
from millstream.states import State

REPLACE = Response.REPLACE_THREAD


def failure() -> Failure:
    error = PipelineException(
        "poison",
        pipeline="p0",
        offsets={TopicPartition("lines", 0): (3, 5)},
        batch_id=9,
        task_id=TaskId(0, 1),
    )
    error.__cause__ = ValueError("what really happened")
    return Failure.of("t1", error)


def asked(handler: Any, failed: Failure | None = None, hook: Any = None) -> HandlerAnswer:
    failed = failed or failure()
    context = FailureContext.of(failed, client_id="c1", client_state=State.RUNNING)
    return ask(handler, failed, context, hook)


# --- how it is called --------------------------------------------------------------------------------------


def test_without_a_handler_the_client_shuts_down() -> None:
    """Upstream's default; None is how a handler is deleted."""
    assert asked(None) == HandlerAnswer(Response.SHUTDOWN_CLIENT)


@pytest.mark.parametrize("response", Response)
def test_the_handlers_response_is_the_answer(response: Response) -> None:
    """A response has no budget of its own."""
    assert asked(lambda exception: response) == HandlerAnswer(response)


def test_a_handler_gets_the_exception_on_the_failing_thread() -> None:
    """The very object, and `__cause__` is what really happened."""
    got: list[Any] = []

    def handler(exception: BaseException) -> Response:
        got.extend([exception, threading.current_thread()])
        return REPLACE

    failed = failure()
    assert asked(handler, failed) == HandlerAnswer(REPLACE)
    assert got[0] is failed.error
    assert got[1] is threading.current_thread()


def test_a_handler_with_two_parameters_gets_the_context() -> None:
    """Everything that is known of the failure."""
    got: list[FailureContext] = []

    def handler(exception: BaseException, context: FailureContext) -> Response:
        got.append(context)
        return REPLACE

    failed = failure()
    context = FailureContext.of(failed, client_id="c1", client_state=State.REBALANCING, attempt=3)
    assert ask(handler, failed, context) == HandlerAnswer(REPLACE)
    assert got == [
        FailureContext(
            thread="t1",
            client_id="c1",
            client_state=State.REBALANCING,
            attempt=3,
            pipeline="p0",
            task_id=TaskId(0, 1),
            offsets={TopicPartition("lines", 0): (3, 5)},
            batch_id=9,
            is_global=False,
            previous=(),
        )
    ]


class Object:
    """A handler that is an object, as those of Java are, and one that is a bound method."""

    def __call__(self, exception: BaseException) -> Response:
        return REPLACE

    def handle(self, exception: BaseException, context: FailureContext) -> Response:
        assert isinstance(context, FailureContext)
        return REPLACE


def wrapped(handler: Callable[..., Response]) -> Callable[..., Response]:
    @functools.wraps(handler)
    def outer(*args: Any, **options: Any) -> Response:
        return handler(*args, **options)

    return outer


def one(exception: BaseException) -> Response:
    return REPLACE


def two(exception: BaseException, context: FailureContext) -> Response:
    assert isinstance(context, FailureContext)
    return REPLACE


def optional(exception: BaseException, context: FailureContext | None = None) -> Response:
    assert isinstance(context, FailureContext)
    return REPLACE


def not_for_us(exception: BaseException, name: str = "mine") -> Response:
    assert name == "mine"
    return REPLACE


def any_number(*args: Any) -> Response:
    assert len(args) == 1
    return REPLACE


def three(number: int, exception: BaseException, context: FailureContext) -> Response:
    assert number == 1
    assert isinstance(context, FailureContext)
    return REPLACE


HANDLERS: list[Callable[..., Response]] = [
    one,
    two,
    optional,
    not_for_us,
    any_number,
    Object(),
    Object().handle,
    wrapped(one),
    wrapped(two),
    functools.partial(three, 1),
    functools.partial(two, context=FailureContext("t", "c", State.RUNNING)),
    lambda exception, response=REPLACE: response,
    UncaughtExceptionPolicy.always(REPLACE),
]


@pytest.mark.parametrize("handler", HANDLERS, ids=range(len(HANDLERS)))
def test_anything_that_takes_an_exception_can_be_a_handler(handler: Callable[..., Response]) -> None:
    """It passes the check, and is called with what it has parameters for."""
    check_handler(handler)
    assert asked(handler) == HandlerAnswer(REPLACE)


def test_a_builtin_counts_as_one_parameter() -> None:
    """Some do not tell their signature; `dict.get` with a default is a handler one can think of."""
    responses: dict[Any, Response] = {}
    check_handler(responses.get)
    check_handler(vars)
    failed = failure()
    responses[failed.error] = Response.SHUTDOWN_THREAD
    assert asked(responses.get, failed) == HandlerAnswer(Response.SHUTDOWN_THREAD)


async def asynchronous(exception: BaseException) -> Response:
    return REPLACE


class AsynchronousObject:
    async def __call__(self, exception: BaseException) -> Response:
        return REPLACE


def generator(exception: BaseException) -> Any:
    yield REPLACE


def nothing() -> Response:
    return REPLACE


def keyword(exception: BaseException, *, needed: int) -> Response:
    return REPLACE


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (3, "3 cannot be called"),
        ("REPLACE_THREAD", "'REPLACE_THREAD' cannot be called"),
        (REPLACE, "UncaughtExceptionPolicy.always\\(StreamThreadExceptionResponse.REPLACE_THREAD\\)"),
        (Response, "is a class"),
        (UncaughtExceptionPolicy, "is a class"),
        (Object, "is a class"),
        (nothing, "takes nothing"),
        (three, "takes number: .*, exception: .*, context: "),
        (keyword, "takes exception: .*, needed: "),
        (asynchronous, "is asynchronous or a generator"),
        (functools.partial(asynchronous), "is asynchronous or a generator"),
        (AsynchronousObject(), "is asynchronous or a generator"),
        (generator, "is asynchronous or a generator"),
    ],
)
def test_what_cannot_be_called_so_is_refused_when_it_is_set(wrong: Any, told: str) -> None:
    """The message shows what was given, and one that fits."""
    with pytest.raises(TypeError, match=told) as raised:
        check_handler(wrong)
    assert "an uncaught exception handler " in str(raised.value)


# --- policies ----------------------------------------------------------------------------------------------


def test_a_policy_brings_its_budget() -> None:
    """The policy may be the handler, or what a handler returns."""
    policy = UncaughtExceptionPolicy.by_exception({ValueError: UncaughtExceptionPolicy.replace(3)})
    check_handler(policy)
    assert asked(policy) == HandlerAnswer(REPLACE, Budget(3))
    assert asked(lambda exception: policy) == HandlerAnswer(REPLACE, Budget(3))
    assert asked(policy, Failure.of("t1", StreamsException("x"))) == HandlerAnswer(Response.SHUTDOWN_CLIENT)


# --- handlers that fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "returned None (is a `return` missing?)"),
        ("REPLACE_THREAD", "'REPLACE_THREAD'; write StreamThreadExceptionResponse.REPLACE_THREAD"),
        ("shutdown_client", "'shutdown_client'; write StreamThreadExceptionResponse.SHUTDOWN_CLIENT"),
        ("record 4711", "returned a str"),
        (0, "returned a int"),
        (True, "returned a bool"),
        (Response, "returned a EnumType"),
        (State.ERROR, "returned a State"),
    ],
)
def test_what_is_no_response_shuts_the_client_down(
    returned: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream: a client that is RUNNING, without the thread. The problem is logged with both exceptions."""
    failed = failure()
    with caplog.at_level(logging.ERROR):
        answer = asked(lambda exception: returned, failed)
    assert answer.response is Response.SHUTDOWN_CLIENT
    assert isinstance(answer.problem, TypeError)
    assert told.replace("EnumType", type(Response).__name__) in str(answer.problem)
    assert "4711" not in str(answer.problem)
    assert answer.problem.__context__ is failed.error
    (record,) = caplog.records
    assert "The uncaught exception handler failed on thread 't1'" in record.getMessage()
    for shown in ("TypeError", "PipelineException", "what really happened"):
        assert shown in caplog.text


@pytest.mark.parametrize("problem", [ValueError("bug"), SystemExit(3), KeyboardInterrupt(), MemoryError()])
def test_a_handler_that_raises_shuts_the_client_down(problem: BaseException) -> None:
    """It may raise anything; the original exception is in its chain."""

    def handler(exception: BaseException) -> Response:
        raise problem

    failed = failure()
    answer = asked(handler, failed)
    assert answer == HandlerAnswer(Response.SHUTDOWN_CLIENT, problem=problem)
    assert problem.__context__ is failed.error


def raise_from(kind: str, exception: BaseException) -> Response:
    match kind:
        case "inside an except":
            try:
                raise KeyError("first")
            except KeyError:
                raise ValueError("bug")  # noqa: B904
        case "from another":
            raise ValueError("bug") from KeyError("first")
        case "from None":
            raise ValueError("bug") from None
        case "from the original":
            raise ValueError("bug") from exception
        case "the original":
            raise exception
        case "the original's cause":
            assert exception.__cause__ is not None
            raise exception.__cause__
        case _:
            loop = ValueError("bug")
            loop.__cause__ = KeyError("first")
            loop.__cause__.__cause__ = loop
            raise loop


def chain(error: BaseException) -> list[BaseException]:
    """What its traceback shows, up to ten; more would be a circle."""
    links = [error]
    while len(links) < 10 and (following := links[-1].__cause__ or links[-1].__context__) is not None:
        links.append(following)
    return links


RAISED = [
    "inside an except",
    "from another",
    "from None",
    "from the original",
    "the original",
    "the original's cause",
    "in a circle",
]


@pytest.mark.parametrize("kind", RAISED)
def test_however_a_handler_raises_a_traceback_can_be_printed(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The traceback has both exceptions, and the chain has an end."""
    failed = failure()
    with caplog.at_level(logging.ERROR):
        answer = asked(functools.partial(raise_from, kind), failed)
    assert answer.response is Response.SHUTDOWN_CLIENT
    assert answer.problem is not None
    assert kind == "in a circle" or len(chain(answer.problem)) < 6
    shown = "".join(traceback.format_exception(answer.problem))
    assert textwrap.indent(shown.rstrip(), "  ", lambda _: True) in caplog.text
    assert "what really happened" in "".join(traceback.format_exception(failed.error))
    if kind not in ("in a circle", "the original's cause"):
        assert "what really happened" in shown
        assert "poison" in shown


# --- the deprecated hook -----------------------------------------------------------------------------------


def test_the_hook_alone_decides_nothing() -> None:
    """The thread dies as before KIP-671, and the hook is told."""
    assert asked(None, hook=lambda args: None) == HandlerAnswer(Response.SHUTDOWN_THREAD, hook=True)


def test_the_handler_goes_before_the_hook(caplog: pytest.LogCaptureFixture) -> None:
    """A warning says so each time, in upstream's words."""

    def hook(args: threading.ExceptHookArgs) -> None:
        raise AssertionError("it is ignored")

    with caplog.at_level(logging.WARNING):
        assert asked(one, hook=hook) == HandlerAnswer(REPLACE)
    assert caplog.messages == [
        "Stream's new uncaught exception handler is set as well as the deprecated old handler. The old "
        "handler will be ignored as long as a new handler is set."
    ]


def test_who_is_told() -> None:
    """The four cases."""

    def hook(args: threading.ExceptHookArgs) -> None:
        pass

    assert resolve(None, None) == Resolved(None, None)
    assert resolve(one, None) == Resolved(one, None)
    assert resolve(None, hook) == Resolved(None, hook)
    both = resolve(one, hook)
    assert (both.handler, both.hook) == (one, None)
    assert both.warning is not None


def test_the_hook_gets_what_threading_would_give_it() -> None:
    """`threading.excepthook` itself can be the hook."""
    got: list[threading.ExceptHookArgs] = []
    thread = threading.current_thread()
    with pytest.raises(StreamsException) as raised:
        raise StreamsException("x")
    error = raised.value
    call_hook(got.append, error, thread)
    assert error.__traceback__ is not None
    assert got == [hook_arguments(error, thread)]
    assert tuple(got[0]) == (StreamsException, error, error.__traceback__, thread)
    check_hook(threading.excepthook)


def test_a_hook_that_raises_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged, with what it was told of."""

    def hook(args: threading.ExceptHookArgs) -> None:
        raise SystemExit(1)

    with caplog.at_level(logging.ERROR):
        call_hook(hook, StreamsException("told"), None)
    assert "The deprecated thread exception hook failed" in caplog.text
    assert "told" in caplog.text


@pytest.mark.parametrize("wrong", [3, None, nothing, two, Object])
def test_what_is_no_hook_is_refused(wrong: Any) -> None:
    """It takes one argument."""
    with pytest.raises(TypeError, match=r"must take one argument, like threading\.excepthook"):
        check_hook(wrong)
