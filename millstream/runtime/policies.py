"""Ready-made handlers: replace within a budget, always answer the same, or decide by the exception's class.

A policy is a value: it knows nothing about the client, and keeps no count. Earlier failures are in
history.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from millstream.config import StreamsConfig
from millstream.errors import ConfigException
from millstream.runtime.state.failure import (
    BACKOFF,
    BACKOFF_MAX,
    NO_PAUSE,
    WINDOW,
    Budget,
    Response,
    StreamThreadExceptionResponse,
    not_a_response,
)

__all__ = ["UncaughtExceptionPolicy", "causes", "default_budget", "most_specific"]


class UncaughtExceptionPolicy:
    """Ready-made handlers. Create one with `replace`, `always` or `by_exception`.

        streams.set_uncaught_exception_handler(UncaughtExceptionPolicy.replace(max_failures=5))

    A policy is frozen, compares by value, and can be called with an exception like any handler; a handler can
    also return one.

    Differs: Kafka Streams has no policies; its users write them in their handlers.
    """

    __slots__ = ()

    def __init__(self) -> None:
        raise TypeError(
            "create a policy with UncaughtExceptionPolicy.replace(), .always(response) or "
            ".by_exception({...})"
        )

    @classmethod
    def replace(
        cls,
        max_failures: int = 5,
        window: timedelta = WINDOW,
        then: StreamThreadExceptionResponse = StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
        *,
        first_delay: timedelta = NO_PAUSE,
        backoff: timedelta = BACKOFF,
        backoff_max: timedelta = BACKOFF_MAX,
    ) -> UncaughtExceptionPolicy:
        """REPLACE_THREAD, up to `max_failures` times within `window`; then `then`.

        The first replacement comes after `first_delay`, those that follow after a random pause of up to
        `backoff`, 2 `backoff`, 4 `backoff` … and `backoff_max` at most. Each pipeline has its own count,
        which restarts once the pipeline gets past the records it failed on.

        Raises:
            ValueError: a number does not fit, or `then` is REPLACE_THREAD.
        """
        return _Always(
            Response.REPLACE_THREAD, Budget(max_failures, window, then, first_delay, backoff, backoff_max)
        )

    @classmethod
    def always(cls, response: StreamThreadExceptionResponse) -> UncaughtExceptionPolicy:
        """The same response to every exception. REPLACE_THREAD uses the configured budget.

        Raises:
            TypeError: it is not a response.
        """
        return _Always(_checked("response", response))

    @classmethod
    def by_exception(
        cls,
        responses: Mapping[type[BaseException], StreamThreadExceptionResponse | UncaughtExceptionPolicy],
        otherwise: StreamThreadExceptionResponse
        | UncaughtExceptionPolicy = StreamThreadExceptionResponse.SHUTDOWN_CLIENT,
    ) -> UncaughtExceptionPolicy:
        """By the class of the exception, or of anything in its chain of `__cause__`.

        Of several classes that fit, a subclass takes precedence over its parents; of unrelated ones, the one
        nearest to the root of the chain, the original cause, wins. The order of the dict does not matter.

        Args:
            responses: a response, or another policy, for each class.
            otherwise: for all other exceptions.

        Raises:
            TypeError: a key is not an exception class, or a value is neither a response nor a policy.
        """
        if not isinstance(responses, Mapping):
            raise TypeError(f"by_exception takes a dict of exception classes to responses; got {responses!r}")
        for kind in responses:
            if not (isinstance(kind, type) and issubclass(kind, BaseException)):
                raise TypeError(f"by_exception takes exception classes as keys; got {kind!r}")
        rules = tuple(
            (kind, _policy(f"the value of {kind.__name__}", value)) for kind, value in responses.items()
        )
        return _ByException(rules, _policy("otherwise", otherwise))

    def choose(self, error: BaseException) -> tuple[StreamThreadExceptionResponse, Budget | None]:
        """The response to `error`, and the budget for REPLACE_THREAD; None: the configuration's."""
        raise NotImplementedError

    def __call__(self, exception: BaseException) -> StreamThreadExceptionResponse:
        """The response alone, as from a handler. Return the policy itself to keep its budget."""
        return self.choose(exception)[0]


@dataclass(frozen=True, init=False, repr=False)
class _Always(UncaughtExceptionPolicy):
    response: StreamThreadExceptionResponse
    budget: Budget | None

    def __init__(self, response: StreamThreadExceptionResponse, budget: Budget | None = None) -> None:
        object.__setattr__(self, "response", response)
        object.__setattr__(self, "budget", budget)

    def choose(self, error: BaseException) -> tuple[StreamThreadExceptionResponse, Budget | None]:
        return self.response, self.budget

    def __repr__(self) -> str:
        if self.budget is None:
            return f"UncaughtExceptionPolicy.always({self.response})"
        shown = ", ".join(f"{name}={value}" for name, value in vars(self.budget).items())
        return f"UncaughtExceptionPolicy.replace({shown})"


@dataclass(frozen=True, init=False, repr=False)
class _ByException(UncaughtExceptionPolicy):
    rules: tuple[tuple[type[BaseException], UncaughtExceptionPolicy], ...]
    otherwise: UncaughtExceptionPolicy

    def __init__(
        self,
        rules: tuple[tuple[type[BaseException], UncaughtExceptionPolicy], ...],
        otherwise: UncaughtExceptionPolicy,
    ) -> None:
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "otherwise", otherwise)

    def choose(self, error: BaseException) -> tuple[StreamThreadExceptionResponse, Budget | None]:
        kind = most_specific([kind for kind, _ in self.rules], error)
        policy = self.otherwise if kind is None else dict(self.rules)[kind]
        return policy.choose(error)

    def __repr__(self) -> str:
        shown = ", ".join(f"{kind.__name__}: {_short(policy)}" for kind, policy in self.rules)
        return f"UncaughtExceptionPolicy.by_exception({{{shown}}}, otherwise={_short(self.otherwise)})"


def most_specific(kinds: list[type[BaseException]], error: BaseException) -> type[BaseException] | None:
    """Which of `kinds` says most about `error` and its causes; None: none does.

    A class gives way to its subclasses, wherever in the chain they fit; of those that remain, the one that
    fits nearest to the root wins, and there the one that comes first among the exception's own parents.
    """
    chain = list(causes(error))
    fitting = [kind for kind in kinds if any(isinstance(link, kind) for link in chain)]
    candidates = [
        kind
        for kind in fitting
        if not any(other is not kind and issubclass(other, kind) for other in fitting)
    ]
    for link in reversed(chain):
        here = [kind for kind in candidates if isinstance(link, kind)]
        if here:
            parents = type(link).__mro__
            return min(
                here,
                key=lambda kind: (
                    parents.index(kind) if kind in parents else len(parents),
                    f"{kind.__module__}.{kind.__qualname__}",
                ),
            )
    return None


def causes(error: BaseException) -> Iterator[BaseException]:
    """The exception, its `__cause__`, the cause of that, and so on; each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _policy(what: str, value: object) -> UncaughtExceptionPolicy:
    return value if isinstance(value, UncaughtExceptionPolicy) else _Always(_checked(what, value))


def _checked(what: str, value: object) -> StreamThreadExceptionResponse:
    if isinstance(value, StreamThreadExceptionResponse):
        return value
    return _refuse(what, value)


def _refuse(what: str, value: object) -> NoReturn:
    raise TypeError(not_a_response(what, value))


def _short(policy: UncaughtExceptionPolicy) -> str:
    """The text of a policy inside another policy's text."""
    if isinstance(policy, _Always) and policy.budget is None:
        return policy.response.name
    return repr(policy).removeprefix("UncaughtExceptionPolicy.")


def default_budget(config: StreamsConfig) -> Budget:
    """The budget of a plain REPLACE_THREAD answer: the keys `replace.thread.*`.

    Raises:
        ConfigException: two of them contradict each other, or one is too large.
    """

    def milliseconds(name: str) -> timedelta:
        return timedelta(milliseconds=config[name])

    try:
        return Budget(
            max_failures=config["replace.thread.max.failures"],
            window=milliseconds("replace.thread.window.ms"),
            then=StreamThreadExceptionResponse[config["replace.thread.then"]],
            backoff=milliseconds("replace.thread.backoff.ms"),
            backoff_max=milliseconds("replace.thread.backoff.max.ms"),
        )
    except (ValueError, OverflowError) as error:
        raise ConfigException(
            f"the keys 'replace.thread.…' do not form a valid budget for replacing threads: {error}"
        ) from error
