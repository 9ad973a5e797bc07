"""How commands fail: Millstream's own errors are a short red message and an exit code, never a traceback."""

from __future__ import annotations

import copy
import logging
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from millstream.errors import IllegalStateException, StreamsException
from millstream.logs import ReadableFormatter

__all__ = ["BriefFormatter", "Debug", "ErrorBoundary", "print_error"]

FAILED = 1
INTERRUPTED = 130

_DEBUG = "millstream.debug"
_OF_PYDANTIC = "Value error, "
"""What Typer leaves at the beginning of a message that it has from Pydantic."""


def _set_debug(context: typer.Context, value: bool) -> bool:
    if value:
        context.find_root().meta[_DEBUG] = True
    return value


Debug = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_set_debug, is_eager=True)
]
"""An option of every command, and of `millstream` itself. It may be anywhere on the command line."""


class ErrorBoundary(TyperGroup):
    """The group of all commands, which catches what they raise."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.TyperException as error:
            error.message = error.message.removeprefix(_OF_PYDANTIC)
            raise
        except (typer.Exit, typer.Abort):
            raise  # Typer's own exits
        except KeyboardInterrupt:
            typer.echo("\nstopped", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # The reader of the output has closed it (`| head`), so nothing more can be printed.
            sys.stderr.close()
            raise typer.Exit(FAILED) from None
        except Exception as error:
            print_error(error, ctx)
            raise typer.Exit(FAILED) from None


def print_error(error: BaseException, context: typer.Context) -> None:
    """Print on stderr what went wrong and, with --debug, where."""
    if context.find_root().meta.get(_DEBUG):
        typer.echo("".join(traceback.format_exception(error)), err=True)
    if isinstance(error, StreamsException | IllegalStateException):
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}\nthis is a bug; please report it: --debug shows where"
    typer.echo(typer.style("error: ", fg=typer.colors.RED, bold=True) + text, err=True)


class BriefFormatter(ReadableFormatter):
    """Log lines without the traceback of an exception of ours: its text says what to do, and where.

    A plain StreamsException wraps what nobody expected, so it keeps its traceback, as others do.
    """

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, StreamsException) and type(error) is not StreamsException:
            record = copy.copy(record)  # other handlers show it in full
            record.exc_info, record.exc_text = None, f"{type(error).__name__}: {error}"
        return super().format(record)
