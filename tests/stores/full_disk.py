"""Fills a store in a process that may not write large files, which is as good as a full disk.

Run with the path of the store. Prints the last batch that was applied, and the error of the next one.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from millstream.errors import ProcessorStateException
from millstream.model import TaskId
from millstream.stores.rocksdb_store import RocksDBStore


def main(path: str) -> None:
    store = RocksDBStore("counts", TaskId(1, 3), Path(path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    applied, failure = 0, None
    try:
        for batch in range(1, 100):
            store.apply([(b"%d-%d" % (batch, i), os.urandom(1000), 1) for i in range(50)], batch)
            applied = batch
    except ProcessorStateException as error:
        failure = error
    assert failure is not None
    assert path in str(failure), failure
    assert failure.__cause__ is not None, failure
    assert len(list(store.range(None, None))) >= applied * 50
    print(applied, str(failure).replace("\n", " "), flush=True)
    os._exit(0)  # closing the store would write


if __name__ == "__main__":
    main(sys.argv[1])
