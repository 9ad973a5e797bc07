"""What a client does about a failed thread. Pure: a response and a view in, actions out, in their order.

KIP-671 is this file. It knows no thread, no Spark and no Kafka; `client.py` performs what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from millstream.runtime.states import State

__all__ = ["Action", "CloseToError", "Failure", "LogFailure", "Response", "View", "decide"]


class Response(Enum):
    """What to do about an exception that reached the end of a thread.

    Source: KIP-671; StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.
    """

    SHUTDOWN_CLIENT = "SHUTDOWN_CLIENT"


@dataclass(frozen=True)
class Failure:
    """A thread ended with an exception.

    Attributes:
        thread: its name.
        error: a `StreamsException`, with what really happened as its `__cause__`.
    """

    thread: str
    error: BaseException


@dataclass(frozen=True)
class View:
    """The client at the moment of the decision."""

    state: State
    live_threads: int


@dataclass(frozen=True)
class LogFailure:
    """Log the failure at ERROR, with its story, as `message`."""

    message: str


@dataclass(frozen=True)
class CloseToError:
    """Close every resource: PENDING_ERROR, then ERROR."""


Action = LogFailure | CloseToError


def decide(response: Response, failure: Failure, view: View) -> tuple[Action, ...]:
    """What the client does about `failure`, in order.

    Source: KIP-671 "Proposed Changes"; KIP-696 (SHUTDOWN_CLIENT ends in ERROR); the message is upstream's.
    """
    if not view.state.is_running_or_rebalancing:
        return (
            LogFailure(
                f"thread '{failure.thread}' failed while the client is {view.state}; it is closing already"
            ),
        )
    return (
        LogFailure(
            "Encountered the following exception during processing and the registered exception handler "
            "opted to "
            f"{response.value}. The streams client is going to shut down now."
        ),
        CloseToError(),
    )
