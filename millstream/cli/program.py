"""Programs as named on the command line, `module:attribute`, and their topologies.

The form is that of uvicorn and gunicorn. The module is imported, so its code outside functions runs.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millstream.errors import StreamsException
from millstream.foreign import printable

if TYPE_CHECKING:
    from types import ModuleType

    from millstream.topology.topology import Topology

__all__ = ["AppDir", "NamedProgram", "Program", "load_topology", "parse_program"]

_HINT = "PROGRAM"
_USUAL = "topology"

Program = Annotated[
    str,
    typer.Argument(
        metavar=_HINT,
        help="The program, as module:attribute or file.py:attribute. The attribute is a Topology, a "
        "StreamsBuilder, or a function without parameters that returns one; 'topology' if omitted.",
        show_default=False,
    ),
]
AppDir = Annotated[
    Path | None,
    typer.Option(
        "--app-dir",
        metavar="FOLDER",
        file_okay=False,
        exists=True,
        help="The folder of the modules. [default: .]",
    ),
]


@dataclass(frozen=True, slots=True)
class NamedProgram:
    """What a text such as `orders:topology` names.

    Attributes:
        folder: where the module is looked for first, as given; None: the current folder.
    """

    module: str
    attribute: str = _USUAL
    folder: Path | None = None


def parse_program(text: str) -> NamedProgram:
    """The program that a text names: `module:attribute`, `path/file.py:attribute`, or without the attribute.

    Raises:
        typer.BadParameter: it does not name one.
    """
    place, _, attribute = text.partition(":")
    folder: Path | None = None
    if place.endswith(".py"):
        file = Path(place)
        place, folder = file.stem, file.parent
    parts = place.split(".")
    wanted = (attribute or _USUAL).split(".")
    if not all(part.isidentifier() for part in (*parts, *wanted)):
        raise typer.BadParameter(
            f"{printable(text)!r} is not a program; one looks like orders:topology (module:attribute) or "
            "orders.py:topology",
            param_hint=_HINT,
        )
    return NamedProgram(place, ".".join(wanted), folder)


def load_topology(text: str, app_dir: Path | None = None) -> Topology:
    """Import a program, and return its topology.

    Raises:
        typer.BadParameter: there is no such module or attribute, or it is not a topology.
        StreamsException: the module, or the function, raises an exception.
    """
    named = parse_program(text)
    folder = (named.folder or app_dir or Path()).resolve()
    _search_first(folder)
    module = _imported(named, folder)
    _refuse_another(module, named, folder)
    found: Any = module
    for part in named.attribute.split("."):
        if not hasattr(found, part):
            raise typer.BadParameter(_no_attribute(module, named), param_hint=_HINT)
        found = getattr(found, part)
    return _topology(found, named)


def _search_first(folder: Path) -> None:
    """Make this process and its children, Spark's Python workers, look for modules there first."""
    here = str(folder)
    if sys.path[:1] != [here]:
        sys.path.insert(0, here)
    others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each != here]
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *others])


def _imported(named: NamedProgram, folder: Path) -> ModuleType:
    name = named.module
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise _raised(f"module '{name}'", error) from error  # it exists, but imports a missing one
        raise typer.BadParameter(
            _no_module(error.name, folder, is_file=named.folder is not None), param_hint=_HINT
        ) from None
    except StreamsException:
        raise  # an invalid topology; the message says where
    except Exception as error:
        raise _raised(f"module '{name}'", error) from error


def _refuse_another(module: ModuleType, named: NamedProgram, folder: Path) -> None:
    """A file whose name another module has, such as json.py, is not what was imported.

    It cannot be loaded past its name: Spark's Python workers import it by that name, too.
    """
    file, found = folder / f"{named.module}.py", getattr(module, "__file__", None)
    if named.folder is None or not file.is_file() or (found is not None and file.samefile(found)):
        return
    place = f" ({found})" if found else ""
    raise typer.BadParameter(
        f"{file} has the name of another module, '{named.module}'{place}, which Python finds first; rename "
        "the file",
        param_hint=_HINT,
    )


def _no_module(name: str, folder: Path, *, is_file: bool) -> str:
    there = sorted(path.stem for path in folder.glob("*.py"))
    near = difflib.get_close_matches(name, there, n=1)
    if is_file:
        return f"there is no file '{name}.py' in {folder}" + (
            f"; did you mean '{near[0]}.py'?" if near else ""
        )
    hint = f"; did you mean '{near[0]}'?" if near else "; set its folder with --app-dir"
    return f"there is no module '{name}' in {folder}{hint}"


def _no_attribute(module: ModuleType, named: NamedProgram) -> str:
    fitting = [name for name, value in vars(module).items() if _kind(value) in ("Topology", "StreamsBuilder")]
    hint = f"; it has {', '.join(fitting)}" if fitting else ""
    return f"module '{named.module}' has no '{named.attribute}'{hint}"


def _kind(value: Any) -> str:
    return type(value).__name__ if type(value).__module__.split(".")[0] == "millstream" else ""


def _topology(found: Any, named: NamedProgram) -> Topology:
    from millstream.dsl.builder import StreamsBuilder
    from millstream.topology.topology import Topology

    what = f"'{named.module}:{named.attribute}'"
    if callable(found) and not isinstance(found, type | Topology | StreamsBuilder):
        try:
            found = found()
        except StreamsException:
            raise
        except Exception as error:
            raise _raised(f"{what}()", error) from error
        what += "()"
    if isinstance(found, StreamsBuilder):
        found = found.build()
    if not isinstance(found, Topology):
        raise typer.BadParameter(
            f"{what} is of type {type(found).__name__}; a program must be a Topology, a StreamsBuilder, "
            "or a function without parameters that returns one",
            param_hint=_HINT,
        )
    return found


def _raised(what: str, error: Exception) -> StreamsException:
    """What the user's code raised, and where: the last line that is not in a library."""
    if isinstance(error, SyntaxError):
        where = f"{error.filename}, line {error.lineno}"
    else:
        frames = [
            each for each in traceback.extract_tb(error.__traceback__) if not _is_library(each.filename)
        ]
        where = f"{frames[-1].filename}, line {frames[-1].lineno}" if frames else "?"
    message = printable(str(error)) or "no message"
    return StreamsException(
        f"{what} cannot be loaded: {type(error).__name__}: {message} ({where}); --debug shows the traceback"
    )


def _is_library(file: str) -> bool:
    return file.startswith("<") or "site-packages" in file or file == __file__
