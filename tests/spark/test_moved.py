"""The one path that a checkpoint has of itself."""

from __future__ import annotations

import json

from fake_ports import FakeCheckpointFiles

from millstream.spark.run.moved import put_right

METADATA = "state/1/_metadata/v2/0"


def metadata(*paths: str) -> bytes:
    stores = [{"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": list(paths)}]
    return f"v2\n{json.dumps({'stateStoreInfo': stores, 'x': 1}, separators=(',', ':'))}".encode()


def test_a_schema_of_state_is_where_the_checkpoint_is_now() -> None:
    """Under the new name of a claim, or somewhere else; what is not known, or is right, stays as it is."""
    files = FakeCheckpointFiles()
    left = {
        "state/0/_metadata/metadata": b"v1\n{}",
        "state/2/_metadata/v2/0": b'v2\n{"stateStoreInfo":[{"storeName":"default"}]}',
        "state/2/_metadata/v2/1": b"v2\n{cut off",
        "state/2/_metadata/v2/.0.crc": b"\0",
        "state/3/_metadata/v2/0": metadata("/new/p0.2/state/3/_stateSchema/default/0_c"),
    }
    for name, content in left.items():
        files.write(name, content)
    old = (
        "file:/old/p0.1/state/1/_stateSchema/default/0_a",
        "file:/old/p0.1/state/1/_stateSchema/default/3_b",
    )
    files.write(METADATA, metadata(*old))
    put_right(files, "/new/p0.2/")
    here = "/new/p0.2/state/1/_stateSchema/default"
    assert files.read(METADATA) == metadata(f"{here}/0_a", f"{here}/3_b")
    assert {name: files.read(name) for name in left} == left
    put_right(files, "/new/p0.2")
    assert files.read(METADATA) == metadata(f"{here}/0_a", f"{here}/3_b")
    put_right(FakeCheckpointFiles(), "/new/p0.1")  # there is nothing yet
