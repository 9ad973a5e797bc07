"""Where the user's program called Millstream, for messages about what it made there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["caller"]


def caller() -> str:
    """The line of the program that called into Millstream: `app.py:41`."""
    package = f"{Path(__file__).parent}{os.sep}"
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
