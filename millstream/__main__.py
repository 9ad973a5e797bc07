"""`python -m millstream`: the same as the command `millstream`."""

from __future__ import annotations

from millstream.cli.main import main

if __name__ == "__main__":
    main()
