"""Shows the fields of our docstrings in the reference: `Source:`, `Differs:` and others, in bold.

Griffe would take them for sections of Google's form, of a kind that it does not know.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"^(Shape|Runs on|Next|Source|Differs|Bytes):\s+", re.MULTILINE)
PAIR = re.compile(r"^( +)(\w+), (\w+): ", re.MULTILINE)
"""Two arguments with one text; Griffe knows one name for each."""


class Fields(griffe.Extension):
    """Rewrites each docstring as it is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = FIELD.sub(r"\n**\1:** ", obj.docstring.value)
            obj.docstring.value = PAIR.sub(r"\1\2: as `\3`.\n\1\3: ", text)
