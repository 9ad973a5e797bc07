"""What Millstream does with an object store, in a process of its own: S3A comes on the class path of its JVM.

Told by a JSON text which stores there are; prints what came of each as one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from spark_start import WITHOUT_CODE, java_options

from millstream.errors import StreamsException
from millstream.ports import FENCE
from millstream.spark.jvm.session import SharedSession
from millstream.spark.run.checkpoint_files import check_location, checkpoint_files


def raised(act: Callable[[], Any]) -> list[Any]:
    """The class and the text of an exception, and how long it took to come."""
    began = time.monotonic()
    try:
        return ["nothing", str(act()), 0.0]
    except StreamsException as error:
        return [type(error).__name__, str(error), time.monotonic() - began]


def main(settings: dict[str, str], good: str, careless: str, nowhere: str) -> dict[str, Any]:
    plain = {"spark.driver.extraJavaOptions": java_options(), **WITHOUT_CODE}
    before = SharedSession(plain, "before")  # of a client whose checkpoints are on a disk
    without = raised(lambda: checkpoint_files(before.spark, good))
    before.close()
    session = SharedSession({**plain, **settings}, "s3", object_store=True)
    files: Any = checkpoint_files(session.spark, good)
    told: dict[str, Any] = {
        "without": without,
        "good": raised(lambda: check_location(session.spark, good)),
        "careless": raised(lambda: check_location(session.spark, careless)),
        "nowhere": raised(lambda: check_location(session.spark, nowhere)),
        "missing": raised(lambda: check_location(session.spark, "s3a://missing/cp")),
        "created": [files.create("p0.1/offsets/0", each) for each in (b"one", b"two", b"one")],
        "empty": [files.create_file("p0.1/empty") for _ in range(2)],
        "fenced": [files.create("p0.1/offsets/1", FENCE) for _ in range(2)],
        "writes": [
            raised(lambda each=each: files.write(f"p0.1/{each}", b"new")) for each in ("offsets/0", "x")
        ],
        "refused": [
            raised(lambda: files.write("p0.1/offsets/1", b"new")),
            raised(lambda: files.delete("p0.1/offsets/1")),
        ],
    }
    files.write("p0.1/state/0/0/1.zip", b"z" * 100_000)
    files.copy("p0.1", "p0.2")
    told["copied"] = sorted(each for part in ("offsets", "state/0/0") for each in files.list(f"p0.2/{part}"))
    told["content"] = len(files.read("p0.2/state/0/0/1.zip"))
    files.delete("p0.1")
    files.delete("p0.9")
    told["left"] = [sorted(files.list("p0.1")), sorted(files.list("p0.1/offsets"))]
    files.remove("p0.1")
    told["names"] = sorted(files.list())
    session.close()
    return told


if __name__ == "__main__":
    print(json.dumps(main(*json.loads(sys.argv[1]))))
