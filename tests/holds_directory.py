"""Holds a private directory with a file in it until its input ends; prints the directory's path."""

from __future__ import annotations

import sys

from millstream.scratch import PrivateDirectory


def main() -> None:
    directory = PrivateDirectory("test")
    (directory.path / "deep").mkdir()
    (directory.path / "deep" / "library.so").write_bytes(b"x" * 1000)
    print(directory.path, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
