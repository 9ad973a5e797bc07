"""The kernel as a file: the jar with what Millstream does inside Spark, and which one it is.

Its sources are Java, in `kernel/` of the repository; `kernel/build.py` builds the jar, and a wheel has it.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path

from millstream.errors import SetupException

__all__ = ["Kernel", "shipped_kernel"]

_JAR = Path(__file__).with_name("millstream-kernel.jar")
_PROPERTIES = "io/millstream/kernel/kernel.properties"
_FIX = (
    "in a source checkout run `make setup`; otherwise reinstall Millstream: "
    "pip install --force-reinstall --no-deps millstream"
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel.

    Attributes:
        jar: where it is.
        version: the version of Millstream that it is a part of.
        digest: of the sources that it was compiled from.
    """

    jar: Path
    version: str
    digest: str

    def __str__(self) -> str:
        return f"{self.version} ({self.digest[:12]})"


def shipped_kernel(jar: Path = _JAR) -> Kernel:
    """The kernel that belongs to this package.

    Raises:
        SetupException: its jar is missing or damaged.
    """
    try:
        with zipfile.ZipFile(jar) as archive:
            lines = archive.read(_PROPERTIES).decode().splitlines()
        made_from = dict(line.split("=", 1) for line in lines)
        return Kernel(jar, made_from["version"], made_from["digest"])
    except FileNotFoundError as error:
        raise SetupException(
            f"the Millstream kernel, a jar that Spark needs, is missing: {jar}; {_FIX}"
        ) from error
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise SetupException(
            f"the Millstream kernel {jar} cannot be read ({type(error).__name__}: {error}); {_FIX}"
        ) from error
