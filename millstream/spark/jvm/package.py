"""Ships this package to executors, which may not have it installed: Python functions there import it.

It is sent as an archive among the application's files, like `spark.submit.pyFiles`. So executors run exactly
the client's code, whatever is installed on them.
"""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream.small_files import write_whole
from millstream.spark.jvm.executors import is_cluster

__all__ = ["deliver_package"]

_FOLDER = Path(__file__).resolve().parent.parent.parent
_MAKING = threading.Lock()
"""Clients of one Spark may start at the same time."""


def deliver_package(spark: SparkSession) -> None:
    """Make this package available to a cluster's executors. A local Spark finds it where this process
    does."""
    context: Any = spark.sparkContext
    if not is_cluster(str(context.master)):
        return
    archive = _archive(Path(context._temp_dir))
    if archive.name not in context._python_includes:
        # Not `addPyFile`: this process would import from the archive, too, which Spark deletes when it ends.
        context.addFile(str(archive))
        context._python_includes.append(archive.name)


def _archive(directory: Path) -> Path:
    """All modules, under a name made from their content: one Spark may serve clients of two versions."""
    modules = {path.relative_to(_FOLDER.parent): path.read_bytes() for path in sorted(_FOLDER.rglob("*.py"))}
    digest = hashlib.sha256()
    for name, content in modules.items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    path = directory / f"millstream-{digest.hexdigest()[:16]}.zip"
    with _MAKING:
        if not path.exists():
            made = io.BytesIO()
            with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in modules.items():
                    archive.writestr(name.as_posix(), content)
            write_whole(path, made.getvalue())
    return path
