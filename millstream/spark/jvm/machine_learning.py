"""Spark's library for machine learning, MLlib: in a JVM that we start only if the program has imported it.

If its jar is there, each session registers MLlib's functions. For that Java loads Scala's reflection, which
is a twentieth of a start's CPU time, and hardly any streaming program uses one of these functions.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType

__all__ = ["JAR", "is_imported", "warn_if_imported"]

JAR = "spark-mllib_"
"""What the name of its jar begins with."""
_PACKAGES = ("pyspark.ml", "pyspark.mllib")

log = logging.getLogger(__name__)


def is_imported() -> bool:
    """Whether the program has imported it."""
    return any(name in sys.modules for name in _PACKAGES)


def warn_if_imported() -> None:
    """Log a warning when the program imports it from now on: Spark runs without it. Idempotent."""
    if not any(isinstance(each, _Late) for each in sys.meta_path):
        sys.meta_path.insert(0, _Late())


class _Late(MetaPathFinder):
    """Finds no module; is asked for each that is imported for the first time."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Warn once."""
        if name in _PACKAGES and self in sys.meta_path:
            # A new list: Python is going through the one that there is.
            sys.meta_path = [each for each in sys.meta_path if each is not self]
            log.warning(
                "%s was imported after Spark had started without MLlib, so its calls of Spark fail "
                "('JavaPackage' object is not callable); import it before the first client starts, at the "
                "top of the program",
                name,
            )
