"""Imports PySpark's `pyspark.testing` only when more is needed of it than whether NumPy is installed.

PySpark checks that with `pyspark.testing.utils`, in `F.lit` and for each list that is passed to Java. The
module imports pandas to report whether tests can use it: half a second of CPU time at each start, for
programs that do not use it. Until another attribute of the module is used, a stand-in answers.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import threading
from types import ModuleType
from typing import Any

import pyspark

__all__ = ["postpone_testing"]

_PACKAGE = "pyspark.testing"
_UTILS = "pyspark.testing.utils"
_loading = threading.RLock()


class _StandIn(ModuleType):
    """A module that is imported when it is asked for what the stand-in does not have."""

    def __init__(self, spec: importlib.machinery.ModuleSpec, **known: object) -> None:
        super().__init__(spec.name)
        self.__spec__ = spec
        self.__file__ = spec.origin
        self.__package__ = _PACKAGE
        if spec.submodule_search_locations is not None:
            self.__path__ = spec.submodule_search_locations
        vars(self).update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python looks at modules, and nobody means this one
            raise AttributeError(f"module '{self.__name__}' has no attribute '{name}'")
        with _loading:
            for each in (_PACKAGE, _UTILS):
                if isinstance(sys.modules.get(each), _StandIn):
                    del sys.modules[each]
            real = importlib.import_module(self.__name__)
        return getattr(real, name)


def postpone_testing() -> None:
    """Put the stand-ins in place, unless the modules are there. PySpark has to be what they are made for."""
    if _PACKAGE in sys.modules or _UTILS in sys.modules:
        return
    package = importlib.machinery.PathFinder.find_spec(_PACKAGE, pyspark.__path__)
    if package is None or package.submodule_search_locations is None:
        return
    utils = importlib.machinery.PathFinder.find_spec(_UTILS, package.submodule_search_locations)
    if utils is None:
        return
    has_numpy = importlib.util.find_spec("numpy") is not None
    module = _StandIn(utils, have_numpy=has_numpy)
    stand_in = _StandIn(package, utils=module)
    sys.modules[_UTILS] = module
    sys.modules[_PACKAGE] = stand_in
    pyspark.testing = stand_in  # type: ignore[attr-defined]
