"""The archive by which executors get this package."""

from __future__ import annotations

import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

from millstream.spark.jvm import package


def test_clients_that_start_at_the_same_time_share_one_archive(tmp_path: Path) -> None:
    """None of them takes a file away that another one is still writing; and all modules are in it."""
    together = Barrier(2)

    def make() -> Path:
        together.wait(30)
        return package._archive(tmp_path)

    with ThreadPoolExecutor(2) as threads:
        made = {each.result(60) for each in [threads.submit(make) for _ in range(2)]}
    assert made == set(tmp_path.iterdir())
    with zipfile.ZipFile(made.pop()) as archive:
        assert archive.testzip() is None
        assert "millstream/spark/worker/program_worker.py" in archive.namelist()
