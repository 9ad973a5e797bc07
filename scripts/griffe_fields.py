"""How the reference reads our code where Griffe alone would get it wrong.

Griffe does not know fields of docstrings such as `Source:` and `Differs:`, so they become bold text. And if a
base class only declares a method that a sibling defines, as in `query: Callable[..., Any]`, the declaration
would be shown in place of the method.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

FIELD = re.compile(r"^(Shape|Runs on|Next|Source|Differs|Bytes):\s+", re.MULTILINE)
INLINE = re.compile(r"(?<=\. )(Differs):\s+")
"""After a source, on the same line."""
PAIR = re.compile(r"^( +)(\w+), (\w+): ", re.MULTILINE)
"""Two arguments with one text; Griffe accepts only one name per text."""


class Fields(griffe.Extension):
    """Rewrites each docstring as it is read, and leaves out mere declarations."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        for name, member in list(cls.members.items()):
            declared = isinstance(member, griffe.Attribute) and member.value is None
            if declared and str(member.annotation).startswith("Callable[") and not member.has_docstring:
                cls.del_member(name)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = rewritten(obj.docstring.value)


def rewritten(docstring: str) -> str:
    """A docstring with its fields in bold, and one text for each argument."""
    text = INLINE.sub(r"**\1:** ", FIELD.sub(r"\n**\1:** ", docstring))
    return PAIR.sub(r"\1\2: as `\3`.\n\1\3: ", text)
