"""The process that Spark forks its Python workers from, with their imports already loaded.

When a Python function fails, its worker ends. The next worker would import NumPy, pandas, PyArrow and
PySpark's worker again while a stream waits: one to two seconds on two cores. Here they are imported once,
before the fork. Spark starts this instead of `pyspark.daemon` (`spark.python.daemon.module`, see session.py).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import zipimport

_WORKERS_NEED = (
    *("numpy", "pyarrow", "pandas", "pyspark.worker", "pyspark.sql.pandas.serializers"),
    *("millstream.dsl.builder", "millstream.runtime.client"),  # the module of a user's function imports them
)


def _forget_archives() -> None:
    """Drop the importers of PySpark's archive; one that is needed again is recreated in microseconds.

    A worker's first act is to invalidate the caches of all importers, and each of them, one per package,
    would then read the archive's directory again: 0.1 s in all.
    """
    for path, importer in tuple(sys.path_importer_cache.items()):
        if isinstance(importer, zipimport.zipimporter):
            del sys.path_importer_cache[path]


if __name__ == "__main__":
    for _name in _WORKERS_NEED:
        with contextlib.suppress(ImportError):  # the worker does without what is not installed, or reports it
            importlib.import_module(_name)
    from pyspark.daemon import manager

    _forget_archives()
    manager()
